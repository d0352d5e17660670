//! One request, from the kernel to the filesystem and back, as the adapter of s3mount-fuse hands it on.
//!
//! - [`requests`]: what the adapter makes of each request; `opening`: OPENs; `naming`: names; `listing`: listings;
//! - [`service`]: the filesystem that serves the mount now; `modes`: how it has opened each inode.

mod listing;
mod modes;
mod naming;
mod opening;
pub(super) mod requests;
pub(super) mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use s3mount_fs::{Attr, FileHandle, Filesystem, InodeNo, KnownName, ROOT};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinError;
use tokio::time::Instant;

use self::modes::Backings;
use self::service::Service;
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

/// The daemon of a mount, behind its adapter: one after another.
#[derive(Debug)]
pub(super) struct Daemon {
    service: Mutex<Arc<Service>>,
    /// How many daemons have served the mount, and whether the last one has died for good.
    life: Watched<(u64, bool)>,
    draw: Option<Arc<Draw>>,
    record: Record,
    /// How many requests of a folder wait for the store (`kernel.rs` of s3mount-fuse).
    held: Mutex<BTreeMap<u64, usize>>,
    was_released: Notify,
    /// Directories and files that the kernel has open.
    handles: Mutex<BTreeSet<(bool, u64)>>,
    /// OPENs and OPENDIRs that came again, for files and directories: the daemon before may have opened each once more.
    leaks: [AtomicU64; 2],
    /// How many requests have a number.
    numbered: AtomicU64,
    /// How many requests were handed on.
    begun: Watched<u64>,
    /// `fuse_conn.no_flush`: FLUSH was answered with `ENOSYS`.
    pub(super) no_flush: AtomicBool,
    /// Names that readers of versions that are gone want to be dropped.
    drops: mpsc::UnboundedSender<DropNames>,
    to_drop: Mutex<Option<mpsc::UnboundedReceiver<DropNames>>>,
    pids: Mutex<BTreeSet<u32>>,
    /// Whether the kernel reads whole files of the disk by itself.
    has_passthrough: bool,
    backings: Backings,
    readahead_bytes: u64,
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

/// A request that one daemon has.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) daemon: Arc<Daemon>,
    pub(super) service: Arc<Service>,
    /// A daemon before had it, and may have done it (`FUSE_UNIQUE_RESEND`).
    pub(super) is_resent: bool,
}

impl Turn {
    pub(super) fn fs(&self) -> Arc<Filesystem> {
        self.service.fs.clone()
    }

    /// Between what the filesystem has done and its answer, the daemon may die.
    pub(super) async fn pause_before_answer(&self) {
        if self.fs().handover().is_some() && self.daemon.happens(300) {
            self.daemon.pause().await;
        }
    }

    /// Does the work, and comes to the answer.
    pub(super) async fn answer<T>(&self, work: impl Future<Output = T>) -> T {
        let made = work.await;
        self.pause_before_answer().await;
        made
    }
}

impl Daemon {
    pub(super) fn new(fs: Arc<Filesystem>, config: &KernelConfig) -> Arc<Self> {
        let (drops, to_drop) = mpsc::unbounded_channel();
        let daemon = Self {
            service: Mutex::new(Arc::new(Service::new(fs))),
            life: Watched::new((1, false)),
            draw: config.has_pauses.then(|| config.draw.clone()),
            record: Record::new(config.keeps_record),
            held: Mutex::default(),
            was_released: Notify::new(),
            handles: Mutex::default(),
            leaks: Default::default(),
            numbered: AtomicU64::new(0),
            begun: Watched::default(),
            no_flush: AtomicBool::new(false),
            drops,
            to_drop: Mutex::new(Some(to_drop)),
            pids: Mutex::default(),
            has_passthrough: config.has_passthrough,
            backings: Backings::default(),
            readahead_bytes: config.readahead_bytes,
            passed: AtomicU64::new(0),
        };
        daemon.set_up();
        Arc::new(daemon)
    }

    /// Tells the filesystem what the kernel does.
    fn set_up(&self) {
        let service = self.service();
        service.fs.set_readahead(self.readahead_bytes);
        service.fs.set_passthrough(self.has_passthrough);
    }

    /// What serves the mount now, or did last.
    pub(super) fn service(&self) -> Arc<Service> {
        lock(&self.service).clone()
    }

    /// The daemon dies, and another is to take over: requests wait for it.
    pub(super) fn lose(&self) {
        self.service().die();
    }

