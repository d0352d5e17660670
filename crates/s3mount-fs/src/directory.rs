//! Open directories, and directories that are listed ahead of a walk.
//!
//! - [`open_directory`]: one open directory, and its listing as far as it was read;
//! - [`assembler`]: turns the pages of a listing into the names that a directory shows;
//! - [`list_ahead`]: directories that are listed ahead of a walk.

pub(crate) mod assembler;
pub(crate) mod list_ahead;
pub(crate) mod open_directory;

use std::sync::Arc;
use std::time::Duration;

use self::list_ahead::Walks;
use self::open_directory::{Listing, OpenDirectory};
use crate::FsError;
use crate::ahead::sequence::SequenceDetector;
use crate::attr::{Attr, Entry, FileKind};
use crate::control::{self, Control, Controls};
use crate::handover::Handover;
use crate::handover::record::OpenFolderRecord;
use crate::names::Target;
use crate::names::{Fact, Namespace};
use crate::numbers::{DirOffset, FileHandle, InodeNo, ROOT};
use crate::open::handle_table::HandleTable;
use crate::tree::inode::InodeTable;
use s3mount_names::NameKind;

/// After this many directories that were listed in the order of their names, this many of the next ones are listed
/// ahead. The first number is small because a needless LIST costs little. At 60 ms a LIST, the second is enough for 500
/// directories a second.
const LISTINGS: (u32, u32) = (2, 32);

/// The most times that a listing begins anew because newer answers show that names are gone, and leave others in doubt.
const MOST_RESTARTS: u32 = 3;

/// The most bytes of names in the notes of an open directory. An answer has no more than 32 KiB.
const MOST_NOTED: usize = 64 << 10;

/// How many names come before the first name of the bucket: `.` and `..`.
const DOTS: usize = DirOffset::AFTER_DOTS.0 as usize;

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: String,
    /// What the name refers to.
    pub kind: FileKind,
    /// Its inode. Unset until the kernel gets one for this name.
    pub ino: Option<InodeNo>,
    /// The place after the name.
    pub next: DirOffset,
}

/// The place after the name with the number `index`. Numbers begin with 0, which is `.`.
fn behind(index: usize) -> DirOffset {
    DirOffset(index as u64 + 1)
}

/// The directories of a mount that are open.
#[derive(Debug)]
pub(crate) struct Directories {
    namespace: Arc<Namespace>,
    inodes: Arc<InodeTable>,
    walks: Arc<Walks>,
    /// Subdirectories that are listed in the order of their names.
    sequences: SequenceDetector,
    open: HandleTable<Arc<OpenDirectory>>,
    /// Unset where no other daemon is to take over.
    handover: Option<Arc<Handover>>,
    /// Which files of the daemon's own are there.
    controls: Controls,
}

impl Directories {
    pub(crate) fn new(namespace: Arc<Namespace>, inodes: Arc<InodeTable>, controls: Controls) -> Self {
        let walks = Arc::new(Walks::new(namespace.requests().clone(), namespace.ttl()));
        let sequences = SequenceDetector::new(LISTINGS.0, LISTINGS.1);
        Self { namespace, inodes, walks, sequences, open: HandleTable::default(), handover: None, controls }
    }

    /// The listings ahead of walks.
    pub(crate) fn walks(&self) -> &Arc<Walks> {
        &self.walks
    }

    /// Shows the file of what waits in the outbox.
    pub(crate) fn add_pending(&mut self) {
        self.controls.has_pending = true;
    }

