//! Directories: those that are open, and those that are listed ahead of a walk.
//!
//! - [`open_directory`]: an open directory, and its listing as far as it was read;
//! - [`assembler`]: from the pages of a listing to the names that a directory shows;
//! - [`list_ahead`]: the listings ahead of a walk.

pub(crate) mod assembler;
pub(crate) mod list_ahead;
pub(crate) mod open_directory;

use std::sync::Arc;
use std::time::Duration;

use self::list_ahead::Walks;
use self::open_directory::OpenDirectory;
use crate::FsError;
use crate::ahead::sequence::Order;
use crate::attr::{Entry, FileKind};
use crate::control::{self, Control};
use crate::handle_table::HandleTable;
use crate::inode::InodeTable;
use crate::namespace::Namespace;
use crate::numbers::{DirOffset, FileHandle, InodeNo, ROOT};

/// Directories that have to be listed in their order before the next ones are listed ahead, and how many are:
/// a LIST too many costs little. At 60 ms a LIST, that is 500 directories a second.
const LISTINGS: (u32, u32) = (2, 32);

/// Names that come before the first one of the bucket: `.` and `..`.
const DOTS: usize = DirOffset::AFTER_DOTS.0 as usize;

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub kind: FileKind,
    /// The inode that it stands for. Unset until the kernel is given one for it.
    pub ino: Option<InodeNo>,
    /// The place behind it.
    pub next: DirOffset,
}

/// The place behind the name of the number `index`, which counts from 0 and includes `.` and `..`.
fn behind(index: usize) -> DirOffset {
    DirOffset(index as u64 + 1)
}

/// The directories of a mount that are open.
#[derive(Debug)]
pub(crate) struct Directories {
    namespace: Arc<Namespace>,
    inodes: Arc<InodeTable>,
    walks: Arc<Walks>,
    /// Sub-directories that are listed in the order of their names.
    listings: Order,
    open: HandleTable<Arc<OpenDirectory>>,
}

impl Directories {
    pub(crate) fn new(namespace: Arc<Namespace>, inodes: Arc<InodeTable>) -> Self {
        let walks = Arc::new(Walks::new(namespace.requests().clone(), namespace.ttl()));
        let listings = Order::new(LISTINGS.0, LISTINGS.1);
        Self { namespace, inodes, walks, listings, open: HandleTable::default() }
    }

    /// The listings ahead of walks.
    pub(crate) fn walks(&self) -> &Arc<Walks> {
        &self.walks
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
        // The daemon's own folder has no keys.
        let is_own = Control::of(ino) == Some(Control::Folder);
        let prefix = if is_own { Arc::from("") } else { self.inodes.prefix(ino)? };
        // In the root that name is the daemon's.
        let without = (ino == ROOT).then_some(control::NAME);
        Ok(self.open.insert(Arc::new(OpenDirectory::new(ino, prefix, without))))
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<OpenDirectory>, FsError> {
        self.open.get(handle).ok_or(FsError::BadHandle(handle))
    }

    /// The names of an open directory from `offset` on, as far as they come in one page, and at most
    /// `max_names`. An empty page is the end. The first offset lists anew.
    ///
    /// # Errors
    /// `BadHandle`, or the store's.
    pub(crate) async fn read(
        &self,
        handle: FileHandle,
        offset: DirOffset,
        max_names: usize,
    ) -> Result<Vec<DirEntry>, FsError> {
        let open = self.get(handle)?;
        let mut listing = open.listing.lock().await;
        let first = usize::try_from(offset.0).unwrap_or(usize::MAX);
        if offset == DirOffset::START {
            listing.restart();
            self.walk_ahead(&open);
        }
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
            let files = control::FILES.into_iter().map(|(name, file)| (name, file.kind(), Some(file.ino())));
            entries.extend((DOTS..).zip(files).skip(first).map(entry));
            return Ok(entries);
        }
        let names = listing.from(first, &self.namespace, &self.walks, &open).await?.take(max_names);
        let names = names.map(|named| (&*named.name, named.target.kind(), None)).enumerate();
        entries.extend(names.map(|(count, name)| entry((DOTS + first + count, name))));
        Ok(entries)
    }

    /// Has the siblings that follow a directory listed, if they are listed in their order.
    fn walk_ahead(&self, open: &OpenDirectory) {
        let Some((_, name)) = self.inodes.place(open.ino).filter(|_| open.ino != ROOT) else { return };
        let key = format!("{name}/");
        let parent = Arc::from(open.prefix.strip_suffix(&*key).unwrap_or_default());
        let following =
            |after: &str, count| self.namespace.following(&parent, after, count, FileKind::Directory);
        for key in self.listings.on_open(&parent, &key, following) {
            let directory = format!("{parent}{key}");
            self.walks.list_ahead(&parent, &directory, |prefix| self.is_open(prefix));
        }
    }

    fn is_open(&self, prefix: &str) -> bool {
        self.open.any(|open| &*open.prefix == prefix)
    }

    /// The entry of the name that [`read`](Self::read) has just shown before the place `next`, counted as known
    /// to the kernel.
    ///
    /// # Errors
    /// `BadHandle`, or `NotFound` for a place that no name ends at.
    pub(crate) async fn entry_before(&self, handle: FileHandle, next: DirOffset) -> Result<Entry, FsError> {
        let open = self.get(handle)?;
        let listing = open.listing.lock().await;
        let index = usize::try_from(next.0).ok().and_then(|next| next.checked_sub(DOTS + 1));
        let named = index.and_then(|index| listing.get(index)).ok_or(FsError::NotFound)?;
        let age = listing.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let name_ttl = self.namespace.ttl().saturating_sub(age);
        Ok(Entry { attr: self.inodes.give(open.ino, &open.prefix, &named.name, &named.target), name_ttl })
    }

    /// Closes a directory.
    pub(crate) fn close(&self, handle: FileHandle) {
        drop(self.open.remove(handle));
    }
}
