//! The operations.

mod ahead;
mod direct;
mod maps;
mod notices;
mod seam;
mod shown;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use s3mount_memory::trim_heap;
use s3mount_metrics::Registry;
use s3mount_object::{ByteRange, ObjectClient};
use s3mount_prefetch::{ObjectReader, Prefetcher, ReadError};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};

use self::direct::Auto;
use crate::ahead::hints::{HintWriter, Hints};
use crate::ahead::sequence::Order;
use crate::ahead::successors::Successors;
use crate::control::{self, Control};
use crate::directory::open_directory::{Listing, OpenDirectory};
use crate::inode::{Attr, FileKind, InodeNo, InodeTable, Node, ROOT};
use crate::namespace::Metadata;
use crate::namespace::names::{Target, is_file_name};
use crate::page_cache::direct::Direct;
use crate::page_cache::map_table::{MapTable, Watched};
use crate::{FsConfig, FsError, FsMetrics};

/// A bucket as a read-only tree of files.
#[derive(Debug)]
pub struct Filesystem {
    config: FsConfig,
    metrics: Arc<FsMetrics>,
    registry: Registry,
    metadata: Arc<Metadata>,
    prefetcher: Prefetcher,
    inodes: Arc<InodeTable>,
    hints: Hints,
    opens: Order,
    listings: Order,
    successors: Successors<Arc<ObjectReader>>,
    maps: MapTable,
    direct: std::sync::Mutex<Direct>,
    /// Whether a file that is open directly could not be mapped.
    keeps_page_cache: AtomicBool,
    /// Pages that the kernel is to drop.
    refused_pages: (mpsc::Sender<Pages>, Mutex<mpsc::Receiver<Pages>>),
    next_handle: AtomicU64,
    files: RwLock<HashMap<u64, OpenFile>>,
    directories: RwLock<HashMap<u64, Arc<OpenDirectory>>>,
}

/// Bytes of an inode.
type Pages = (InodeNo, ByteRange);

#[derive(Clone, Debug)]
enum OpenFile {
    Object(Arc<OpenObject>),
    /// A file of the daemon's own, as it was when it was opened.
    Snapshot(Bytes),
    /// Where hints are written.
    Hints(Arc<HintWriter>),
}

#[derive(Debug)]
struct OpenObject {
    ino: InodeNo,
    reader: Arc<ObjectReader>,
    /// Whether the inode was opened before.
    is_again: bool,
    was_read: AtomicBool,
    /// Set for large files with `--direct-io auto`.
    auto: Option<Auto>,
    /// Where the last READ ended that filled the page cache, and whether one has gone on from another
    /// since [`watched`](Self::watched) was asked.
    last_end: AtomicU64,
    has_gone_on: AtomicBool,
    /// Set once its READs look like random faults of a map.
    watched: OnceLock<Arc<Watched>>,
}

/// A name and what it stands for, as the kernel is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// How long the kernel may believe that the name stands for this inode.
    pub ttl: Duration,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle, for the calls that follow.
    pub handle: u64,
    /// Whether reads go around the kernel's page cache.
    pub direct_io: bool,
    /// Whether the file is read at random through maps, and a small readahead suits it.
    pub is_random_map: bool,
    /// Whether the pages that the kernel holds of it are good.
    pub keep_cache: bool,
}

/// Some names of a directory, in order.
#[derive(Debug, Default)]
pub struct DirPage {
    /// (offset of the next name, name, kind, inode number or 0 when it has none yet).
    pub names: Vec<(u64, String, FileKind, InodeNo)>,
}

/// How often what is not believed any more is let go of.
const TICK: Duration = Duration::from_secs(5);

/// What an inode takes, in bytes, about: 294 MiB for a million of them and their names' listings.
pub const INODE_BYTES: usize = 200;

/// Memory of names after which it is worth the trouble to give half of it back, in bytes.
const WORTH_TRIMMING: usize = 16 << 20;

/// Files that have to be opened in their order before the next ones are fetched ahead (four by chance
/// are rare), and how many are: at 27 ms a file, that is 2,400 files a second.
const OPENS: (u32, u32) = (4, 64);

/// The same of directories to list: a LIST too many costs little. At 60 ms a LIST, that is 500
/// directories a second.
const LISTINGS: (u32, u32) = (2, 32);

/// Pages to be dropped that wait for it, at most.
const MAX_REFUSED_PAGES: usize = 256;

/// Offset of the first real name: `.` and `..` come before it.
const FIRST_NAME: u64 = 2;

