//! Changes of this mount that listings do not show (yet).
//!
//! A LIST that was requested before a change does not show it, and its pages may come later. So each change of an
//! object is applied to the pages of such listings, and to all other answers, as long as any may still come. A draft
//! and a folder that was made or emptied here are in no listing at all: they stay until the draft has become an object,
//! or the folder is removed, or a listing shows it ([`folders`]).

pub(crate) mod folder_listener;
pub(crate) mod folders;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::folder_listener::{FolderListener, FolderNote, Tell};
use crate::fact::Fact;
use crate::name::{File, Named, NamedDraft, Target};
use crate::pages::page::Page;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The change of a name.
#[derive(Debug)]
pub(crate) enum Change<D> {
    /// A file that is being written.
    Draft(Arc<D>),
    /// A folder that was made here and may hold no object.
    Folder,
    /// A folder that may hold no object, because callers (this many) remove names from it, or did.
    Emptied(u32),
    /// A folder to which this mount has moved objects: the store has it.
    Stored,
    /// A version of an object that this mount has written.
    File(File),
    /// Nothing: this mount has deleted or renamed it.
    Gone,
}

impl<D: NamedDraft> Change<D> {
    /// Whether listings never show the change.
    fn is_local(&self) -> bool {
        matches!(self, Change::Draft(_) | Change::Folder | Change::Emptied(_))
    }

    /// Whether it is a folder that may hold no object.
    fn is_folder(&self) -> bool {
        matches!(self, Change::Folder | Change::Emptied(_))
    }

    fn draft(&self) -> Option<Arc<D>> {
        match self {
            Change::Draft(draft) => Some(draft.clone()),
            Change::Folder | Change::Emptied(_) | Change::Stored | Change::File(_) | Change::Gone => None,
        }
    }

    /// What the name refers to, if listings never show it. `None` for a draft that has failed.
    fn target(&self) -> Option<Target<D>> {
        match self {
            Change::Draft(draft) if !draft.has_name() => None,
            Change::Draft(draft) => Some(Target::Draft(draft.clone())),
            Change::Folder | Change::Emptied(_) => Some(Target::Directory),
            Change::Stored | Change::File(_) | Change::Gone => None,
        }
    }
}

/// The result of noting a draft.
#[derive(Debug)]
pub enum SetDraft<D> {
    /// The name refers to this draft.
    Draft(Arc<D>),
    /// No draft was made.
    Nothing,
    /// The name has changed since the known fact: look it up again.
    Overtaken,
}

type Names<D> = BTreeMap<Box<str>, (Change<D>, Instant)>;

type Folders<D> = BTreeMap<Arc<str>, Names<D>>;

/// The names of the folder `prefix`.
fn names_of<'a, D>(folders: &'a mut Folders<D>, prefix: &str) -> &'a mut Names<D> {
    if !folders.contains_key(prefix) {
        folders.insert(Arc::from(prefix), Names::new());
    }
    folders.get_mut(prefix).expect("it was inserted")
}

/// Whether the folder `prefix` has a name that listings never show.
fn has_local<D: NamedDraft>(folders: &Folders<D>, prefix: &str) -> bool {
    folders.get(prefix).is_some_and(|names| names.values().any(|(change, _)| change.is_local()))
}

/// The change, if it is newer than an answer to a request at `at`.
fn newer_than<D: NamedDraft>(
    (change, since): &(Change<D>, Instant),
    at: Instant,
) -> Option<Option<Target<D>>> {
    match change {
        Change::Draft(_) | Change::Folder | Change::Emptied(_) => change.target().map(Some),
        Change::Stored if *since >= at => Some(Some(Target::Directory)),
        Change::File(file) if *since >= at => Some(Some(Target::File(file.clone()))),
        Change::Gone if *since >= at => Some(None),
        Change::Stored | Change::File(_) | Change::Gone => None,
    }
}

/// The names that a page covers.
fn covered<'a, D>(
    names: &'a Names<D>,
    page: &'a Page,
) -> impl Iterator<Item = (&'a Box<str>, &'a (Change<D>, Instant))> {
    let behind = names.range::<str, _>((Bound::Excluded(&*page.after), Bound::Unbounded));
    behind.take_while(|(name, _)| page.covers(name))
}

/// What objects have become.
type Changes = BTreeMap<Box<str>, Option<File>>;

