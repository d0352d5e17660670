//! The changes of this mount: drafts, folders, and objects that it has written or deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use s3mount_object::{ListObjects, ObjectId};
use tokio::time::Instant;

use super::Namespace;
use crate::error::NamesError;
use crate::fact::{Asked, Fact};
use crate::name::{File, Named, NamedDraft, Target, is_file_name, split_key};
use crate::overlay::folder_listener::FolderNote;
use crate::overlay::folders::Emptying;
use crate::overlay::{Change, SetDraft};
use crate::pages::page::Page;

impl<D: NamedDraft> Namespace<D> {
    /// Notes that `name` in the directory `prefix` refers to a draft.
    pub fn note_draft(&self, prefix: &Arc<str>, name: &str, draft: &Arc<D>) {
        self.overlay.set(prefix, name, Change::Draft(draft.clone()), Instant::now());
    }

    /// Makes `name` in the directory `prefix` refer to the draft that `make` returns, unless another caller has made a
    /// draft meanwhile, or this known `fact` is no longer true.
    pub fn begin_draft(
        &self,
        prefix: &Arc<str>,
        name: &str,
        fact: &Fact<D>,
        make: impl FnOnce() -> Option<Arc<D>>,
    ) -> SetDraft<D> {
        self.overlay.set_draft(prefix, name, fact, make)
    }

    /// Whether this mount's last change of `name` in the directory `prefix` has made it this target: nothing, a
    /// version, or a draft.
    pub fn has_made(&self, prefix: &str, name: &str, target: Option<&Target<D>>) -> bool {
        self.overlay.has_made(prefix, name, target)
    }

    /// Notes that `name` in the directory `prefix` is a folder, even if it holds no object.
    pub(crate) fn note_folder(&self, prefix: &Arc<str>, name: &str) {
        self.overlay.set(prefix, name, Change::Folder, Instant::now());
    }

    /// Has `tell` told of each folder that stays although it may hold no object: its parent's prefix, its name, and why, or
    /// `None` once it does not stay any more. It must not call the namespace. It can be set once.
    pub fn tell_folders(&self, tell: impl Fn(&str, &str, Option<FolderNote>) + Send + Sync + 'static) {
        self.overlay.tell_folders(Box::new(tell));
    }

    /// Notes a folder of which another daemon has told.
    pub fn note_folder_again(&self, prefix: &Arc<str>, name: &str, note: FolderNote) {
        match note {
            FolderNote::Made => self.note_folder(prefix, name),
            FolderNote::Emptied => self.overlay.note_emptied(prefix, name),
        }
    }