impl Filesystem {
    /// A tree of what `client` holds below the prefix, read through `prefetcher`. What is listed ahead
    /// is listed on `runtime`.
    pub fn new(
        client: Arc<dyn ObjectClient>,
        prefetcher: Prefetcher,
        config: FsConfig,
        runtime: &Handle,
    ) -> Self {
        let inodes = Arc::new(InodeTable::new(&config.prefix, SystemTime::now(), config.inode_limit));
        let metadata = Metadata::new(client, prefetcher.retry_budget(), &config, inodes.clone(), runtime);
        runtime.spawn(keep_house(Arc::downgrade(&metadata), Arc::downgrade(&inodes)));
        let (refused, dropped) = mpsc::channel(MAX_REFUSED_PAGES);
        let (metrics, registry) = (Arc::<FsMetrics>::default(), Registry::default());
        prefetcher.register(&registry);
        // They are brought up to date by `show`: the registry cannot own who owns it.
        registry.add(metrics.clone(), || {});
        Self {
            metrics,
            registry,
            metadata,
            prefetcher,
            inodes,
            hints: Hints::default(),
            opens: Order::new(OPENS.0, OPENS.1),
            listings: Order::new(LISTINGS.0, LISTINGS.1),
            successors: Successors::default(),
            maps: MapTable::default(),
            direct: std::sync::Mutex::default(),
            keeps_page_cache: AtomicBool::new(false),
            refused_pages: (refused, Mutex::new(dropped)),
            next_handle: AtomicU64::new(1),
            files: RwLock::default(),
            directories: RwLock::default(),
            config,
        }
    }

    /// Its settings.
    pub fn config(&self) -> &FsConfig {
        &self.config
    }

    /// Finds `name` in the directory `parent`, and counts its inode as known to the kernel.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, or the store's.
    pub async fn lookup(&self, parent: InodeNo, name: &str) -> Result<Entry, FsError> {
        if Control::of(parent) == Some(Control::Folder) {
            return Control::named(name).map(|file| self.control_entry(file)).ok_or(FsError::NotFound);
        }
        let prefix = self.directory(parent)?;
        if !is_file_name(name) {
            return Err(FsError::NotFound);
        }
        if parent == ROOT && name == control::NAME {
            return Ok(self.control_entry(Control::Folder));
        }
        let (target, ttl) = self.metadata.get(&prefix, name).await?;
        Ok(Entry { attr: self.inodes.give(parent, &prefix, name, &target), ttl })
    }

    /// A file of the daemon's own. These never change their numbers.
    fn control_entry(&self, control: Control) -> Entry {
        Entry { attr: self.control_attr(control), ttl: Duration::from_secs(3600) }
    }

    fn control_attr(&self, control: Control) -> Attr {
        let (ino, kind) = (control.ino(), control.kind());
        Attr { ino, kind, size: 0, mtime: self.inodes.mounted_at(), mode: Some(control.mode()) }
    }

    /// Attributes of an inode. They need no request: a version does not change.
    ///
    /// # Errors
    /// `BadHandle` for an inode that the kernel was not given.
    pub fn getattr(&self, ino: InodeNo) -> Result<Attr, FsError> {
        if let Some(control) = Control::of(ino) {
            return Ok(self.control_attr(control));
        }
        self.inodes.attr(ino).ok_or(FsError::BadHandle(ino))
    }

    /// The kernel gives `count` of an inode's look-ups back.
    pub fn forget(&self, ino: InodeNo, count: u64) {
        self.inodes.forget(ino, count);
    }

    /// Opens a file for reading, by a process that is not known.
    ///
    /// # Errors
    /// As of [`open_by`](Self::open_by).
    pub fn open(self: &Arc<Self>, ino: InodeNo) -> Result<Opened, FsError> {
        self.open_by(ino, 0)
    }