/// Names that only this mount knows, and what they refer to.
pub(crate) type Local<D> = BTreeMap<Box<str>, Target<D>>;

/// The changes of a mount, by folder and name. While there are none, a look-up costs one load.
#[derive(Debug)]
pub(crate) struct Overlay<D> {
    has_any: AtomicBool,
    folders: Mutex<Folders<D>>,
    /// Told of each folder that is noted, and that is noted no more.
    listener: FolderListener,
}

impl<D> Default for Overlay<D> {
    fn default() -> Self {
        Self {
            has_any: AtomicBool::new(false),
            folders: Mutex::default(),
            listener: FolderListener::default(),
        }
    }
}

impl<D: NamedDraft> Overlay<D> {
    fn lock(&self) -> MutexGuard<'_, Folders<D>> {
        lock(&self.folders)
    }

    /// Has `tell` told of folders that may hold no object.
    pub(crate) fn tell_folders(&self, tell: Box<Tell>) {
        self.listener.set(tell);
    }

    /// Notes a change of `name` in the folder `prefix`.
    pub(crate) fn set(&self, prefix: &Arc<str>, name: &str, change: Change<D>, now: Instant) {
        let mut folders = self.lock();
        let is_made = matches!(change, Change::Folder);
        let before = folders.entry(prefix.clone()).or_default().insert(name.into(), (change, now));
        if is_made {
            self.listener.tell(prefix, name, Some(FolderNote::Made));
        } else if before.is_some_and(|(before, _)| before.is_folder()) {
            self.listener.tell(prefix, name, None);
        }
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Makes `name` in the folder `prefix`, with this known fact, refer to the draft that `make` returns, unless it
    /// refers to one already. Of two callers, only one makes a draft.
    pub(crate) fn set_draft(
        &self,
        prefix: &Arc<str>,
        name: &str,
        fact: &Fact<D>,
        make: impl FnOnce() -> Option<Arc<D>>,
    ) -> SetDraft<D> {
        let mut folders = self.lock();
        let known = folders.get(prefix).and_then(|names| names.get(name));
        if let Some(newer) = known.and_then(|known| newer_than(known, fact.at)) {
            match newer {
                Some(Target::Draft(draft)) => return SetDraft::Draft(draft),
                newer if newer.as_ref() != fact.target.as_ref() => return SetDraft::Overtaken,
                _ => {}
            }
        }
        let Some(draft) = make() else { return SetDraft::Nothing };
        let change = (Change::Draft(draft.clone()), Instant::now());
        folders.entry(prefix.clone()).or_default().insert(name.into(), change);
        self.has_any.store(true, Ordering::Relaxed);
        SetDraft::Draft(draft)
    }

    /// Calls `act` for a name with this known fact, unless this mount has changed the name since. The name does not
    /// change meanwhile.
    pub(crate) fn unless_overtaken<T>(
        &self,
        prefix: &str,
        name: &str,
        fact: &Fact<D>,
        act: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if !self.has_any.load(Ordering::Relaxed) {
            return act();
        }
        let folders = self.lock();
        let newer = folders.get(prefix).and_then(|names| newer_than(names.get(name)?, fact.at));
        if newer.is_some_and(|newer| newer != fact.target) { None } else { act() }
    }

    /// What `name` refers to, if it is a draft or a folder of this mount. `None` for a folder that was emptied, or
    /// filled, longer than `ttl` ago: the store may know more.
    pub(crate) fn get(&self, prefix: &str, name: &str, ttl: Duration) -> Option<Target<D>> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        match self.lock().get(prefix)?.get(name)? {
            (Change::Emptied(0), since) if since.elapsed() >= ttl => None,
            (Change::Stored, since) if since.elapsed() < ttl => Some(Target::Directory),
            (change, _) => change.target(),
        }
    }

    /// What this mount has changed `name` to since `at`: nothing, or a target that listings never show (however long
    /// ago), or a version. `None` if it has not changed the name since.
    pub(crate) fn since(&self, prefix: &str, name: &str, at: Instant) -> Option<Option<Target<D>>> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        newer_than(self.lock().get(prefix)?.get(name)?, at)
    }

    /// Whether this mount's last change of `name` has made it this target: nothing, a version, or a draft.
    pub(crate) fn has_made(&self, prefix: &str, name: &str, target: Option<&Target<D>>) -> bool {
        let folders = self.lock();
        match (folders.get(prefix).and_then(|names| names.get(name)), target) {
            (Some((Change::Gone, _)), None) => true,
            (Some((Change::File(made), _)), Some(Target::File(file))) => made.object == file.object,
            (Some((Change::Draft(made), _)), Some(Target::Draft(draft))) => Arc::ptr_eq(made, draft),
            _ => false,
        }
    }

    /// Removes a draft, if `name` still refers to it.
    pub(crate) fn remove_draft(&self, prefix: &str, name: &str, draft: &Arc<D>) {
        if let Some(names) = self.lock().get_mut(prefix)
            && matches!(names.get(name), Some((Change::Draft(known), _)) if Arc::ptr_eq(known, draft))
        {
            names.remove(name);
        }
    }

    /// Replaces the draft of `name` by `change`, if `name` refers to the draft, and `end` ends the draft. Returns
    /// whether it did.
    pub(crate) fn end_draft(
        &self,
        prefix: &Arc<str>,
        name: &str,
        draft: &Arc<D>,
        change: Change<D>,
        now: Instant,
        end: impl FnOnce() -> bool,
    ) -> bool {
        let mut folders = self.lock();
        let known = folders.get_mut(prefix).and_then(|names| names.get_mut(name));
        match known {
            Some(known) if matches!(&known.0, Change::Draft(known) if Arc::ptr_eq(known, draft)) => {
                let has_ended = end();
                if has_ended {
                    *known = (change, now);
                }
                has_ended
            }
            _ => false,
        }
    }

    /// All drafts.
    pub(crate) fn drafts(&self) -> Vec<Arc<D>> {
        let folders = self.lock();
        folders.values().flat_map(BTreeMap::values).filter_map(|(change, _)| change.draft()).collect()
    }

    /// The drafts of the folder `prefix`, or the one with this name.
    pub(crate) fn drafts_of(&self, prefix: &str, name: Option<&str>) -> Vec<Arc<D>> {
        if !self.has_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let folders = self.lock();
        let Some(names) = folders.get(prefix) else { return Vec::new() };
        match name {
            Some(name) => names.get(name).and_then(|(change, _)| change.draft()).into_iter().collect(),
            None => names.values().filter_map(|(change, _)| change.draft()).collect(),
        }
    }

    /// The names that this mount has made since `at`, after the key `after` and up to the key `upto` (unset: the end)
    /// in the folder `prefix`, in order.
    pub(crate) fn made_since(
        &self,
        prefix: &str,
        (after, upto): (&str, Option<&str>),
        at: Instant,
    ) -> Vec<Named<D>> {
        if !self.has_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let folders = self.lock();
        let upto = upto.map_or(Bound::Unbounded, Bound::Included);
        let names = folders.get(prefix).into_iter();
        let within = names.flat_map(|names| names.range::<str, _>((Bound::Excluded(after), upto)));
        let made = within.filter(|(_, (_, since))| *since >= at).filter_map(|(name, known)| {
            Some(Named { name: (**name).to_owned(), target: newer_than(known, at)??, at: known.1 })
        });
        made.collect()
    }

    /// Whether this mount has changed a name in the folder `prefix` lately, or has a draft or a folder there.
    pub(crate) fn has_changes(&self, prefix: &str) -> bool {
        self.has_any.load(Ordering::Relaxed) && self.lock().contains_key(prefix)
    }

    /// Whether the folder `prefix` has a draft, or a folder that was made or emptied here.
    pub(crate) fn has_local_names(&self, prefix: &str) -> bool {
        has_local(&self.lock(), prefix)
    }

    /// The page of the folder `prefix`, as if it had been requested after all changes of objects. Folders of this mount
    /// that it shows are the store's from now on.
    pub(crate) fn apply(&self, prefix: &str, page: Page) -> Page {
        if !self.has_any.load(Ordering::Relaxed) {
            return page;
        }
        let changes = self.changes_since(&mut self.lock(), prefix, &page);
        if changes.is_empty() { page } else { page.changed_by(&changes) }
    }

    /// As [`apply`](Self::apply), where `None` is a page that is unchanged. Besides the drafts and folders of this mount
    /// whose names the page covers, and the folders that were filled since its request. Both are of one moment: a draft that
    /// becomes a version is in one of them.
    pub(crate) fn applied_with_local(&self, prefix: &str, page: &Page) -> (Option<Page>, Local<D>) {
        if !self.has_any.load(Ordering::Relaxed) {
            return (None, Local::new());
        }
        let mut folders = self.lock();
        let changes = self.changes_since(&mut folders, prefix, page);
        let local = folders.get(prefix).into_iter().flat_map(|names| covered(names, page));
        let target = |(change, since): &(Change<D>, Instant)| match change {
            Change::Stored => (*since >= page.at()).then_some(Target::Directory),
            change => change.target(),
        };
        let local = local.filter_map(|(name, known)| Some((name.clone(), target(known)?))).collect();
        drop(folders);
        ((!changes.is_empty()).then(|| page.changed_by(&changes)), local)
    }

    /// What has become of objects of the folder `prefix` since the request of a page that covers them.
    fn changes_since(&self, folders: &mut Folders<D>, prefix: &str, page: &Page) -> Changes {
        let mut changes = Changes::new();
        let Some(names) = folders.get(prefix) else { return changes };
        let mut shown = Vec::new();
        for (name, (change, since)) in covered(names, page) {
            match change {
                Change::Folder | Change::Emptied(0) if *since < page.at() => shown.push(name.clone()),
                Change::Draft(_) | Change::Folder | Change::Emptied(_) | Change::Stored => {}
                // A page that was requested later shows the present state, whoever wrote it. A page that was
                // requested earlier may still come after it.
                Change::File(_) | Change::Gone if *since < page.at() => {}
                Change::File(file) => drop(changes.insert(name.clone(), Some(file.clone()))),
                Change::Gone => drop(changes.insert(name.clone(), None)),
            }
        }
        self.leave_to_store(folders, prefix, page, shown);
        changes
    }

    /// Moves the drafts and folders of this mount below the folder `from` to the folder `to`. Drops the changes of
    /// objects below `from`.
    pub(crate) fn move_folder(&self, from: &str, to: &str) {
        let mut folders = self.lock();
        let moved: Vec<_> = folders.keys().filter(|prefix| prefix.starts_with(from)).cloned().collect();
        for prefix in moved {
            if let Some(mut names) = folders.remove(&prefix) {
                names.retain(|_, (change, _)| change.is_local());
                let now: Arc<str> = Arc::from(format!("{to}{}", &prefix[from.len()..]));
                for (name, (change, _)) in names.iter().filter(|(_, (change, _))| change.is_folder()) {
                    self.listener.tell(&prefix, name, None);
                    let is_made = matches!(change, Change::Folder);
                    self.listener.tell(
                        &now,
                        name,
                        Some(if is_made { FolderNote::Made } else { FolderNote::Emptied }),
                    );
                }
                folders.entry(now).or_default().extend(names);
            }
        }
    }

    /// Notes a change of `name` in the folder `prefix`, unless it is a draft or a folder of this mount.
    pub(crate) fn set_unless_local(&self, prefix: &str, name: &str, change: Change<D>, now: Instant) {
        let mut folders = self.lock();
        let names = names_of(&mut folders, prefix);
        if !names.get(name).is_some_and(|(known, _)| known.is_local()) {
            names.insert(name.into(), (change, now));
        }
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Drops changes of objects that are older than `longest`, the longest time from a LIST to its page. Limits folders
    /// that were emptied to `most_emptied` bytes. Returns how many bytes all changes take.
    pub(crate) fn expire(&self, now: Instant, longest: Duration, most_emptied: usize) -> usize {
        if !self.has_any.load(Ordering::Relaxed) {
            return 0;
        }
        let mut folders = self.lock();
        for names in folders.values_mut() {
            names.retain(|_, (change, at)| change.is_local() || now.saturating_duration_since(*at) < longest);
        }
        self.drop_oldest(&mut folders, most_emptied);
        folders.retain(|_, names| !names.is_empty());
        self.has_any.store(!folders.is_empty(), Ordering::Relaxed);
        Self::bytes(&folders)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use s3mount_object::{ETag, ObjectId};
    use tokio::time::Instant;

    use super::{Change, Overlay};
    use crate::name::{File, Named, NamedDraft, Target};
    use crate::pages::page::Page;

    /// A draft that these tests never make.
    #[derive(Debug, PartialEq, Eq)]
    enum NoDraft {}

    impl NamedDraft for NoDraft {
        fn has_name(&self) -> bool {
            match *self {}
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A page of the folder `d/` that was requested `at`.
    fn page(keys: &[&str], folders: &[&str], at: Instant) -> Page {
        Page::of_names(keys, folders, "old", at)
    }

    fn shown(page: &Page) -> Vec<String> {
        page.named("d/")
            .map(|named: Named<NoDraft>| match named.target {
                Target::Directory => format!("{}/", named.name),
                Target::File(file) => format!("{}={}", named.name, file.object.etag().as_str()),
                Target::Draft(draft) => match *draft {},
            })
            .collect()
    }

    /// A draft that always has its name.
    #[derive(Debug, PartialEq, Eq)]
    struct AnyDraft;

    impl NamedDraft for AnyDraft {
        fn has_name(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_draft_that_becomes_a_version_meanwhile_is_not_left_out() {
        const FILES: usize = 500;
        let (overlay, start) = (Overlay::<AnyDraft>::default(), Instant::now());
        let (prefix, draft) = (Arc::<str>::from("d/"), Arc::new(AnyDraft));
        let names: Vec<String> = (0..FILES).map(|number| format!("{number:03}")).collect();
        names.iter().for_each(|name| overlay.set(&prefix, name, Change::Draft(draft.clone()), start));
        let file = |name: &str| {
            let object = ObjectId::new(&format!("d/{name}"), ETag::new("new"));
            Change::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
        };
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                for name in &names {
                    assert!(overlay.end_draft(&prefix, name, &draft, file(name), start + SECOND, || true));
                }
            });
            let early = page(&[], &[], start);
            loop {
                let is_over = ending.is_finished();
                let (applied, local) = overlay.applied_with_local("d/", &early);
                let versions = applied.map_or(0, |page| page.named::<AnyDraft>("d/").count());
                assert_eq!(versions + local.len(), FILES);
                if is_over {
                    break;
                }
            }
        });
    }

    #[test]
    fn a_listing_that_began_before_a_change_shows_it_and_a_later_one_is_believed() {
        let (overlay, start) = (Overlay::<NoDraft>::default(), Instant::now());
        let prefix: Arc<str> = Arc::from("d/");
        let object = ObjectId::new("d/b", ETag::new("new"));
        let file = File { object, size: 2, mtime: SystemTime::UNIX_EPOCH };
        overlay.set(&prefix, "b", Change::File(file), start + SECOND);
        overlay.set(&prefix, "c", Change::Gone, start + SECOND);
        overlay.set(&prefix, "e", Change::Gone, start + SECOND);
        overlay.set(&prefix, "f", Change::Folder, start + SECOND);
        let early = overlay.apply("d/", page(&["a", "c"], &["e"], start));
        assert_eq!(shown(&early), ["a=old", "b=new"]);
        assert_eq!(early.at(), start, "the change makes it no newer");
        assert_eq!(
            overlay.applied_with_local("d/", &early).1.keys().map(|name| &**name).collect::<Vec<_>>(),
            ["f"]
        );
        assert_eq!(shown(&overlay.apply("elsewhere/", page(&["c"], &[], start))), ["c=old"]);
        // Another client has made c again, and deleted b.
        let late = overlay.apply("d/", page(&["a", "c"], &[], start + 2 * SECOND));
        assert_eq!(shown(&late), ["a=old", "c=old"]);
        assert!(
            matches!(overlay.get("d/", "f", SECOND), Some(Target::Directory))
                && overlay.get("d/", "b", SECOND).is_none()
        );
        // The answer to the earlier request may come last.
        let early = overlay.apply("d/", page(&["a", "c"], &["e"], start));
        assert_eq!(shown(&early), ["a=old", "b=new"]);
    }

    #[test]
    fn changes_go_once_no_listing_can_lack_them_and_folders_stay() {
        let (overlay, start) = (Overlay::<NoDraft>::default(), Instant::now());
        let prefix: Arc<str> = Arc::from("d/");
        overlay.set(&prefix, "a", Change::Gone, start);
        overlay.set(&prefix, "f", Change::Folder, start);
        overlay.expire(start + 10 * SECOND, 10 * SECOND, usize::MAX);
        assert_eq!(shown(&overlay.apply("d/", page(&["a"], &[], start))), ["a=old"]);
        assert!(overlay.has_local_names("d/"));
        overlay.move_folder("d/", "g/h/");
        assert!(!overlay.has_local_names("d/") && overlay.get("g/h/", "f", SECOND).is_some());
    }
}
