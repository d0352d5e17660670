//! The disk cache of a machine: its folder, how its disk behaves, and what a kill or a power cut leaves of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use s3mount_cache::{DiskCache, DiskConfig, DiskMetrics, Hand, Op, Synced};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::draw::Draw;

/// How a disk with a cache behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// The most bytes of the cache.
    pub max_bytes: u64,
    /// The most bytes that wait to be written.
    pub queue_bytes: u64,
    /// How many of a thousand tasks take seconds.
    pub slow: u64,
    /// In how many of a thousand tasks the disk fails.
    pub failing: u64,
    /// Whether the machine loses its power now and then where a daemon is killed.
    pub loses_power: bool,
    /// Whether the kernel reads whole files by itself.
    pub passes_files: bool,
}

impl DiskPlan {
    /// Any disk.
    pub fn draw(draw: &Draw, loses_power: bool) -> Self {
        Self {
            max_bytes: *draw.one(&[1 << 40, 1 << 40, 1 << 20, 64 << 10]),
            queue_bytes: *draw.one(&[64 << 20, 64 << 20, 256 << 10]),
            slow: *draw.one(&[0, 0, 20, 300]),
            failing: *draw.one(&[0, 0, 30, 300]),
            loses_power,
            passes_files: draw.happens(500),
        }
    }
}

/// What of the disk is asked, and how it may fail.
const FAULTS: [(Op, i32); 8] = [
    (Op::Open, libc::EIO),
    (Op::Read, libc::EIO),
    (Op::Write, libc::EIO),
    (Op::Write, libc::ENOSPC),
    (Op::Publish, libc::EIO),
    (Op::Publish, libc::ENOSPC),
    (Op::Remove, libc::EIO),
    (Op::Sync, libc::EIO),
];

/// How long a disk that has nothing to do rests at least and at most, in milliseconds.
const RESTS: (u64, u64) = (500, 2_000);

/// What goes wrong now.
#[derive(Debug, Default)]
struct Trouble {
    /// The call that fails, and with what.
    failing: Option<(Op, i32)>,
    /// After so many calls all fail: the daemon is dead.
    left: Option<u64>,
}

impl Trouble {
    fn at(&mut self, op: Op) -> io::Result<()> {
        if let Some(left) = &mut self.left {
            let next = left.checked_sub(1);
            *left = next.ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))?;
        }
        match self.failing {
            Some((failing, errno)) if failing == op => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of a cache, for one daemon after another, and for several at once.
#[derive(Debug)]
pub struct CacheFolder {
    folder: TempDir,
    plan: DiskPlan,
    started: Instant,
    boot: AtomicU8,
    /// What was on the disk when all of it was written the last time.
    synced: Arc<Mutex<Synced>>,
    /// What all that used it have counted.
    metrics: Mutex<Vec<Arc<DiskMetrics>>>,
}

/// What became of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads that it has answered.
    pub reads: u64,
    /// Files that were found damaged.
    pub corrupt: u64,
    /// Bytes that were written.
    pub written: u64,
    /// Files that the kernel has read by itself.
    pub passed: u64,
}

impl CacheFolder {
    /// An empty folder.
    ///
    /// # Panics
    /// When the machine has no room for it.
    pub fn new(plan: &DiskPlan) -> Self {
        // In memory nobody waits for the machine's disk.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
        let (started, boot) = (Instant::now(), AtomicU8::new(1));
        Self { folder, plan: plan.clone(), started, boot, synced: Arc::default(), metrics: Mutex::default() }
    }