    /// Opens a file for reading, by the process `pid`; 0 where that is not known.
    ///
    /// # Errors
    /// `IsDirectory`, `BadHandle`, or `Outdated`, after which the name is to be looked up again.
    pub fn open_by(self: &Arc<Self>, ino: InodeNo, pid: u32) -> Result<Opened, FsError> {
        match Control::of(ino) {
            Some(Control::Folder) => return Err(FsError::IsDirectory),
            Some(shown @ (Control::Stats | Control::Metrics)) => {
                let handle = self.add_file(OpenFile::Snapshot(self.show(shown).into()));
                // Its size is not known before, and its pages must not be kept.
                return Ok(Opened { handle, direct_io: true, ..Opened::default() });
            }
            Some(Control::Prefetch) => {
                let handle = self.add_file(OpenFile::Hints(Arc::default()));
                return Ok(Opened { handle, direct_io: true, ..Opened::default() });
            }
            None => {}
        }
        let file = match self.inodes.node(ino) {
            Some(Node::File(file)) => file,
            Some(Node::Directory(_)) => return Err(FsError::IsDirectory),
            None => return Err(FsError::BadHandle(ino)),
        };
        if self.inodes.is_outdated(ino) {
            return Err(FsError::Outdated);
        }
        let keep_cache = !self.prefetcher.take_condemned(&file.object);
        let reader = self.prefetcher.open(&file.object, file.size);
        // One that was open before may lie in the kernel's page cache, and need no request.
        let is_again = self.inodes.open(ino);
        if !is_again {
            reader.fetch_if_small();
            self.look_ahead(ino, file.object.key(), false);
        }
        self.expect_successor(ino, &reader);
        let path = file.object.key().strip_prefix(&*self.config.prefix);
        let is_told = path.is_some_and(|path| self.config.direct_io.is_match(path));
        let auto = if is_told { None } else { self.open_auto(ino, &file, pid) };
        let direct_io = is_told || auto.as_ref().is_some_and(|auto| auto.is_direct);
        let watched = self.maps.on_open(ino, file.size, || self.kind(ino));
        let is_random_map = watched.as_ref().is_some_and(|file| file.is_random());
        let open = OpenObject {
            ino,
            reader,
            is_again,
            was_read: AtomicBool::new(false),
            auto,
            last_end: AtomicU64::new(0),
            has_gone_on: AtomicBool::new(false),
            watched: watched.map_or_else(OnceLock::new, OnceLock::from),
        };
        let handle = self.add_file(OpenFile::Object(Arc::new(open)));
        Ok(Opened { handle, direct_io, keep_cache, is_random_map })
    }

    fn add_file(&self, file: OpenFile) -> u64 {
        let handle = self.next_handle();
        self.files.write().unwrap_or_else(PoisonError::into_inner).insert(handle, file);
        handle
    }

    fn file(&self, handle: u64) -> Option<OpenFile> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    fn object(&self, handle: u64) -> Option<Arc<OpenObject>> {
        match self.file(handle)? {
            OpenFile::Object(open) => Some(open),
            OpenFile::Snapshot(_) | OpenFile::Hints(_) => None,
        }
    }

