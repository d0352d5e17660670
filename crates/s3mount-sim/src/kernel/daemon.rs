//! One request, from the kernel to the filesystem and back, as the adapter of s3mount-fuse hands it on.
//!
//! - [`requests`]: what the adapter makes of each request; `opening`: OPENs; `modes`: how it has
//!   opened each inode.

mod modes;
mod opening;
pub(super) mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use s3mount_fs::{Attr, FileHandle, Filesystem, InodeNo, KnownName, ROOT};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinError;
use tokio::time::Instant;

use self::modes::Modes;
use super::common::{KernelConfig, lock};
use super::record::Record;
use crate::draw::Draw;
use crate::watched::Watched;

/// How long after it was killed a caller gets its answer (`interrupt.rs`: the patience, and the time between two looks).
const KILLED_PATIENCE: Duration = Duration::from_millis(150);

/// How long a reader of a version that is gone waits at most until the kernel may drop its name (`adapter/read.rs`).
const STALE_PATIENCE: Duration = Duration::from_millis(200);

/// Who a request is sent for.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) pid: u32,
    /// Says when the process is killed.
    killed: Arc<Watched<bool>>,
}

impl Caller {
    pub(super) fn new(pid: u32, killed: Arc<Watched<bool>>) -> Self {
        Self { pid, killed }
    }

    /// A thread of the kernel's own.
    pub(super) fn kernel() -> Self {
        Self { pid: 0, killed: Arc::default() }
    }

    /// Resolves when the process is killed.
    pub(super) async fn is_killed(&self) {
        self.killed.wait_for(|is_killed| is_killed).await;
    }

    /// The adapter sees that the caller is to end. Never resolves for one that lives.
    async fn is_seen_dead(&self) {
        self.is_killed().await;
        tokio::time::sleep(KILLED_PATIENCE).await;
    }
}

/// Names of a folder that the kernel is to drop, and where to put those that it could not be told of.
pub(super) struct DropNames {
    pub(super) folder: InodeNo,
    pub(super) names: Vec<KnownName>,
    pub(super) done: tokio::sync::oneshot::Sender<()>,
    pub(super) deadline: Instant,
}

impl std::fmt::Debug for DropNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DropNames").field("folder", &self.folder).field("names", &self.names).finish()
    }
}

/// The daemon of a mount, behind its adapter.
#[derive(Debug)]
pub(super) struct Daemon {
    fs: Arc<Filesystem>,
    draw: Option<Arc<Draw>>,
    record: Record,
    is_dead: Watched<bool>,
    /// How many requests of a folder wait for the store (`kernel.rs` of s3mount-fuse).
    held: Mutex<BTreeMap<u64, usize>>,
    was_released: Notify,
    /// Directories and files that are open.
    handles: Mutex<BTreeSet<(bool, u64)>>,
    /// `fuse_conn.no_flush`: FLUSH was answered with `ENOSYS`.
    pub(super) no_flush: AtomicBool,
    /// Names that readers of versions that are gone want to be dropped.
    drops: mpsc::UnboundedSender<DropNames>,
    to_drop: Mutex<Option<mpsc::UnboundedReceiver<DropNames>>>,
    pids: Mutex<BTreeSet<u32>>,
    /// Whether the kernel reads whole files of the disk by itself.
    has_passthrough: bool,
    modes: Modes,
    /// How many files it has opened so.
    passed: AtomicU64,
}

/// A request that waits for the store while its caller holds the lock of a folder.
struct Hold {
    daemon: Arc<Daemon>,
    folder: InodeNo,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = lock(&self.daemon.held);
        let count = held.entry(self.folder.0).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            held.remove(&self.folder.0);
            drop(held);
            self.daemon.was_released.notify_waiters();
        }
    }
}

impl Daemon {
    pub(super) fn new(fs: Arc<Filesystem>, config: &KernelConfig) -> Arc<Self> {
        let (drops, to_drop) = mpsc::unbounded_channel();
        fs.set_readahead(config.readahead_bytes);
        fs.set_passthrough(config.has_passthrough);
        Arc::new(Self {
            fs,
            draw: config.has_pauses.then(|| config.draw.clone()),
            record: Record::new(config.keeps_record),
            is_dead: Watched::new(false),
            held: Mutex::default(),
            was_released: Notify::new(),
            handles: Mutex::default(),
            no_flush: AtomicBool::new(false),
            drops,
            to_drop: Mutex::new(Some(to_drop)),
            pids: Mutex::default(),
            has_passthrough: config.has_passthrough,
            modes: Modes::default(),
            passed: AtomicU64::new(0),
        })
    }