    /// What became of it so far.
    pub fn counts(&self) -> DiskCounts {
        let mut counts = DiskCounts::default();
        for metrics in lock(&self.metrics).iter() {
            counts.reads += metrics.reads.get();
            counts.corrupt += metrics.corrupt.get();
            counts.written += metrics.written_bytes.get();
        }
        counts
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Opens the cache for a daemon. Its disk does what `draw` decides.
    ///
    /// # Panics
    /// When the folder can't be used.
    pub fn open(self: &Arc<Self>, draw: Arc<Draw>) -> SimDisk {
        let config = DiskConfig {
            dirs: vec![self.path()],
            max_bytes: Some(self.plan.max_bytes),
            source: "https://sim|bucket".to_owned(),
            queue_bytes: self.plan.queue_bytes,
            ..DiskConfig::default()
        };
        let started = self.started;
        // The machine has been up for a while.
        let now = move || (Duration::from_secs(1_000) + started.elapsed()).as_nanos() as u64;
        let opened = DiskCache::open_by_hand(&config, self.boot.load(Ordering::Relaxed), now);
        let (cache, mut hands) = opened.expect("a folder of this run");
        let hand = Arc::new(hands.pop().expect("a hand for each folder"));
        lock(&self.metrics).push(hand.metrics());
        let trouble = Arc::<Mutex<Trouble>>::default();
        hand.set_faults(self.faults(&trouble));
        let work = work(hand.clone(), draw.clone(), self.plan.clone(), trouble.clone());
        SimDisk { cache, hand, trouble, draw, folder: self.clone(), task: tokio::spawn(work) }
    }

    /// Called before each operation of the disk.
    fn faults(&self, trouble: &Arc<Mutex<Trouble>>) -> impl Fn(Op) -> io::Result<()> + use<> {
        let (trouble, synced, path) = (trouble.clone(), self.synced.clone(), self.path());
        let keeps_synced = self.plan.loses_power;
        move |op| {
            lock(&trouble).at(op)?;
            if op == Op::Sync && keeps_synced {
                *lock(&synced) = all(&path);
            }
            Ok(())
        }
    }

    /// What was written since all of it was written may be lost, and the machine starts anew.
    fn cut_power(&self, draw: &Draw) {
        let (path, mut synced) = (self.path(), lock(&self.synced));
        synced.cut_power(&path, |end| draw.below(end)).expect("a folder of this run");
        *synced = all(&path);
        self.boot.fetch_add(1, Ordering::Relaxed);
    }
}

/// All that lies in the cache.
fn all(path: &Path) -> Synced {
    Synced::now(path).expect("a folder of this run")
}

/// Does what waits for the disk, one thing after another.
async fn work(hand: Arc<Hand>, draw: Arc<Draw>, plan: DiskPlan, trouble: Arc<Mutex<Trouble>>) {
    loop {
        lock(&trouble).failing = draw.happens(plan.failing).then(|| *draw.one(&FAULTS));
        if !hand.step(draw.next()) {
            let rests = Duration::from_millis(RESTS.0 + draw.below(RESTS.1 - RESTS.0));
            tokio::select! {
                biased;
                () = hand.rings() => {}
                () = sleep(rests) => {}
            }
        }
        if draw.happens(plan.slow) {
            sleep(Duration::from_millis(draw.below(9_000))).await;
        }
        draw.pause().await;
    }
}

/// The disk cache of one daemon.
#[derive(Debug)]
pub struct SimDisk {
    /// The cache.
    pub cache: DiskCache,
    hand: Arc<Hand>,
    trouble: Arc<Mutex<Trouble>>,
    draw: Arc<Draw>,
    folder: Arc<CacheFolder>,
    task: JoinHandle<()>,
}

impl SimDisk {
    /// Whether the kernel reads whole files by itself.
    pub fn passes_files(&self) -> bool {
        self.folder.plan.passes_files
    }

    /// The daemon is killed, now and then in the middle of something, and now and then because the power fails. Returns
    /// whether it does.
    pub fn kill(&self) -> bool {
        self.task.abort();
        if self.draw.happens(400) {
            *lock(&self.trouble) = Trouble { failing: None, left: Some(self.draw.below(6)) };
            self.hand.step(self.draw.next());
        }
        self.hand.kill();
        let loses_power = self.folder.plan.loses_power && self.draw.happens(500);
        if loses_power {
            self.folder.cut_power(&self.draw);
        }
        loses_power
    }
}
