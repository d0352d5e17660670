//! A model of the Linux kernel (6.18) between programs and a [`Filesystem`]: what `fs/fuse` and the VFS above it make of
//! system calls, request by request, together with what the crate s3mount-fuse makes of each request.
//!
//! All is one thread and virtual time. Each request is delivered after a pause that chance decides, and so is its answer,
//! so two requests that are under way at once reach the filesystem in any order. What the kernel does by itself has no
//! pauses, except where a real task may be set aside at a place that matters.
//!
//! - [`daemon`]: one request, from the kernel to the filesystem and back, as the adapter of s3mount-fuse hands it on;
//! - [`inode`]: the kernel's inodes, their sizes and attributes, and how long these are believed;
//! - [`page`], [`cache`]: the page cache; [`readahead`]: what is read ahead into it; [`write_back`]: dirty pages of maps;
//! - [`names`]: the dentry cache and walks of paths; [`change`]: names that are made, removed and renamed;
//! - [`open_file`], [`file_read`], [`file_write`]: open file descriptions;
//! - [`directory`]: listings; [`map`]: maps; [`locks`]: locks of files;
//! - [`process`]: descriptors and system calls;
//! - [`notices`]: what the daemon asks of the kernel.
//!
//! Each rule names the function of Linux that it is taken from. `tests/mount/kernel_model.rs` holds the model to a real
//! kernel.

mod cache;
mod change;
mod daemon;
mod directory;
mod file_read;
mod file_write;
mod inode;
mod locks;
mod map;
mod names;
mod notices;
mod open_file;
mod page;
mod process;
mod readahead;
mod record;
mod write_back;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use std::time::Duration;

use s3mount_fs::{Attr, FileKind, Filesystem, ROOT};

use tokio::time::Instant;

use self::daemon::Daemon;
use self::inode::Inode;
use self::names::Dentries;
pub use self::process::{Fd, Process, Stat, Whence};
pub use self::record::Call;
use crate::draw::Draw;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Locks a mutex whose holder has not panicked, or has: then the run has failed anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until when something is believed that was told just now. A time of 0 is over at once (`time_to_jiffies`).
fn until(ttl: Duration) -> Option<Instant> {
    (!ttl.is_zero()).then(|| Instant::now() + ttl)
}

/// Whether something is still believed.
fn is_believed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() <= until)
}

/// How the kernel behaves where it has a choice.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// Decides every pause.
    pub draw: Arc<Draw>,
    /// Whether requests and answers take time. Without it, each comes at once.
    pub has_pauses: bool,
    /// Readahead of each file, in bytes.
    pub readahead_bytes: u64,
    /// Whether the mount is read-only for the kernel.
    pub is_read_only: bool,
    /// Whether the requests are recorded.
    pub keeps_record: bool,
}

impl KernelConfig {
    /// A kernel with the readahead that s3mount sets, and with pauses.
    pub fn new(draw: Arc<Draw>) -> Self {
        Self { draw, has_pauses: true, readahead_bytes: 1 << 20, is_read_only: false, keeps_record: false }
    }
}

/// The kernel's side of one mount.
#[derive(Debug)]
pub struct Kernel {
    daemon: Arc<Daemon>,
    config: KernelConfig,
    inodes: Mutex<BTreeMap<u64, Weak<Inode>>>,
    dentries: Mutex<Dentries>,
    root: Arc<Inode>,
    /// `fuse_conn.attr_version`: counts what may change attributes, so that an older answer is not taken for a newer.
    attr_version: Arc<AtomicU64>,
}

impl Kernel {
    /// Mounts a filesystem.
    pub fn new(fs: Arc<Filesystem>, config: KernelConfig) -> Arc<Self> {
        let daemon = Daemon::new(fs, &config);
        let attr_version = Arc::new(AtomicU64::new(1));
        let attr = Attr { kind: FileKind::Directory, ..daemon.root_attr() };
        let root = Inode::new(attr, daemon.clone(), attr_version.clone());
        let kernel = Arc::new(Self {
            daemon,
            config,
            inodes: Mutex::new(BTreeMap::from([(ROOT.0, Arc::downgrade(&root))])),
            dentries: Mutex::default(),
            root,
            attr_version,
        });
        notices::listen(&kernel);
        kernel
    }

    /// The daemon dies: calls under way and all later ones end with `ENOTCONN`, and nothing calls the filesystem any more.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Files and directories that are open for the filesystem.
    pub fn open_handles(&self) -> usize {
        self.daemon.open_handles()
    }

    /// The requests so far, if they are recorded.
    pub fn calls(&self) -> Vec<Call> {
        self.daemon.record().calls()
    }

    /// The kernel wants memory: it drops the names that nobody uses, and with them their inodes and pages.
    pub fn drop_caches(&self) {
        let dropped = lock(&self.dentries).take_all();
        drop(dropped);
    }

    fn next_attr_version(&self) -> u64 {
        self.attr_version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `fuse_get_attr_version`
    fn attr_version(&self) -> u64 {
        self.attr_version.load(Ordering::Relaxed)
    }
}