    /// Which files of the daemon's own are there.
    pub(crate) fn controls(&self) -> Controls {
        self.controls
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotDirectory`, `UnknownInode`.
    pub(crate) fn open(&self, ino: InodeNo) -> Result<FileHandle, FsError> {
        let handle = self.open.insert(Arc::new(self.opened(ino)?));
        self.note(handle, &OpenFolderRecord::new(ino));
        Ok(handle)
    }

    /// A directory of which nothing was read.
    fn opened(&self, ino: InodeNo) -> Result<OpenDirectory, FsError> {
        // No keys lie below the daemon's own folder.
        let is_own = Control::of(ino) == Some(Control::Folder);
        let prefix = if is_own { Arc::from("") } else { self.inodes.prefix(ino)? };
        // In the root, this name is reserved for the daemon.
        let without = (ino == ROOT).then_some(control::NAME);
        Ok(OpenDirectory::new(ino, prefix, without))
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<OpenDirectory>, FsError> {
        self.open.get(handle).ok_or(FsError::BadHandle(handle))
    }

    /// Takes notes of open directories from now on.
    pub(crate) fn hand_over(&mut self, handover: Arc<Handover>) {
        self.open.begin_at(handover.first_handle());
        self.handover = Some(handover);
    }

    fn note(&self, handle: FileHandle, record: &OpenFolderRecord) {
        if let Some(handover) = &self.handover {
            let ino = record.ino;
            handover.set_open_folder(handle, record);
            self.inodes.record(ino);
        }
    }

    /// Notes that the kernel is about to get the names of an open directory before the place `next`.
    pub(crate) fn note_listed(&self, handle: FileHandle, next: DirOffset) {
        let Some(open) = self.open.get(handle) else { return };
        let read = usize::try_from(next.0).unwrap_or(usize::MAX).saturating_sub(DOTS);
        // Another reader of the same handle may have it.
        let record = open.listing.try_lock().ok().and_then(|listing| listing.record(open.ino, read));
        let bytes = |record: &OpenFolderRecord| {
            record.owed.iter().chain(&record.given).map(String::len).sum::<usize>()
        };
        // Else the next daemon lists the directory from its beginning, and counts.
        let record = record.filter(|record| bytes(record) < MOST_NOTED);
        let record = record.unwrap_or_else(|| OpenFolderRecord::new(open.ino));
        self.note(handle, &record);
    }

    /// Opens a directory again that a daemon before had open.
    pub(crate) fn restore(&self, handle: FileHandle, record: &OpenFolderRecord) {
        // The kernel has a directory that is not known any more only if its record could not be kept.
        if let Ok(open) = self.opened(record.ino) {
            self.open.insert_at(handle, Arc::new(open.with(Listing::behind(record))));
        }
    }

    /// The prefix of an open directory.
    pub(crate) fn prefix(&self, handle: FileHandle) -> Option<Arc<str>> {
        self.inodes.prefix(self.open.get(handle)?.ino).ok()
    }

    /// The names of an open directory from `offset` on: those listed so far, at least one, and at most `max_names`. No
    /// names mark the end. The first offset lists the directory anew.
    ///
    /// # Errors
    /// `BadHandle`, or an error of the store.
    pub(crate) async fn read(
        &self,
        handle: FileHandle,
        offset: DirOffset,
        max_names: usize,
    ) -> Result<Vec<DirEntry>, FsError> {
        let open = self.get(handle)?;
        let mut listing = open.listing.lock().await;
        let first = usize::try_from(offset.0).unwrap_or(usize::MAX);
        // A directory that was renamed has its names below another prefix, in the same order.
        let has_moved = || self.inodes.prefix(open.ino).is_ok_and(|prefix| open.has_moved(&prefix));
        let is_moved = has_moved();
        if offset == DirOffset::START {
            listing.restart();
            self.walk_ahead(&open);
        } else if is_moved {
            listing.go_on_anew(first.saturating_sub(DOTS));
        }
        listing.note_asked(first.saturating_sub(DOTS));
        let dots = [(".", open.ino), ("..", self.inodes.parent(open.ino))];
        let entry = |(index, (name, kind, ino)): (usize, (&str, FileKind, Option<InodeNo>))| DirEntry {
            name: name.to_owned(),
            kind,
            ino,
            next: behind(index),
        };
        let dots = dots.into_iter().map(|(name, ino)| (name, FileKind::Directory, Some(ino)));
        let mut entries: Vec<_> = (0..).zip(dots).skip(first).map(entry).collect();
        let first = first.saturating_sub(DOTS);
        if Control::of(open.ino).is_some() {
            let files = control::FILES.into_iter().filter(|(_, file)| self.controls.has(*file));
            let files = files.map(|(name, file)| (name, file.kind(), Some(file.ino())));
            entries.extend((DOTS..).zip(files).skip(first).map(entry));
            return Ok(entries);
        }
        let (mut first, mut restarts) = (first, 0);
        loop {
            listing.list_upto(first, &self.namespace, &self.walks, &open).await?;
            let count = listing.renew(first, max_names, &self.namespace, &open);
            // The listing may lack names that were moved meanwhile.
            if has_moved() {
                listing.go_on_anew(first);
                continue;
            }
            // A program that has read no name yet can be shown the present names.
            if first == 0 && listing.is_in_doubt() && restarts < MOST_RESTARTS {
                listing.restart();
                restarts += 1;
                continue;
            }
            let names = listing.from(first, count);
            entries.extend(names.map(|(index, named)| {
                entry((DOTS + index, (&*named.name, named.target.kind().into(), None)))
            }));
            // An answer without names marks the end.
            if count == 0 || !entries.is_empty() {
                return Ok(entries);
            }
            first += count;
        }
    }

    /// Starts listing the next siblings of a directory, if siblings are opened in the order of their names.
    fn walk_ahead(&self, open: &OpenDirectory) {
        let Some((_, name)) = self.inodes.parent_and_name(open.ino).filter(|_| open.ino != ROOT) else {
            return;
        };
        let key = format!("{name}/");
        let parent = Arc::from(open.prefix().strip_suffix(&*key).unwrap_or_default());
        let following =
            |after: &str, count| self.namespace.following(&parent, after, count, NameKind::Directory);
        self.sequences.on_open(&parent, &key, following, |next| {
            for key in next {
                let directory = format!("{parent}{key}");
                self.walks.list_ahead(&parent, &directory, |prefix| self.is_open(prefix));
            }
        });
    }

    fn is_open(&self, prefix: &str) -> bool {
        self.open.any(|open| *open.prefix() == *prefix)
    }

    /// The entry of the name before the place `next`, which [`read`](Self::read) has just returned. The kernel knows
    /// its inode from now on.
    ///
    /// # Errors
    /// `BadHandle`, or `NotFound` if no name lies before this place, or the name is gone.
    pub(crate) async fn entry_before(&self, handle: FileHandle, next: DirOffset) -> Result<Entry, FsError> {
        let open = self.get(handle)?;
        let listing = open.listing.lock().await;
        let index = usize::try_from(next.0).ok().and_then(|next| next.checked_sub(DOTS + 1));
        let index = index.ok_or(FsError::NotFound)?;
        let named = listing.get(index).ok_or(FsError::NotFound)?;
        let is_believed = listing.is_believed(index) && !matches!(named.target, Target::Draft(_));
        let age = named.at.elapsed();
        let left = if is_believed { self.namespace.ttl().saturating_sub(age) } else { Duration::ZERO };
        let prefix = self.inodes.prefix(open.ino).unwrap_or_else(|_| open.prefix());
        let mut fact = Fact { target: Some(named.target.clone()), at: named.at, left };
        let mut changes = listing.changes();
        loop {
            let target = fact.target.as_ref().ok_or(FsError::NotFound)?;
            let look_up = || self.inodes.look_up(open.ino, &prefix, &named.name, target);
            let forget = |attr: Attr| self.inodes.forget(attr.ino, 1);
            let place = (&*prefix, &*named.name);
            if let Some(attr) = self.namespace.give(place, &fact, changes, look_up, forget) {
                return Ok(Entry { attr, name_ttl: self.namespace.name_ttl(fact.left) });
            }
            // A program of this mount has begun or ended writing the file, or another listing shows a change.
            tokio::task::yield_now().await;
            changes = self.namespace.changes();
            fact = self.namespace.ask(&prefix, &named.name).await?;
        }
    }

    /// The target of the name before the place `next`, and its directory.
    pub(crate) async fn target_before(
        &self,
        handle: FileHandle,
        next: DirOffset,
    ) -> Option<(InodeNo, Target)> {
        let open = self.open.get(handle)?;
        let listing = open.listing.lock().await;
        let index = usize::try_from(next.0).ok()?.checked_sub(DOTS + 1)?;
        Some((open.ino, listing.get(index)?.target.clone()))
    }

    /// Closes a directory.
    pub(crate) fn close(&self, handle: FileHandle) {
        let closed = self.open.remove(handle);
        if let (Some(handover), Some(open)) = (&self.handover, &closed) {
            handover.set_closed_folder(handle, open.ino);
            self.inodes.record(open.ino);
        }
    }
}