    /// Notes that this mount removes names from the directory `prefix`, until the guard is dropped. The directory and
    /// those above it stay, even if no object is left below. Call it before the request to the store: a listing of a
    /// directory above may already lack it.
    pub fn emptying(&self, prefix: Arc<str>) -> Emptying<'_, D> {
        self.overlay.emptying(&self.root, prefix)
    }

    /// Notes that this mount has made the new folder `name` in the directory `prefix`: nothing lies below it as of the
    /// listing that did not have it.
    pub fn note_new_folder(&self, prefix: &Arc<str>, name: &str) {
        self.note_folder(prefix, name);
        if let Some(asked) = self.snapshots.has_no_folder_as_of(prefix, name) {
            let below = Arc::from(format!("{prefix}{name}/"));
            let page = self.overlay.apply(&below, Page::empty(asked));
            self.listings.close(&below);
            self.snapshots.note_first(&below, page);
        }
    }

    /// Notes that this mount has written a version.
    pub fn note_file(&self, prefix: &Arc<str>, name: &str, file: &File) {
        self.set_file((prefix, name), file, Self::keep_own);
    }

    /// Notes that this mount has moved a version to this name, as the kernel has asked for. The listener is not called.
    pub fn note_moved_file(&self, prefix: &Arc<str>, name: &str, file: &File) {
        self.set_file((prefix, name), file, Self::keep_asked_for);
    }

    fn set_file(
        &self,
        (prefix, name): (&Arc<str>, &str),
        file: &File,
        keep: impl Fn(&Self, &Arc<str>, &str, Page),
    ) {
        let now = Instant::now();
        // Look-ups find the version in the pages from now on. A page that was requested before and comes now may
        // replace this one, so it is kept again when the overlay has the version.
        keep(self, prefix, name, Page::of_one(name, Some(file), Asked::at(now)));
        self.overlay.set(prefix, name, Change::File(file.clone()), now);
        keep(self, prefix, name, Page::of_one(name, Some(file), Asked::at(now)));
    }

    /// Turns the draft of `name` into this version, if `seal` returns that it still can: no caller sees the name in
    /// between. Returns whether it did.
    pub fn note_sealed(
        &self,
        (prefix, name): (&Arc<str>, &str),
        draft: &Arc<D>,
        file: &File,
        seal: impl FnOnce() -> bool,
    ) -> bool {
        let now = Instant::now();
        // As in `set_file`.
        self.keep_own(prefix, name, Page::of_one(name, Some(file), Asked::at(now)));
        let is_sealed = self.overlay.end_draft(prefix, name, draft, Change::File(file.clone()), now, seal);
        self.keep_own(prefix, name, Page::of_one(name, Some(file), Asked::at(now)));
        is_sealed
    }

    /// Notes that this mount has deleted or renamed the file or folder of this name, as the kernel has asked for. The
    /// listener is not called.
    pub fn note_gone(&self, prefix: &Arc<str>, name: &str) {
        let now = Instant::now();
        self.overlay.set(prefix, name, Change::Gone, now);
        for key in [name.to_owned(), format!("{name}/")] {
            self.keep_asked_for(prefix, &key, Page::of_one(&key, None, Asked::at(now)));
        }
    }

    /// Notes that the folder `name` was moved to the directory `prefix`, and may have objects.
    pub fn note_moved_folder(&self, prefix: &Arc<str>, name: &str, has_objects: bool) {
        if !has_objects {
            return self.note_folder(prefix, name);
        }
        let now = Instant::now();
        self.overlay.set(prefix, name, Change::Stored, now);
        self.keep_own(prefix, &format!("{name}/"), Page::of_folder(name, true, Asked::at(now)));
    }

    /// Notes that everything below the folder `from` is below the folder `to` now. Of its objects, these have `moved`.
    pub fn folder_moved<'a>(
        &self,
        (from, to): (&str, &str),
        moved: impl Iterator<Item = MovedFile<'a>> + Clone,
    ) {
        self.overlay.move_folder(from, to);
        self.note_gone_below(from, moved.clone().map(|moved| moved.old_key));
        let files = moved.map(|MovedFile { object, size, mtime, .. }| {
            (object.key(), Change::File(File { object: object.clone(), size, mtime }))
        });
        self.note_below(to, files, || Change::Stored);
    }

    /// Notes that these objects below the folder `root` are deleted.
    pub fn note_gone_below<'a>(&self, root: &str, keys: impl Iterator<Item = &'a str>) {
        self.note_below(root, keys.map(|key| (key, Change::Gone)), || Change::Gone);
    }

    /// Notes changes of objects below the folder `root`, and the change of each folder between.
    fn note_below<'a>(
        &self,
        root: &str,
        changes: impl Iterator<Item = (&'a str, Change<D>)>,
        of_folder: impl Fn() -> Change<D>,
    ) {
        let now = Instant::now();
        let mut folders = BTreeSet::new();
        for (key, change) in changes {
            let (prefix, name) = split_key(key);
            if is_file_name(name) {
                self.overlay.set_unless_local(prefix, name, change, now);
            }
            let mut folder = prefix;
            while folder.len() > root.len() && folders.insert(folder) {
                folder = split_key(&folder[..folder.len() - 1]).0;
            }
        }
        for folder in folders {
            let (prefix, name) = split_key(&folder[..folder.len() - 1]);
            if is_file_name(name) {
                self.overlay.set_unless_local(prefix, name, of_folder(), now);
            }
        }
        self.listings.close_below(root);
        self.snapshots.forget_below(root, now);
    }

    /// Makes `name` refer to the version in the store, unless it refers to another draft than this one by now.
    pub fn forget_draft(&self, prefix: &str, name: &str, draft: &Arc<D>) {
        self.overlay.remove_draft(prefix, name, draft);
    }

    /// All drafts.
    pub fn drafts(&self) -> Vec<Arc<D>> {
        self.overlay.drafts()
    }

    /// The drafts of the directory `prefix`, or the one with this name.
    pub fn drafts_of(&self, prefix: &str, name: Option<&str>) -> Vec<Arc<D>> {
        self.overlay.drafts_of(prefix, name)
    }

    /// The names of a page of the directory `prefix`: `assemble` makes them of the page with the changes of this mount since
    /// its request, and the drafts and folders of this mount that the page covers are added.
    pub fn names_now(
        &self,
        prefix: &str,
        page: &Page,
        assemble: impl FnOnce(&Page) -> Vec<Named<D>>,
    ) -> Vec<Named<D>> {
        let (applied, mut local) = self.overlay.applied_with_local(prefix, page);
        let (page, now) = (applied.as_ref().unwrap_or(page), Instant::now());
        let mut names = assemble(page);
        if local.is_empty() {
            return names;
        }
        for named in names.iter_mut() {
            if let Some(target) = local.remove(named.name.as_str()) {
                (named.target, named.at) = (target, now);
            }
        }
        let is_shown = |name: &str| page.find(name).is_some() || page.find(&format!("{name}/")).is_some();
        for (name, target) in local {
            // Names of the page may be held back, and come later.
            if !is_shown(&name) {
                names.push(Named { name: name.into(), target, at: now });
            }
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names
    }

    /// Asks what the store has in the directory `prefix`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn stored_in(&self, prefix: &str) -> Result<StoredIn, NamesError> {
        let request = ListObjects { prefix: prefix.to_owned(), max_keys: Some(2), ..ListObjects::default() };
        let page = self.in_time(self.requests.list(request)).await?;
        let (markers, others): (Vec<_>, Vec<_>) =
            page.objects.iter().partition(|object| object.key == prefix);
        Ok(match (others.is_empty(), markers.is_empty()) {
            (false, _) => StoredIn::Objects,
            (true, false) => StoredIn::Marker,
            (true, true) => StoredIn::Nothing,
        })
    }

    /// Whether the directory `prefix` has a draft, or a folder that was made or emptied here.
    pub fn has_local_names(&self, prefix: &str) -> bool {
        self.overlay.has_local_names(prefix)
    }
}

/// A file that was moved to another key.
#[derive(Clone, Copy, Debug)]
pub struct MovedFile<'a> {
    /// The key that it had.
    pub old_key: &'a str,
    /// The version that it is now.
    pub object: &'a ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written.
    pub mtime: SystemTime,
}

/// What the store has in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredIn {
    /// Nothing.
    Nothing,
    /// The directory's own marker object, and nothing else.
    Marker,
    /// Objects below it.
    Objects,
}