    /// Reads up to `len` bytes at `offset` and hands them to `reply`, at once or later; never
    /// waits.
    pub fn read<R>(self: &Arc<Self>, handle: u64, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let open = match self.file(handle) {
            Some(OpenFile::Object(open)) => open,
            Some(OpenFile::Snapshot(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                return reply(Ok(&bytes[start..start.saturating_add(len).min(bytes.len())]));
            }
            Some(OpenFile::Hints(_)) => return reply(Ok(&[])),
            None => return reply(Err(FsError::BadHandle(handle))),
        };
        self.read_object(&open, offset, len, false, reply);
    }

    /// Reads an object: as its streams have it, or `apart` from them.
    fn read_object<R>(self: &Arc<Self>, open: &OpenObject, offset: u64, len: usize, apart: bool, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        if !open.was_read.load(Ordering::Relaxed)
            && !open.was_read.swap(true, Ordering::Relaxed)
            && open.is_again
        {
            self.look_ahead(open.ino, open.reader.object().key(), true);
        }
        self.on_auto_read(open, len);
        let (fs, ino) = (self.clone(), open.ino);
        let reply = move |result: Result<&[u8], ReadError>| match result {
            Ok(bytes) => reply(Ok(bytes)),
            Err(source) if source.is_stale() => {
                reply(Err(FsError::Stale { place: fs.forget_name(ino), source }));
            }
            Err(error) => reply(Err(error.into())),
        };
        if apart {
            open.reader.read_apart(offset, len, reply);
        } else {
            open.reader.read(offset, len, reply);
            if let Some(asked) = open.reader.take_near_end() {
                let task = seam::fetch_successor(Arc::downgrade(self), open.ino, asked);
                self.metadata.runtime.spawn(task);
            }
        }
    }

    /// Whether an inode can be opened for writing: only the one that takes hints.
    pub fn is_writable(&self, ino: InodeNo) -> bool {
        Control::of(ino) == Some(Control::Prefetch)
    }

    /// Takes hints of what will be read, a path a line.
    ///
    /// # Errors
    /// `ReadOnly` for any other file.
    pub fn write(self: &Arc<Self>, handle: u64, data: &[u8]) -> Result<(), FsError> {
        let Some(OpenFile::Hints(writer)) = self.file(handle) else {
            return Err(FsError::ReadOnly);
        };
        self.take_hints(&writer, data);
        Ok(())
    }

    /// Closes a file.
    pub fn release(self: &Arc<Self>, handle: u64) {
        let closed = self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        if let Some(OpenFile::Object(open)) = &closed {
            self.on_close_large(&open.reader);
            self.on_auto_close(open);
        }
        match &closed {
            // The last hint may lack its end.
            Some(OpenFile::Hints(writer)) => self.take_hints(writer, b"\n"),
            Some(OpenFile::Object(open)) if open.is_again => {
                let was_read = open.was_read.load(Ordering::Relaxed);
                self.hints.on_close_again(&open.reader, was_read);
            }
            _ => {}
        }
        // The reader may go with it, and cancels what it has in flight: outside the lock.
        drop(closed);
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotDirectory`, `BadHandle`.
    pub fn opendir(&self, ino: InodeNo) -> Result<Opened, FsError> {
        // The daemon's own folder has no keys.
        let prefix =
            if Control::of(ino) == Some(Control::Folder) { Arc::from("") } else { self.directory(ino)? };
        let handle = self.next_handle();
        let open = OpenDirectory { ino, prefix, listing: Mutex::default() };
        self.directories.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(open));
        Ok(Opened { handle, ..Opened::default() })
    }

    /// The names of an open directory from `offset` on, as far as they come in one page, and at
    /// most `max_names`. An empty page is the end. Offset 0 lists anew.
    ///
    /// # Errors
    /// `BadHandle`, or the store's.
    pub async fn readdir(&self, handle: u64, offset: u64, max_names: usize) -> Result<DirPage, FsError> {
        let open = self.open_directory(handle)?;
        let mut listing = open.listing.lock().await;
        let first = usize::try_from(offset.saturating_sub(FIRST_NAME)).unwrap_or(usize::MAX);
        if offset == 0 {
            *listing = Listing::default();
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
        // In the root that name is the daemon's.
        let without = (open.ino == ROOT).then_some(control::NAME);
        let names = listing.from(first, &self.metadata, &open.prefix, without).await?.take(max_names);
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
            |after: &str, count| self.metadata.following(&parent, after, count, FileKind::Directory);
        for key in self.listings.on_open(&parent, &key, following) {
            let (directory, is_open) = (format!("{parent}{key}"), |prefix: &str| self.is_open(prefix));
            self.metadata.walks.list_ahead(&self.metadata, &parent, &directory, is_open);
        }
    }

    fn is_open(&self, prefix: &str) -> bool {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        directories.values().any(|open| &*open.prefix == prefix)
    }

    /// The entry of a name that [`readdir`](Self::readdir) has just shown at `offset`, counted as
    /// known to the kernel.
    ///
    /// # Errors
    /// `BadHandle`, or `NotFound` for an offset that no name ends at.
    pub async fn entry_at(&self, handle: u64, offset: u64) -> Result<Entry, FsError> {
        let open = self.open_directory(handle)?;
        let listing = open.listing.lock().await;
        let index = offset.checked_sub(FIRST_NAME + 1).and_then(|index| usize::try_from(index).ok());
        let named = index.and_then(|index| listing.get(index)).ok_or(FsError::NotFound)?;
        let age = listing.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let ttl = self.config.metadata_ttl.duration().saturating_sub(age);
        Ok(Entry { attr: self.inodes.give(open.ino, &open.prefix, &named.name, &named.target), ttl })
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: u64) {
        let closed = self.directories.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        drop(closed);
    }

    fn next_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    fn directory(&self, ino: InodeNo) -> Result<Arc<str>, FsError> {
        match self.inodes.node(ino) {
            Some(Node::Directory(prefix)) => Ok(prefix),
            Some(Node::File(_)) => Err(FsError::NotDirectory),
            None => Err(FsError::BadHandle(ino)),
        }
    }

    fn open_directory(&self, handle: u64) -> Result<Arc<OpenDirectory>, FsError> {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        directories.get(&handle).cloned().ok_or(FsError::BadHandle(handle))
    }
}

/// Lets go of names that are not believed any more, and gives memory back once many are gone.
async fn keep_house(metadata: Weak<Metadata>, inodes: Weak<InodeTable>) {
    let mut most_bytes = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let (Some(metadata), Some(inodes)) = (metadata.upgrade(), inodes.upgrade()) else { return };
        metadata.expire();
        let bytes = metadata.bytes() + inodes.len() * INODE_BYTES;
        most_bytes = most_bytes.max(bytes);
        if most_bytes > WORTH_TRIMMING && bytes < most_bytes / 2 {
            most_bytes = bytes;
            // Some milliseconds, at which no request waits here.
            let _ = tokio::task::spawn_blocking(trim_heap).await;
        }
    }
}
