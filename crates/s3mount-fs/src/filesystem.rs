//! The operations that the kernel requests. Each is passed to the part that owns the state it needs.
//!
//! - [`attributes`]: owner, mode and time of files;
//! - [`links`]: symbolic links;
//! - [`modes`]: execute permissions, on mounts that keep no attributes;
//! - [`markers`]: objects for folders;
//! - [`opening`]: opening files for reading;
//! - [`writing`]: creating files, and writing them;
//! - [`closing`]: publishing files that are closed;
//! - [`behind`]: files that a close leaves in the outbox;
//! - [`changing`]: making, removing and renaming names;
//! - [`folders`]: renaming folders;
//! - [`watched`]: streams and events, for users who watch the mount.

mod allocating;
mod appending;
mod attributes;
mod begun;
mod behind;
mod changing;
mod closing;
mod copying;
mod drafting;
mod ending;
mod folders;
mod followed;
mod handing_over;
mod housekeeping;
mod keeping;
mod left_waiting;
mod links;
mod markers;
mod modes;
mod notices;
pub(crate) mod open_file;
pub(crate) mod opening;
mod repeated;
mod shown;
mod warm_cache;
mod watched;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_cache::DiskCache;
use s3mount_object::ByteRange;
use s3mount_prefetch::{Prefetcher, ReadError};
use tokio::runtime::Handle;

use self::housekeeping::keep_house;
use self::open_file::{OpenFile, OpenObject, ReadAt};
pub use self::open_file::{OpenMode, Opened};
use crate::ahead::Ahead;
use crate::attr::{Attr, Entry, FIXED_ATTR_TTL};
use crate::attributes::Attributes;
use crate::behind::Behind;
use crate::control::instruments::Instruments;
use crate::control::{self, Control, Controls};
use crate::directory::{DirEntry, Directories};
use crate::handover::Handover;
use crate::names::Namespace;
use crate::numbers::{DirOffset, FileHandle, InodeNo, ROOT};
use crate::open::handle_table::HandleTable;
use crate::page_cache::PageCache;
use crate::page_cache::direct_io::DirectIo;
use crate::page_cache::map_reads::Answer;
use crate::sync::spawn;
use crate::tree::inode::InodeTable;
use crate::writes::{Writes, Writing};
use crate::{FsConfig, FsError};
use s3mount_names::{ChangeListener, NAME_MAX, is_file_name};

/// How long the kernel may cache the names of the daemon's own files, which never change.
const OWN_NAMES_TTL: Duration = Duration::from_secs(3600);

/// A bucket as a tree of files.
#[derive(Debug)]
pub struct Filesystem {
    config: FsConfig,
    namespace: Arc<Namespace>,
    inodes: Arc<InodeTable>,
    prefetcher: Prefetcher,
    files: HandleTable<OpenFile>,
    directories: Directories,
    ahead: Ahead,
    page_cache: PageCache,
    attributes: Attributes,
    writing: Writing,
    instruments: Instruments,
    /// Unset where no other daemon is to take over.
    handover: Option<Arc<Handover>>,
}

impl Filesystem {
    /// Shows the objects of `bucket` below the prefix. Their bytes are read through `prefetcher`. Background
    /// work runs on `runtime`.
    pub fn new(
        bucket: impl Into<Bucket>,
        prefetcher: Prefetcher,
        config: FsConfig,
        runtime: &Handle,
    ) -> Self {
        let inodes = Arc::new(InodeTable::new(&config.prefix, config.mounted_at, config.inode_limit));
        if config.is_told {
            inodes.tell_by_name();
        }
        let names = prefetcher.disk().filter(|_| config.keeps_listings).and_then(DiskCache::names);
        let (root, outdated) = (config.prefix.clone(), inodes.clone());
        let listener = ChangeListener::new(move |prefix, names| outdated.outdate(&root, prefix, names));
        let namespace = Namespace::new(bucket.into(), &config.names(), names, listener, runtime);
        let controls = Controls {
            has_memory: prefetcher.budget().is_adjustable(),
            has_changes: config.is_told,
            has_pending: false,
        };
        let directories = Directories::new(namespace.clone(), inodes.clone(), controls);
        let walks = Arc::downgrade(directories.walks());
        let writing = Writing::default();
        let (names, table) = (Arc::downgrade(&namespace), Arc::downgrade(&inodes));
        spawn(runtime, keep_house(names, walks, table, Arc::downgrade(&writing.logs)));
        let instruments = Instruments::new();
        prefetcher.register(&instruments.registry);
        let direct_io = DirectIo::new(namespace.clone(), inodes.clone(), config.direct_auto);
        Self {
            ahead: Ahead::new(&namespace, &inodes, &prefetcher),
            page_cache: PageCache::new(direct_io, inodes.clone()),
            config,
            namespace,
            inodes,
            prefetcher,
            files: HandleTable::default(),
            directories,
            attributes: Attributes::default(),
            writing,
            instruments,
            handover: None,
        }
    }

