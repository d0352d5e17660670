//! Renaming folders.
//!
//! A folder without objects in the store only gets another name. The objects below any other folder are moved inside
//! the store ([`Writer::rename_folder`](s3mount_write::Writer::rename_folder)), which says when to change the names of
//! this mount. No name in either folder is changed meanwhile ([`tree_locks`](crate::tree::tree_locks)), and files that
//! are being written move with it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use s3mount_object::{Condition, ErrorKind, ObjectError, ObjectId};
use s3mount_write::{FolderNames, FolderRename, MoveError, Moved};

use super::Filesystem;
use crate::FsError;
use crate::drafts::DraftFile;
use crate::names::Target;
use crate::tree::inode::renamed::Renamed;
use crate::tree::tree_locks::TreesGuard;
use crate::writes::Place;
use s3mount_names::{Emptying, MovedFile, NamesError, StoredIn};

impl From<MoveError> for FsError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Object(error) => FsError::Object(error),
            MoveError::TooMany(_) => FsError::CrossDevice,
            MoveError::KeyTooLong(_) => FsError::NameTooLong,
            MoveError::Taken(_) => FsError::NotEmpty,
            MoveError::Parts(error) => error.into(),
            MoveError::Lost(key) => ObjectError::new(ErrorKind::Integrity, "CopyObject", &key).into(),
        }
    }
}

/// A folder that is being renamed.
pub(super) struct Renaming<'a> {
    from: Place<'a>,
    to: Place<'a>,
    /// The prefixes of the two parents.
    parents: (&'a Arc<str>, &'a Arc<str>),
    /// The prefixes of the folder, before and after.
    pub(super) old: String,
    pub(super) new: String,
}

impl<'a> Renaming<'a> {
    pub(super) fn new(from: Place<'a>, to: Place<'a>, parents: &'a (Arc<str>, Arc<str>)) -> Self {
        let (old, new) = (format!("{}{}/", parents.0, from.name), format!("{}{}/", parents.1, to.name));
        Self { from, to, parents: (&parents.0, &parents.1), old, new }
    }

    /// The reverse renaming.
    fn back(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            parents: (self.parents.1, self.parents.0),
            old: self.new.clone(),
            new: self.old.clone(),
        }
    }
}

/// The names of the mount, for the renaming of a folder.
pub(super) struct Names<'a> {
    pub(super) fs: &'a Filesystem,
    pub(super) renaming: &'a Renaming<'a>,
}

impl<'a> FolderNames for Names<'a> {
    type Guard = Option<Emptying<'a, DraftFile>>;

    async fn switch(&self, moved: &[Moved]) {
        self.fs.move_drafts(self.renaming, moved).await;
        self.fs.switch(self.renaming, moved);
    }

    fn note_deleted(&self, moved: &[Moved]) {
        let Renaming { from, parents, old, .. } = self.renaming;
        self.fs.namespace.note_gone_below(old, moved.iter().map(|copy| copy.from.key()));
        self.fs.namespace.note_gone(parents.0, from.name);
    }

    async fn switch_back(&self, moved: &[Moved]) -> Self::Guard {
        let guard = self.fs.emptying(self.renaming.to.parent);
        let back = self.renaming.back();
        self.fs.move_drafts(&back, moved).await;
        self.fs.switch(&back, moved);
        guard
    }
}

/// Whether the store has never had any of these files, and no daemon before may have uploaded one.
fn are_new(drafts: &[Arc<DraftFile>]) -> bool {
    drafts
        .iter()
        .all(|file| file.stored().is_none() && file.in_outbox().is_none_or(|entry| entry.left.is_none()))
}

impl Filesystem {
    /// Renames a folder. Replaces an empty folder of the new name, unless `keeps_target`. No name in either is changed
    /// meanwhile, because the caller holds both trees.
    pub(super) async fn rename_folder(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        parents: &(Arc<str>, Arc<str>),
        keeps_target: bool,
        _trees: &TreesGuard<'_>,
    ) -> Result<(), FsError> {
        let renaming = Renaming::new(from, to, parents);
        let target = match self.namespace.get(&parents.1, to.name).await {
            Ok(_) if keeps_target => return Err(FsError::Exists),
            Ok((Target::Directory, _)) => self.namespace.stored_in(&renaming.new).await?,
            Ok((Target::File(_) | Target::Draft(_), _)) => return Err(FsError::NotDirectory),
            Err(NamesError::NotFound) => StoredIn::Nothing,
            Err(error) => return Err(error.into()),
        };
        let is_empty = target != StoredIn::Objects && !self.namespace.has_local_names(&renaming.new);
        if !is_empty || self.has_drafts_below(&renaming.new) {
            return Err(FsError::NotEmpty);
        }
        let source = self.namespace.stored_in(&renaming.old).await?;
        let _parent = self.emptying(from.parent);
        let drafts = self.drafts_below(&renaming.old);
        if self.has_outbox() && (source, target) == (StoredIn::Nothing, StoredIn::Nothing) && are_new(&drafts)
        {
            self.rename_new_folder(&renaming).await;
            return Ok(());
        }
        // What the store has is copied there. So it has to have all.
        self.upload_all(&drafts).await?;
        if source == StoredIn::Nothing && !self.has_drafts_below(&renaming.old) {
            self.switch(&renaming, &[]);
            return Ok(());
        }
        self.move_folder(&renaming, target == StoredIn::Marker).await
    }

