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
use crate::namespace::names::Target;
use crate::numbers::{InodeNo, ROOT};

/// Directories that have to be listed in their order before the next ones are listed ahead, and how many are:
/// a LIST too many costs little. At 60 ms a LIST, that is 500 directories a second.
const LISTINGS: (u32, u32) = (2, 32);

/// Offset of the first real name: `.` and `..` come before it.
const FIRST_NAME: u64 = 2;

/// Some names of a directory, in order.
#[derive(Debug, Default)]
pub struct DirPage {
    /// (offset of the next name, name, kind, inode number or 0 when it has none yet).
    pub names: Vec<(u64, String, FileKind, InodeNo)>,
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
    /// `NotDirectory`, `BadHandle`.
    pub(crate) fn open(&self, ino: InodeNo) -> Result<u64, FsError> {
        // The daemon's own folder has no keys.
        let is_own = Control::of(ino) == Some(Control::Folder);
        let prefix = if is_own { Arc::from("") } else { self.inodes.prefix(ino)? };
        // In the root that name is the daemon's.
        let without = (ino == ROOT).then_some(control::NAME);
        Ok(self.open.insert(Arc::new(OpenDirectory::new(ino, prefix, without))))
    }

    fn get(&self, handle: u64) -> Result<Arc<OpenDirectory>, FsError> {
        self.open.get(handle).ok_or(FsError::BadHandle(handle))
    }

    /// The names of an open directory from `offset` on, as far as they come in one page, and at most
    /// `max_names`. An empty page is the end. Offset 0 lists anew.
    ///
    /// # Errors
    /// `BadHandle`, or the store's.
    pub(crate) async fn read(&self, handle: u64, offset: u64, max_names: usize) -> Result<DirPage, FsError> {
        let open = self.get(handle)?;
        let mut listing = open.listing.lock().await;
        let first = usize::try_from(offset.saturating_sub(FIRST_NAME)).unwrap_or(usize::MAX);
        if offset == 0 {
            listing.restart();
            self.walk_ahead(&open);
        }
        let mut page = DirPage::default();
        let dots = [(".", open.ino), ("..", self.inodes.parent(open.ino))];
        for (at, (name, ino)) in (1..).zip(dots).skip(usize::try_from(offset.min(FIRST_NAME)).unwrap_or(2)) {
            page.names.push((at, name.to_owned(), FileKind::Directory, ino));
        }
        if Control::of(open.ino).is_some() {
            let files = (FIRST_NAME + 1..).zip(control::FILES).skip(first);
            page.names.extend(files.map(|(at, (name, file))| (at, name.to_owned(), file.kind(), file.ino())));
            return Ok(page);
        }
        let names = listing.from(first, &self.namespace, &self.walks, &open).await?.take(max_names);
        for (at, named) in (first as u64 + FIRST_NAME + 1..).zip(names) {
            let kind = match named.target {
                Target::Directory => FileKind::Directory,
                Target::File(_) => FileKind::File,
            };
            page.names.push((at, named.name.clone(), kind, 0));
        }
        Ok(page)
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

    /// The entry of a name that [`read`](Self::read) has just shown at `offset`, counted as known to the
    /// kernel.
    ///
    /// # Errors
    /// `BadHandle`, or `NotFound` for an offset that no name ends at.
    pub(crate) async fn entry_at(&self, handle: u64, offset: u64) -> Result<Entry, FsError> {
        let open = self.get(handle)?;
        let listing = open.listing.lock().await;
        let index = offset.checked_sub(FIRST_NAME + 1).and_then(|index| usize::try_from(index).ok());
        let named = index.and_then(|index| listing.get(index)).ok_or(FsError::NotFound)?;
        let age = listing.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let ttl = self.namespace.ttl().saturating_sub(age);
        Ok(Entry { attr: self.inodes.give(open.ino, &open.prefix, &named.name, &named.target), ttl })
    }

    /// Closes a directory.
    pub(crate) fn close(&self, handle: u64) {
        drop(self.open.remove(handle));
    }
}