    /// Lets programs write objects. The settings must allow that, too.
    #[must_use]
    pub fn with_writes(mut self, writes: Writes) -> Self {
        self.writing.behind = writes.outbox.clone().map(|(outbox, family)| {
            self.directories.add_pending();
            writes.writer.bucket().join_family(family);
            Arc::new(Behind::new(outbox, family))
        });
        self.writing.writes = Some(writes);
        self.join_family();
        self
    }

    /// The settings.
    pub fn config(&self) -> &FsConfig {
        &self.config
    }

    /// Finds `name` in the directory `parent`. The kernel knows its inode from now on.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, or an error of the store.
    pub async fn lookup(&self, parent: InodeNo, name: &str) -> Result<Entry, FsError> {
        if Control::of(parent) == Some(Control::Folder) {
            let file = Control::named(name).filter(|file| self.directories.controls().has(*file));
            return file.map(|file| self.control_entry(file)).ok_or(FsError::NotFound);
        }
        let mut prefix = self.inodes.prefix(parent)?;
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        if !is_file_name(name) {
            return Err(FsError::NotFound);
        }
        if parent == ROOT && name == control::NAME {
            return Ok(self.control_entry(Control::Folder));
        }
        loop {
            let found = self.look_up_below((parent, &prefix), name).await;
            let is_an_answer = matches!(found, Ok(_) | Err(FsError::NotFound));
            if !is_an_answer || !self.inodes.has_moved(parent, &prefix) {
                return found;
            }
            // The look-up used a prefix that the directory has no longer.
            if let Ok(entry) = found {
                self.forget(entry.attr.ino, 1);
            }
            prefix = self.inodes.prefix(parent)?;
        }
    }

    /// The entry of `name` in a directory that has this prefix.
    async fn look_up_below(
        &self,
        (parent, prefix): (InodeNo, &Arc<str>),
        name: &str,
    ) -> Result<Entry, FsError> {
        self.before_look_up(prefix, name).await;
        loop {
            let changes = self.namespace.changes();
            let fact = self.namespace.ask(prefix, name).await?;
            let target = fact.target.as_ref().ok_or(FsError::NotFound)?;
            let is_known = self.ask_attr(parent, prefix, name, target).await?;
            let name_ttl = if is_known { self.namespace.name_ttl(fact.left) } else { Duration::ZERO };
            let look_up = || self.inodes.look_up(parent, prefix, name, target);
            let forget = |attr: Attr| self.inodes.forget(attr.ino, 1);
            if let Some(attr) = self.namespace.give((prefix, name), &fact, changes, look_up, forget) {
                if self.handover.is_some() {
                    self.inodes.note_recent(attr.ino);
                }
                return Ok(Entry { attr, name_ttl });
            }
            // A program of this mount has begun or ended writing the file, or a listing shows a change.
            tokio::task::yield_now().await;
        }
    }

    /// The entry of one of the daemon's own files. Such a file never changes its number.
    fn control_entry(&self, control: Control) -> Entry {
        Entry { attr: self.control_attr(control), name_ttl: OWN_NAMES_TTL }
    }

    fn control_attr(&self, control: Control) -> Attr {
        let (ino, kind) = (control.ino(), control.kind());
        let (mtime, mode) = (self.inodes.mounted_at(), Some(control.mode()));
        let uid = control.is_private().then_some(self.config.mounted_by);
        Attr { mode, uid, ..Attr::new(ino, kind, (0, mtime), FIXED_ATTR_TTL) }
    }