    pub(super) fn fs(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    pub(super) fn open_handles(&self) -> usize {
        lock(&self.handles).len()
    }

    pub(super) fn kill(&self) {
        self.is_dead.set(true);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.get()
    }

    /// The names that have to be dropped before READs are answered. To be taken once.
    pub(super) fn take_drops(&self) -> Option<mpsc::UnboundedReceiver<DropNames>> {
        lock(&self.to_drop).take()
    }

    pub(super) fn note_process(&self, pid: u32, lives: bool) {
        let mut pids = lock(&self.pids);
        if lives {
            pids.insert(pid);
        } else {
            pids.remove(&pid);
        }
    }

    /// Whether two threads are of one process (`are_of_one_process` of `adapter/write.rs`): a writer that is gone counts
    /// as one of the process that closes the file.
    fn are_of_one_process(&self, writer: u32, closer: u32) -> bool {
        let pids = lock(&self.pids);
        writer == closer || !pids.contains(&writer) || !pids.contains(&closer)
    }

    /// The root's attributes.
    pub(super) fn root_attr(&self) -> Attr {
        match self.fs.getattr(ROOT) {
            Ok(attr) => attr,
            Err(error) => panic!("the root has no attributes: {error}"),
        }
    }

    /// Lets others go first.
    pub(super) async fn pause(&self) {
        if let Some(draw) = &self.draw {
            draw.pause().await;
        }
    }

    /// Whether something rare happens.
    pub(super) fn happens(&self, of_thousand: u64) -> bool {
        self.draw.as_ref().is_some_and(|draw| draw.happens(of_thousand))
    }

    /// Resolves when the daemon has died.
    pub(super) async fn died(&self) {
        // It cannot fail, because this holds the sender.
        self.is_dead.wait_for(|is_dead| is_dead).await;
    }

    fn hold(self: &Arc<Self>, folder: InodeNo) -> Hold {
        *lock(&self.held).entry(folder.0).or_default() += 1;
        Hold { daemon: self.clone(), folder }
    }

    pub(super) fn is_held(&self, folder: InodeNo) -> bool {
        lock(&self.held).contains_key(&folder.0)
    }

    /// Resolves when, from now on, the last request of some folder has stopped waiting for the store.
    pub(super) fn was_released(&self) -> tokio::sync::futures::Notified<'_> {
        self.was_released.notified()
    }

    /// Sends a request and waits for its answer. `work` goes on where its caller is killed; `lost` takes what it has
    /// made then.
    async fn request<T: Send + 'static>(
        self: &Arc<Self>,
        caller: &Caller,
        number: usize,
        folder: Option<InodeNo>,
        work: impl Future<Output = Result<T, i32>> + Send + 'static,
        lost: impl FnOnce(&Daemon, T) + Send + 'static,
    ) -> Result<T, i32> {
        self.pause().await;
        if self.is_dead() {
            return Err(libc::ENOTCONN);
        }
        let (answer, answered) = tokio::sync::oneshot::channel();
        let daemon = self.clone();
        let task = tokio::spawn(async move {
            let hold = folder.map(|folder| daemon.hold(folder));
            let result = tokio::select! {
                biased;
                () = daemon.died() => Err(libc::ENOTCONN),
                result = work => result,
            };
            drop(hold);
            if let Err(Ok(made)) = answer.send(result) {
                lost(&daemon, made);
            }
        });
        let result = tokio::select! {
            biased;
            result = answered => match result {
                Ok(result) => result,
                Err(_) => return Err(ended(task.await)),
            },
            () = caller.is_seen_dead() => Err(libc::EINTR),
        };
        self.pause().await;
        self.record.answered(number, result.as_ref().err().copied().unwrap_or(0));
        result
    }

    /// Sends a request for which nobody waits.
    fn in_background(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) {
        let daemon = self.clone();
        // Where the runtime has ended, so has the mount.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                daemon.pause().await;
                if daemon.happens(300) {
                    daemon.pause().await;
                }
                if !daemon.is_dead() {
                    work(&daemon);
                }
            });
        }
    }

    /// Waits until the kernel has dropped a name, or cannot do it in time.
    async fn drop_name(&self, folder: InodeNo, name: KnownName) {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let deadline = Instant::now() + STALE_PATIENCE;
        if self.drops.send(DropNames { folder, names: vec![name], done, deadline }).is_ok() {
            // An error says that the mount has ended.
            drop(is_done.await);
        }
    }

    fn opened(&self, is_dir: bool, handle: FileHandle) {
        lock(&self.handles).insert((is_dir, handle.0));
    }

    fn released(&self, is_dir: bool, handle: FileHandle) {
        lock(&self.handles).remove(&(is_dir, handle.0));
    }

    pub(super) fn sends_flush(&self) -> bool {
        !self.no_flush.load(Ordering::Relaxed)
    }
}

/// A task of the filesystem has ended without an answer: it has panicked, and so does this.
fn ended(result: Result<(), JoinError>) -> i32 {
    match result {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => libc::EIO,
    }
}
