//! The operations.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use s3mount_object::{ListObjects, ListPage, ObjectClient};
use s3mount_prefetch::{ObjectReader, Prefetcher};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::control::{self, Control, FsStats};
use crate::gate::Gates;
use crate::hints::{Hint, Hints, Line, Next};
use crate::inode::{Attr, FileKind, InodeNo, InodeTable, Node, ROOT};
use crate::names::{Assembler, Hidden, Named, Target, is_file_name, just_before};
use crate::snapshot::{Known, Limits, Page, Snapshots};
use crate::store::Store;
use crate::{FsConfig, FsError};

/// A bucket as a read-only tree of files.
#[derive(Debug)]
pub struct Filesystem {
    config: FsConfig,
    store: Arc<Store>,
    prefetcher: Prefetcher,
    inodes: InodeTable,
    snapshots: Arc<Snapshots>,
    hidden: Arc<Hidden>,
    gates: Gates,
    hints: Hints,
    runtime: Handle,
    next_handle: AtomicU64,
    files: RwLock<HashMap<u64, OpenFile>>,
    directories: RwLock<HashMap<u64, Arc<OpenDirectory>>>,
}

#[derive(Clone, Debug)]
enum OpenFile {
    Object {
        ino: InodeNo,
        reader: Arc<ObjectReader>,
    },
    /// A file of the daemon's own, as it was when it was opened.
    Snapshot(Bytes),
    /// Where hints are written.
    Hints(Arc<std::sync::Mutex<Line>>),
}

/// Names that an open directory keeps behind what was read last: more than the kernel takes at once,
/// and a little to seek back.
const NAMES_KEPT: usize = 4096;

/// An open directory: its listing as far as it was read.
#[derive(Debug)]
struct OpenDirectory {
    ino: InodeNo,
    prefix: Arc<str>,
    listing: Mutex<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    /// How many names came before those that are kept.
    dropped: usize,
    names: VecDeque<Named>,
    assembler: Assembler,
    /// The last key so far, below the directory.
    after: String,
    next: Option<String>,
    /// The page at `next`, on its way.
    ahead: Option<Ahead>,
    is_complete: bool,
    read_at: Option<Instant>,
}

impl Listing {
    /// Drops what was read long ago. All names have been read when this is called.
    fn drop_read(&mut self) {
        let excess = self.names.len().saturating_sub(NAMES_KEPT);
        self.names.drain(..excess);
        self.dropped += excess;
    }
}

/// A LIST that nobody waits for yet; given up when it is dropped.
#[derive(Debug)]
struct Ahead(JoinHandle<Result<ListPage, FsError>>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle, for the calls that follow.
    pub handle: u64,
    /// Whether reads go around the kernel's page cache.
    pub direct_io: bool,
}

/// Some names of a directory, in order.
#[derive(Debug, Default)]
pub struct DirPage {
    /// (offset of the next name, name, kind, inode number or 0 when it has none yet).
    pub names: Vec<(u64, String, FileKind, InodeNo)>,
}

/// How often it is looked whether hints have made room for others.
const HINT_PAUSE: Duration = Duration::from_millis(2);