    /// The attributes of an inode. They cost no request, because a version does not change.
    ///
    /// # Errors
    /// `UnknownInode` for an inode that the kernel was not given.
    pub fn getattr(&self, ino: InodeNo) -> Result<Attr, FsError> {
        if let Some(control) = Control::of(ino) {
            return Ok(self.control_attr(control));
        }
        self.inodes.attr(ino).ok_or(FsError::UnknownInode(ino))
    }

    /// Drops `count` of the look-ups by which the kernel knows an inode.
    pub fn forget(&self, ino: InodeNo, count: u64) {
        self.inodes.forget(ino, count);
    }

    /// Reads up to `len` bytes at `offset` and passes them to `reply`, now or later. Never waits.
    pub fn read<R>(self: &Arc<Self>, handle: FileHandle, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let open = match self.files.get(handle) {
            Some(OpenFile::Object(open)) if open.was_written() => {
                let read = ReadAt::new(handle, offset, len);
                return self.read_followed((open.ino, None), &open.slot, read, reply);
            }
            Some(OpenFile::Object(open)) => open,
            Some(OpenFile::Snapshot(bytes) | OpenFile::Settable(_, bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                return reply(Ok(&bytes[start..start.saturating_add(len).min(bytes.len())]));
            }
            Some(OpenFile::Events(listener)) => return reply(Ok(&self.events(&listener, len))),
            Some(OpenFile::Hints(_) | OpenFile::Keep(_)) => return reply(Ok(&[])),
            Some(OpenFile::Lost(_)) => return reply(Err(FsError::LostDaemon)),
            Some(OpenFile::Draft(open)) => {
                let read = ReadAt::new(handle, offset, len);
                return self.read_followed((open.ino, Some(&open.file)), &open.slot, read, reply);
            }
            None => return reply(Err(FsError::BadHandle(handle))),
        };
        self.read_object(&open, ReadAt::new(handle, offset, len), false, reply);
    }

    /// Reads an object. A read that is `apart` does not touch the object's streams.
    fn read_object<R>(self: &Arc<Self>, open: &OpenObject, read: ReadAt, apart: bool, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        if open.note_read() && open.was_opened_before {
            self.ahead.on_first_read_again(open.ino, open.reader.object().key());
        }
        self.page_cache.on_read(&open.pages, &open.reader, read.len);
        if open.was_renamed() {
            return self.read_followed((open.ino, None), &open.slot, read, reply);
        }
        let (fs, ReadAt { offset, len, .. }) = (self.clone(), read);
        let reply = move |result: Result<&[u8], ReadError>| match result {
            Ok(bytes) => reply(Ok(bytes)),
            Err(source) if source.is_stale() => fs.after_stale(read, source, reply),
            Err(error) => reply(Err(error.into())),
        };
        let reader = &open.reader;
        if apart {
            reader.read_apart(offset, len, reply);
        } else {
            reader.read(offset, len, reply);
            self.ahead.on_read(open.ino, reader);
        }
    }

    /// Sets how many bytes the kernel reads ahead, or around a page fault, of a file on this mount.
    pub fn set_readahead(&self, bytes: u64) {
        self.page_cache.maps().set_readahead(bytes);
    }

    /// Opens all files through the page cache from now on, except those that the settings name. This kernel
    /// can't map a file that is open around the page cache.
    pub fn keep_page_cache(&self) {
        self.page_cache.keep();
    }

    /// Sets whether the kernel reads files by itself that lie whole on a disk. These are then not prefetched.
    pub fn set_passthrough(&self, is_on: bool) {
        self.ahead.set_passthrough(is_on);
    }

    /// Reads as [`read`](Self::read) does, for a READ by which the kernel fills its page cache. If the READ
    /// is ahead of its caller, or around a page fault, the answer may be [`FsError::Refused`]. Then the
    /// kernel reads the pages that its caller wants, and the caller never sees the error.
    pub fn fill<R>(self: &Arc<Self>, handle: FileHandle, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let open = match self.files.get(handle) {
            Some(OpenFile::Object(open)) if !open.was_written() => open,
            _ => return self.fill_written(ReadAt::new(handle, offset, len), reply),
        };
        let answer = self.page_cache.on_fill(&open.pages, &open.reader, offset, len);
        match answer {
            Answer::Refuse => reply(Err(FsError::Refused)),
            Answer::Serve | Answer::Apart => {
                self.read_object(&open, ReadAt::new(handle, offset, len), answer == Answer::Apart, reply);
            }
        }
    }

    /// Waits until refused pages slow a reader down. Returns the inode and the bytes that the kernel has to drop from
    /// its page cache. Only one caller may wait at a time.
    pub async fn refused_pages(&self) -> (InodeNo, ByteRange) {
        self.page_cache.refused_pages().await
    }

    /// Whether an inode can be opened for writing. Only those of the daemon's own files can that take something.
    pub fn is_writable(&self, ino: InodeNo) -> bool {
        matches!(
            Control::of(ino),
            Some(Control::Prefetch | Control::Keep | Control::Memory | Control::Pending)
        )
    }

    /// Whether a file is open under this handle.
    pub fn has_open(&self, handle: FileHandle) -> bool {
        self.files.get(handle).is_some()
    }

    /// Closes a file.
    pub fn release(self: &Arc<Self>, handle: FileHandle) {
        // This precedes the removal, so a caller that sees no open file also sees what the close has taught.
        if let Some(OpenFile::Object(open)) = self.files.get(handle) {
            self.note_close_again(&open);
        }
        let closed = self.files.remove(handle);
        if let Some(file) = &closed {
            self.note_closed(handle, file);
        }
        if let Some(OpenFile::Object(open)) = &closed {
            self.ahead.on_close(&open.reader);
            self.page_cache.on_close(&open.pages, open.reader.size());
        }
        match &closed {
            Some(OpenFile::Draft(open)) => self.release_draft(open),
            Some(OpenFile::Object(open)) if open.was_written() => self.release_follower(open.ino),
            // The last hint may have no newline.
            Some(OpenFile::Hints(writer)) => self.ahead.take_hints(writer, b"\n"),
            _ => {}
        }
        // This may drop the reader, which cancels its GETs in flight: hold no lock here.
        drop(closed);
    }

    /// Learns from a file that was opened before whether the kernel still had its pages.
    fn note_close_again(&self, open: &OpenObject) {
        // A file that the kernel reads by itself gets no READs.
        if open.was_opened_before && !open.is_passthrough && !open.was_written() {
            self.ahead.on_close_again(&open.reader, open.was_read());
        }
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotDirectory`, `UnknownInode`.
    pub fn opendir(&self, ino: InodeNo) -> Result<FileHandle, FsError> {
        self.directories.open(ino)
    }

    /// The names of an open directory from `offset` on: those listed so far, at least one, and at most `max_names`. No
    /// names mark the end. [`DirOffset::START`] lists the directory anew.
    ///
    /// # Errors
    /// `BadHandle`, or an error of the store.
    pub async fn readdir(
        &self,
        handle: FileHandle,
        offset: DirOffset,
        max_names: usize,
    ) -> Result<Vec<DirEntry>, FsError> {
        self.before_listing(handle, offset).await;
        let mut names = self.directories.read(handle, offset, max_names).await?;
        self.ask_kinds(handle, &mut names).await;
        Ok(names)
    }

    /// The entry of the name before the place `next`, which [`readdir`](Self::readdir) has just returned. The kernel
    /// knows its inode from now on.
    ///
    /// # Errors
    /// `BadHandle`, or `NotFound` if no name lies before this place, or the name is gone.
    pub async fn entry_before(&self, handle: FileHandle, next: DirOffset) -> Result<Entry, FsError> {
        let mut entry = self.directories.entry_before(handle, next).await?;
        if self.attributes.kept.is_some() && !self.inodes.has_found(entry.attr.ino) {
            // The kernel has to look the name up.
            entry.name_ttl = Duration::ZERO;
        }
        Ok(entry)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: FileHandle) {
        self.directories.close(handle);
    }
}