    /// Renames a folder of which the store has nothing.
    async fn rename_new_folder(&self, renaming: &Renaming<'_>) {
        self.move_folder_in_outbox(&renaming.old, &renaming.new);
        self.move_drafts(renaming, &[]).await;
        self.switch(renaming, &[]);
    }

    /// Whether a name below the directory `prefix` refers to a draft.
    fn has_drafts_below(&self, prefix: &str) -> bool {
        self.namespace.drafts().iter().any(|draft| draft.place().0.starts_with(prefix))
    }

    /// Moves the objects and the drafts of a folder. If there is a marker object at the new prefix, it stays, and the
    /// folder's own is only deleted.
    async fn move_folder(&self, renaming: &Renaming<'_>, has_marker: bool) -> Result<(), FsError> {
        let writes = self.writes()?;
        let most = writes.rights.folder_rename_limit;
        if most == 0 {
            // A program that copies instead could not delete what it has copied.
            writes.rights.delete()?;
            return Err(FsError::CrossDevice);
        }
        let rename = FolderRename { from: &renaming.old, to: &renaming.new, has_marker, most };
        Ok(writes.writer.rename_folder(rename, &Names { fs: self, renaming }).await?)
    }

    /// Gives all drafts of a folder their new keys. The copies of their objects become their objects.
    async fn move_drafts(&self, renaming: &Renaming<'_>, moved: &[Moved]) {
        let copies: HashMap<&str, &Moved> = moved.iter().map(|copy| (copy.from.key(), copy)).collect();
        for file in self.drafts_below(&renaming.old) {
            let (prefix, name) = file.place();
            let below = prefix.strip_prefix(&*renaming.old).unwrap_or_default();
            let prefix_now: Arc<str> = format!("{}{below}", renaming.new).into();
            let copy = copies.get(&*format!("{prefix}{name}"));
            let is_of = |copy: &Moved, known: Option<&ObjectId>| {
                known.is_some_and(|known| {
                    copy.was_gone || copy.from == *known || copy.to.etag() == known.etag()
                })
            };
            let copy = copy.filter(|copy| is_of(copy, file.stored().as_ref()));
            let own = file.object().filter(|own| copy.is_some_and(|copy| is_of(copy, Some(own))));
            if let (Some(copy), Some(own)) = (copy, own) {
                let Ok(_) = file.draft().follow(&own, async { Ok::<_, Infallible>(copy.to.clone()) }).await;
                file.note_object(&copy.to);
            } else if !file.is_sealed() {
                // If another client has replaced or deleted the object, the draft can't be published.
                let there = copy.map(|copy| copy.to.clone()).or_else(|| file.stored());
                let condition =
                    there.map_or(Condition::Absent, |object| Condition::Matches(object.etag().clone()));
                file.draft().rename(&format!("{prefix_now}{name}"), Some(condition)).await;
            }
            file.rename(&prefix_now, &name, None, copy.map(|copy| copy.to.clone()));
            self.move_in_outbox(&file, None);
            // The next daemon goes on with the copy.
            file.ino().into_iter().for_each(|ino| self.inodes.record(ino));
        }
    }

    /// The drafts below a prefix: those with names, and ended ones that are still open.
    fn drafts_below(&self, prefix: &str) -> Vec<Arc<DraftFile>> {
        let mut drafts = self.inodes.drafts();
        for draft in self.namespace.drafts() {
            if !drafts.iter().any(|known| Arc::ptr_eq(known, &draft)) {
                drafts.push(draft);
            }
        }
        drafts.retain(|file| !file.is_unlinked() && file.place().0.starts_with(prefix));
        drafts
    }

    /// Changes the names of this mount.
    fn switch(&self, renaming: &Renaming<'_>, moved: &[Moved]) {
        let Renaming { from, to, parents, old, new } = renaming;
        let _moving = self.inodes.moving();
        let files = moved.iter().map(|copy| MovedFile {
            old_key: copy.from.key(),
            object: &copy.to,
            size: copy.size,
            mtime: copy.modified,
        });
        self.namespace.folder_moved((old, new), files);
        self.directories.walks().note_folder_moved();
        self.attributes.modes.move_below(old, new);
        if let Some(writes) = &self.writing.writes {
            moved.iter().for_each(|copy| writes.writer.note_written(&copy.to));
        }
        self.namespace.note_gone(parents.0, from.name);
        self.namespace.note_moved_folder(parents.1, to.name, !moved.is_empty());
        self.inodes.rename((from.parent, from.name), (to.parent, to.name), Renamed::Folder);
        self.inodes.set_etags(self.namespace.root(), moved);
    }
}