    /// Another daemon takes over, which has these files open.
    pub(super) fn take_over(&self, fs: Arc<Filesystem>, opened: Vec<(InodeNo, Option<u32>)>) {
        let service = Service::new(fs);
        if self.has_passthrough {
            opened.into_iter().for_each(|(ino, id)| service.modes.inherit(ino, id, &self.backings));
        }
        *lock(&self.service) = Arc::new(service);
        self.set_up();
        let (lives, is_over) = self.life.get();
        self.life.set((lives + 1, is_over));
    }

    /// Waits for a daemon that lives. `None`: there is none any more.
    pub(super) async fn living(&self) -> Option<Arc<Service>> {
        loop {
            let service = self.service();
            if self.is_dead() {
                return None;
            }
            if !service.is_dead() {
                return Some(service);
            }
            let (lives, _) = self.life.get();
            self.life.wait_for(|(now, is_over)| now != lives || is_over).await;
        }
    }

    /// How many files, and directories, may be open that the kernel does not know of.
    pub(super) fn leaks(&self) -> [u64; 2] {
        [0, 1].map(|of: usize| self.leaks[of].load(Ordering::Relaxed))
    }

    /// Waits until so many more requests were handed on.
    pub(super) async fn wait_for_requests(&self, count: u64) {
        let upto = self.begun.get() + count;
        self.begun.wait_for(|begun| begun >= upto).await;
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
        let (lives, _) = self.life.get();
        self.life.set((lives, true));
        self.service().die();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.life.get().1
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
        match self.service().fs.getattr(ROOT) {
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

    /// Resolves when the last daemon has died.
    pub(super) async fn died(&self) {
        self.life.wait_for(|(_, is_over)| is_over).await;
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
    /// made then. Where the daemon dies before it has answered, the kernel sends the request again to the next one.
    async fn request<T: Send + 'static, W: Future<Output = Result<T, i32>> + Send + 'static>(
        self: &Arc<Self>,
        caller: &Caller,
        number: usize,
        folder: Option<InodeNo>,
        work: impl Fn(Turn) -> W,
        lost: impl FnOnce(&Turn, T) + Clone + Send + 'static,
    ) -> Result<T, i32> {
        let mut is_resent = false;
        let result = loop {
            self.pause().await;
            let service = tokio::select! {
                biased;
                service = self.living() => service,
                () = caller.is_seen_dead() => break Err(libc::EINTR),
            };
            let Some(service) = service else { return Err(libc::ENOTCONN) };
            let turn = Turn { daemon: self.clone(), service, is_resent };
            self.begun.set(self.begun.get() + 1);
            let (answer, answered) = tokio::sync::oneshot::channel();
            let (daemon, work, lost) = (self.clone(), work(turn.clone()), lost.clone());
            let task = tokio::spawn(async move {
                let hold = folder.map(|folder| daemon.hold(folder));
                let result = tokio::select! {
                    biased;
                    () = turn.service.died() => None,
                    result = turn.answer(work) => Some(result),
                };
                drop(hold);
                if let Err(Some(Ok(made))) = answer.send(result) {
                    lost(&turn, made);
                }
            });
            tokio::select! {
                biased;
                result = answered => match result {
                    Ok(Some(result)) => break result,
                    Ok(None) => is_resent = true,
                    Err(_) => return Err(ended(task.await)),
                },
                () = caller.is_seen_dead() => break Err(libc::EINTR),
            }
        };
        self.pause().await;
        self.record.answered(number, result.as_ref().err().copied().unwrap_or(0));
        result
    }

    /// Sends a request for which nobody waits. One that `is_answered` comes again where the daemon dies before that. Any
    /// other is lost with the daemon that has read it.
    fn in_background(self: &Arc<Self>, is_answered: bool, work: impl Fn(&Turn) + Send + 'static) {
        let daemon = self.clone();
        // Where the runtime has ended, so has the mount.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                daemon.pause().await;
                let mut is_resent = false;
                while let Some(service) = daemon.living().await {
                    let turn = Turn { daemon: daemon.clone(), service, is_resent };
                    if daemon.happens(300) {
                        daemon.pause().await;
                    }
                    let was_done = !turn.service.is_dead();
                    if was_done {
                        work(&turn);
                        turn.pause_before_answer().await;
                    }
                    if !turn.service.is_dead() || (!is_answered && (was_done || daemon.happens(500))) {
                        return;
                    }
                    is_resent |= was_done;
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
