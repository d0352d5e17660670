//! A model of the Linux kernel (6.18) between programs and a [`Filesystem`]: what `fs/fuse` and the VFS above it make of
//! system calls, request by request, together with what the crate s3mount-fuse makes of each request.
//!
//! All is one thread and virtual time. Each request is delivered after a pause that chance decides, and so is its answer,
//! so two requests that are under way at once reach the filesystem in any order. What the kernel does by itself has no
//! pauses, except where a real task may be set aside at a place that matters.
//!
//! - [`daemon`]: one request, from the kernel to the filesystem and back, as the adapter of s3mount-fuse hands it on;
//! - [`core`]: what the kernel knows of one mount;
//! - [`inode`]: the kernel's inodes, their sizes and attributes, and how long these are believed;
//! - [`page`], [`cache`]: the page cache; [`window`], [`readahead`]: what is read ahead into it; [`write_back`]: dirty pages of maps;
//! - [`dentries`]: the dentry cache; [`names`]: walks of paths; [`change`]: names that are made, removed and renamed;
//! - [`handle`], [`open_file`], [`file_read`], [`file_write`]: open file descriptions;
//! - [`io_mode`]: files that are read without the daemon;
//! - [`directory`]: listings; [`map`]: maps; [`locks`]: locks of files;
//! - [`process`]: descriptors and system calls;
//! - [`notices`]: what the daemon asks of the kernel.
//!
//! Each rule names the function of Linux that it is taken from. `tests/all/conformance.rs` holds the model to a real
//! kernel.

mod cache;
mod change;
mod common;
mod core;
mod daemon;
mod dentries;
mod directory;
mod file_read;
mod file_write;
mod handle;
mod inode;
mod io_mode;
mod locks;
mod map;
mod names;
mod notices;
mod open_file;
mod page;
mod process;
mod readahead;
mod record;
mod window;
mod write_back;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use s3mount_fs::{Attr, FileKind, Filesystem, InodeNo, ROOT};

pub use self::common::{KernelConfig, PAGE_BYTES};
pub use self::core::Kernel;
use self::daemon::Daemon;
pub use self::directory::Listing;
use self::inode::Inode;
pub use self::process::{Fd, Process, Stat, Whence};
pub use self::record::Call;

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

    /// Another daemon takes over, which has `opened` these inodes: each by a file that the kernel reads by itself, or not.
    pub fn take_over(self: &Arc<Self>, fs: Arc<Filesystem>, opened: Vec<(InodeNo, Option<u32>)>) {
        self.daemon.take_over(fs, opened);
        notices::listen_to_service(self);
    }
}