/// How often what is not believed any more is let go of.
const TICK: Duration = Duration::from_secs(5);

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
        let limits = Limits {
            ttl: config.metadata_ttl.duration(),
            negative_ttl: config.negative_metadata_ttl,
            bytes: config.metadata_limit_bytes,
        };
        let snapshots = Arc::new(Snapshots::new(limits));
        runtime.spawn(keep_house(Arc::downgrade(&snapshots)));
        Self {
            store: Arc::new(Store::new(client, config.timeout)),
            prefetcher,
            inodes: InodeTable::new(&config.prefix, SystemTime::now()),
            snapshots,
            hidden: Arc::default(),
            gates: Gates::default(),
            hints: Hints::default(),
            runtime: runtime.clone(),
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
        let (target, ttl) = match self.snapshots.get(&prefix, name, Instant::now()) {
            Known::Found(target, ttl) => (target, ttl),
            Known::Absent => return Err(FsError::NotFound),
            Known::Unknown => (self.find(&prefix, name).await?, self.config.metadata_ttl.duration()),
        };
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

    /// Counters since the mount, and gauges.
    pub fn stats(&self) -> FsStats {
        let prefetch = self.prefetcher.stats();
        let budget = self.prefetcher.budget();
        let (hints_queued, hints_ahead) = self.hints.counts();
        FsStats {
            hints_queued,
            hints_ahead,
            hints_refused: self.hints.refused(),
            reads: prefetch.reads,
            waits: prefetch.waits,
            read_bytes: prefetch.read_bytes,
            get_requests: prefetch.requests,
            fetched_bytes: prefetch.fetched_bytes,
            hedges: prefetch.hedges,
            list_requests: self.store.lists(),
            hidden_keys: self.hidden.get(),
            metadata_bytes: self.snapshots.bytes(),
            open_files: self.files.read().unwrap_or_else(PoisonError::into_inner).len(),
            open_folders: self.directories.read().unwrap_or_else(PoisonError::into_inner).len(),
            inodes: self.inodes.len(),
            memory_limit_bytes: budget.limit_bytes(),
            memory_used_bytes: budget.used_bytes(),
            memory_peak_bytes: budget.peak_bytes(),
        }
    }

    /// Asks the store for `name`: one LIST page that begins there. It answers for file and directory,
    /// and for the names behind.
    async fn find(&self, prefix: &Arc<str>, name: &str) -> Result<Target, FsError> {
        if self.snapshots.keeps_nothing() {
            return self.find_alone(prefix, name).await;
        }
        if self.snapshots.on_miss(prefix, Instant::now()) {
            self.runtime.spawn(list_whole(
                self.store.clone(),
                self.snapshots.clone(),
                self.hidden.clone(),
                prefix.clone(),
            ));
        }
        let (_pass, at_once) = self.gates.pass(prefix).await;
        // Who had to wait may have been answered meanwhile.
        if !at_once {
            match self.snapshots.get(prefix, name, Instant::now()) {
                Known::Found(target, _) => return Ok(target),
                Known::Absent => return Err(FsError::NotFound),
                Known::Unknown => {}
            }
        }
        let after = just_before(name);
        let request = ListObjects {
            prefix: prefix.to_string(),
            delimiter: true,
            start_after: (!after.is_empty()).then(|| format!("{prefix}{after}")),
            ..ListObjects::default()
        };
        let listed = self.store.list(request).await?;
        let page = Page::new(prefix, &after, &listed, Instant::now(), &self.hidden);
        let answer = page.answer(prefix, name);
        self.snapshots.note(prefix, page);
        match answer {
            Some(target) => target.ok_or(FsError::NotFound),
            // A page of names lies between the key and where its directory would be.
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks for `name` where nothing else is to be kept.
    async fn find_alone(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let request =
            ListObjects { prefix: format!("{prefix}{name}"), delimiter: true, ..ListObjects::default() };
        let listed = self.store.list(request).await?;
        match Page::new(prefix, "", &listed, Instant::now(), &self.hidden).answer(prefix, name) {
            Some(target) => target.ok_or(FsError::NotFound),
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks for the directory `name`, then for the key: two requests, wherever they lie.
    async fn find_exactly(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let first = |prefix| ListObjects { prefix, max_keys: Some(1), ..ListObjects::default() };
        let below = self.store.list(first(format!("{prefix}{name}/"))).await?;
        if !below.objects.is_empty() {
            return Ok(Target::Directory);
        }
        let mut at = self.store.list(first(format!("{prefix}{name}"))).await?;
        at.next = None;
        let page = Page::new(prefix, "", &at, Instant::now(), &self.hidden);
        page.answer(prefix, name).flatten().ok_or(FsError::NotFound)
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

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `IsDirectory`, `BadHandle`.
    pub fn open(&self, ino: InodeNo) -> Result<Opened, FsError> {
        match Control::of(ino) {
            Some(Control::Folder) => return Err(FsError::IsDirectory),
            Some(Control::Stats) => {
                let json = serde_json::to_vec_pretty(&self.stats()).expect("numbers have a JSON form");
                let handle = self.add_file(OpenFile::Snapshot(json.into()));
                // Its size is not known before, and its pages must not be kept.
                return Ok(Opened { handle, direct_io: true });
            }
            Some(Control::Prefetch) => {
                return Ok(Opened {
                    handle: self.add_file(OpenFile::Hints(Arc::default())),
                    direct_io: true,
                });
            }
            None => {}
        }
        let file = match self.inodes.node(ino) {
            Some(Node::File(file)) => file,
            Some(Node::Directory(_)) => return Err(FsError::IsDirectory),
            None => return Err(FsError::BadHandle(ino)),
        };
        let reader = self.prefetcher.open(&file.object, file.size);
        // One that was open before may lie in the kernel's page cache, and need no request.
        if self.inodes.is_first_open(ino) {
            reader.fetch_if_small();
        }
        let handle = self.add_file(OpenFile::Object { ino, reader });
        let path = file.object.key().strip_prefix(&*self.config.prefix);
        Ok(Opened { handle, direct_io: path.is_some_and(|path| self.config.direct_io.is_match(path)) })
    }

    fn add_file(&self, file: OpenFile) -> u64 {
        let handle = self.next_handle();
        self.files.write().unwrap_or_else(PoisonError::into_inner).insert(handle, file);
        handle
    }

    fn file(&self, handle: u64) -> Option<OpenFile> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    /// Reads up to `len` bytes at `offset` and hands them to `reply`, at once or later; never
    /// waits.
    pub fn read<R>(self: &Arc<Self>, handle: u64, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let (ino, reader) = match self.file(handle) {
            Some(OpenFile::Object { ino, reader }) => (ino, reader),
            Some(OpenFile::Snapshot(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                return reply(Ok(&bytes[start..start.saturating_add(len).min(bytes.len())]));
            }
            Some(OpenFile::Hints(_)) => return reply(Ok(&[])),
            None => return reply(Err(FsError::BadHandle(handle))),
        };
        let fs = self.clone();
        reader.read(offset, len, move |result| match result {
            Ok(bytes) => reply(Ok(bytes)),
            Err(error) => {
                if error.is_stale() {
                    fs.forget_name(ino);
                }
                reply(Err(error.into()));
            }
        });
    }

    /// Forgets where an inode was found: the version is not there any more.
    fn forget_name(&self, ino: InodeNo) {
        if let Some((parent, name)) = self.inodes.place(ino)
            && let Some(Node::Directory(prefix)) = self.inodes.node(parent)
        {
            self.snapshots.forget(&prefix, &name);
        }
    }

    /// Where an inode was found: its directory and its name there.
    pub fn place(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        self.inodes.place(ino)
    }

    /// The inode of an open file.
    pub fn inode_of(&self, handle: u64) -> Option<InodeNo> {
        match self.file(handle)? {
            OpenFile::Object { ino, .. } => Some(ino),
            OpenFile::Snapshot(_) | OpenFile::Hints(_) => None,
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
        let Some(OpenFile::Hints(line)) = self.file(handle) else {
            return Err(FsError::ReadOnly);
        };
        let is_needed = self.hints.push(&mut line.lock().unwrap_or_else(PoisonError::into_inner), data);
        if is_needed {
            self.runtime.spawn(fetch_hints(Arc::downgrade(self)));
        }
        Ok(())
    }

    /// Starts to fetch what a hint names.
    async fn follow(&self, hint: &Hint) -> Result<(), FsError> {
        let (folder, name) = hint.path.rsplit_once('/').unwrap_or(("", &hint.path));
        let slash = if folder.is_empty() { "" } else { "/" };
        let prefix = Arc::from(format!("{}{folder}{slash}", self.config.prefix));
        let target = match self.snapshots.get(&prefix, name, Instant::now()) {
            Known::Found(target, _) => target,
            Known::Absent => return Err(FsError::NotFound),
            Known::Unknown => self.find(&prefix, name).await?,
        };
        let Target::File(file) = target else { return Err(FsError::IsDirectory) };
        let reader = self.prefetcher.open(&file.object, file.size);
        let (offset, len) = hint.range.unwrap_or((0, u64::MAX));
        // A reader whose GETs are all taken, or memory that is short, passes.
        loop {
            match reader.fetch_ahead(offset, len) {
                Some(range) if range.len() > 0 => self.hints.keep(reader, range, Instant::now()),
                Some(_) => {}
                None => {
                    tokio::time::sleep(HINT_PAUSE).await;
                    continue;
                }
            }
            return Ok(());
        }
    }

    /// Closes a file.
    pub fn release(self: &Arc<Self>, handle: u64) {
        // The last hint may lack its end; to other files nothing is written.
        let _ = self.write(handle, b"\n");
        let closed = self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
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
        Ok(Opened { handle, direct_io: false })
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
        // From the beginning again; or to a place that is not kept, by way of the beginning.
        if offset == 0 || first < listing.dropped {
            *listing = Listing::default();
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
        while listing.dropped + listing.names.len() <= first && !listing.is_complete {
            listing.drop_read();
            self.list_more(&open.prefix, &mut listing).await?;
        }
        let names = listing.names.iter().skip(first - listing.dropped).take(max_names);
        for (at, named) in (first as u64 + FIRST_NAME + 1..).zip(names) {
            let kind = match named.target {
                Target::Directory => FileKind::Directory,
                Target::File(_) => FileKind::File,
            };
            page.names.push((at, named.name.clone(), kind, 0));
        }
        Ok(page)
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
        let index = index.and_then(|index| index.checked_sub(listing.dropped));
        let named = index.and_then(|index| listing.names.get(index)).ok_or(FsError::NotFound)?;
        let age = listing.read_at.map_or(Duration::ZERO, |at| at.elapsed());
        let ttl = self.config.metadata_ttl.duration().saturating_sub(age);
        Ok(Entry { attr: self.inodes.give(open.ino, &open.prefix, &named.name, &named.target), ttl })
    }

    async fn list_more(&self, prefix: &Arc<str>, listing: &mut Listing) -> Result<(), FsError> {
        let ahead = match listing.ahead.take() {
            Some(mut ahead) => (&mut ahead.0).await.ok(),
            None => None,
        };
        let page = match ahead {
            Some(page) => page?,
            None => self.store.list(page_of(prefix, listing.next.clone())).await?,
        };
        let now = Instant::now();
        let kept = Page::new(prefix, &listing.after, &page, now, &self.hidden);
        listing.after = kept.upto().unwrap_or_default().to_owned();
        self.snapshots.note(prefix, kept);
        listing.next = page.next.clone();
        listing.is_complete = listing.next.is_none();
        listing.ahead = listing.next.clone().map(|next| {
            let (store, request) = (self.store.clone(), page_of(prefix, Some(next)));
            Ahead(self.runtime.spawn(async move { store.list(request).await }))
        });
        let mut names = listing.assembler.push(prefix, page);
        if **prefix == *self.config.prefix {
            // That name is the daemon's.
            names.retain(|named| named.name != control::NAME);
        }
        listing.read_at = Some(now);
        listing.names.extend(names);
        Ok(())
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

/// The LIST of one page of the directory `prefix`.
fn page_of(prefix: &str, continuation: Option<String>) -> ListObjects {
    ListObjects { prefix: prefix.to_owned(), delimiter: true, continuation, ..ListObjects::default() }
}

/// Lists a directory in which names were missed, as far as there is memory for it.
async fn list_whole(store: Arc<Store>, snapshots: Arc<Snapshots>, hidden: Arc<Hidden>, prefix: Arc<str>) {
    let (mut next, mut after, mut bytes) = (None, String::new(), 0);
    loop {
        let listed = match store.list(page_of(&prefix, next.take())).await {
            Ok(listed) => listed,
            Err(error) => return tracing::debug!(%prefix, %error, "listing ahead failed"),
        };
        next.clone_from(&listed.next);
        let page = Page::new(&prefix, &after, &listed, Instant::now(), &hidden);
        after = page.upto().unwrap_or_default().to_owned();
        bytes += page.bytes();
        snapshots.note(&prefix, page);
        if next.is_none() || bytes > snapshots.most_of_one() {
            return;
        }
    }
}

/// Fetches what hints name, in their order, as far ahead as there is room.
async fn fetch_hints(fs: Weak<Filesystem>) {
    loop {
        let Some(fs) = fs.upgrade() else { return };
        // A quarter of the memory: streams and readers that wait have the rest.
        let room = fs.prefetcher.budget().limit_bytes() / 4;
        match fs.hints.next(room, Instant::now()) {
            Next::Hint(hint) => {
                if let Err(error) = fs.follow(&hint).await {
                    fs.hints.refuse();
                    tracing::debug!(path = &*hint.path, %error, "a hint leads nowhere");
                }
            }
            Next::Later => {
                drop(fs);
                tokio::time::sleep(HINT_PAUSE).await;
            }
            Next::Done => return,
        }
    }
}

/// Lets go of names that are not believed any more.
async fn keep_house(snapshots: Weak<Snapshots>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(snapshots) = snapshots.upgrade() else { return };
        snapshots.expire(Instant::now());
    }
}
