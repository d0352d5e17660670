//! Passthrough: the kernel reads a file by itself that lies on a disk of this machine as a whole.
//!
//! The daemon gives the kernel the disk's file when the file of the mount is opened (Linux 6.9, root only).
//! The kernel then answers reads and page faults from it, without the daemon. Wherever that cannot be done,
//! the daemon serves the file as it serves any other, and the log says once why.
#![expect(unsafe_code, reason = "numbers that the kernel has given")]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{BackingId, FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, ReplyOpen};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use s3mount_fs::Filesystem;

use crate::metrics::{FuseMetrics, Refusal};
use crate::modes::{Grant, Modes};
use crate::takeover::Inherited;

/// How many file systems may lie on each other below a file that the kernel reads by itself. With 1, a
/// container's overlayfs may lie on the mount, and none may lie below the disk cache. With 2 it is the other
/// way round.
const STACK_DEPTH: u32 = 1;
const STACK_DEPTH_OF_OVERLAYFS: u32 = 2;

/// A file that the kernel was given.
#[derive(Debug)]
pub(crate) enum Backing {
    /// By this daemon: its number, and what closes it.
    Own(u32, BackingId),
    /// By a daemon before, under this number, on this device.
    Inherited(u32, Arc<OwnedFd>),
}

nix::ioctl_write_ptr!(
    /// Closes a file that the kernel was given (`FUSE_DEV_IOC_BACKING_CLOSE`).
    close_backing,
    229,
    2,
    u32
);

impl Backing {
    /// The number by which the kernel knows it.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Own(id, _) | Self::Inherited(id, _) => *id,
        }
    }

    /// Answers an OPEN with it.
    pub(crate) fn answer(&self, reply: ReplyOpen, fh: FileHandle, flags: FopenFlags) {
        match self {
            Self::Own(_, backing) => reply.opened_passthrough(fh, flags, backing),
            Self::Inherited(id, _) => {
                // SAFETY: the file is open by this number until the last handle of the inode is released.
                let backing = unsafe { reply.wrap_backing(*id) };
                reply.opened_passthrough(fh, flags, &backing);
                // It stays open.
                let _ = backing.into_raw();
            }
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Self::Inherited(id, device) = self {
            // SAFETY: the device is open, and the number is read only.
            if let Err(error) = unsafe { close_backing(device.as_raw_fd(), id) } {
                tracing::debug!(%error, "the kernel does not close a file that it has read by itself");
            }
        }
    }
}

/// Gives the kernel files that it reads by itself, and keeps the modes of the inodes.
pub(crate) struct Passthrough {
    fs: Arc<Filesystem>,
    metrics: Arc<FuseMetrics>,
    modes: Modes<INodeNo, Backing>,
    /// Whether files are given to the kernel. The kernel refuses the second if it has refused the first for
    /// want of privileges.
    is_on: AtomicBool,
    /// Whether the file systems of the cache take `O_DIRECT`, by device number.
    take_direct: Mutex<HashMap<u64, bool>>,
}

impl Passthrough {
    /// Asks the kernel for passthrough, for files below `dirs`. Returns nothing if the kernel has none.
    pub(crate) fn negotiate(
        config: &mut KernelConfig,
        dirs: &[PathBuf],
        fs: &Arc<Filesystem>,
        metrics: &Arc<FuseMetrics>,
        inherited: Option<Inherited>,
    ) -> Option<Self> {
        let is_overlayfs =
            |dir: &PathBuf| statfs(dir).is_ok_and(|status| status.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
        let depth = if dirs.iter().any(is_overlayfs) { STACK_DEPTH_OF_OVERLAYFS } else { STACK_DEPTH };
        let is_there = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(depth).is_ok();
        if !is_there {
            tracing::info!("cached files are read through the daemon: passthrough takes Linux 6.9");
            return None;
        }
        fs.set_passthrough(true);
        let modes = Modes::default();
        if let Some(Inherited { device, opened }) = inherited {
            let device = Arc::new(device);
            for (ino, id) in opened {
                // The first file of an inode has the backing file of all.
                drop(modes.open(ino, || id.map(|id| Backing::Inherited(id, device.clone()))));
            }
        }
        Some(Self {
            fs: fs.clone(),
            metrics: metrics.clone(),
            modes,
            is_on: AtomicBool::new(true),
            take_direct: Mutex::default(),
        })
    }

    /// Whether the kernel is given files.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Chooses how an OPEN of `ino` is answered, which has to be answered so. `whole` is the disk's file, if
    /// the version lies on a disk as a whole.
    pub(crate) fn open(&self, ino: INodeNo, whole: Option<&File>, reply: &ReplyOpen) -> Grant<Backing> {
        let mut was_asked = false;
        let grant = self.modes.open(ino, || {
            was_asked = true;
            self.back(whole?, reply)
        });
        if whole.is_some() && !was_asked && matches!(grant, Grant::Daemon) {
            self.metrics.passthrough_refused.at(Refusal::Busy).inc();
        }
        grant
    }

    /// Counts a file of `ino` as opened through the daemon. Returns false if that can't be: the kernel reads the inode
    /// by itself.
    pub(crate) fn enter(&self, ino: INodeNo) -> bool {
        match self.modes.open(ino, || None) {
            Grant::Daemon => true,
            Grant::Passthrough(backing) => {
                drop(backing);
                self.release(ino);
                false
            }
        }
    }

    /// Notes that a file of `ino` is released.
    pub(crate) fn release(&self, ino: INodeNo) {
        // The last one closes the kernel's file, and frees its blocks if it was evicted meanwhile.
        drop(self.modes.release(ino));
    }

    /// Gives the kernel a file.
    fn back(&self, file: &File, reply: &ReplyOpen) -> Option<Backing> {
        if !self.is_on() {
            return None;
        }
        let refused = match self.takes_direct(file) {
            Ok(true) => match reply.open_backing(file) {
                Ok(backing) => {
                    let id = backing.into_raw();
                    // SAFETY: the kernel has just given this number.
                    return Some(Backing::Own(id, unsafe { reply.wrap_backing(id) }));
                }
                Err(error) => error,
            },
            Ok(false) => return self.refuse(Refusal::NoDirectIo, None),
            Err(error) => error,
        };
        let reason = Refusal::of(&refused);
        if reason == Refusal::Denied {
            self.is_on.store(false, Ordering::Relaxed);
            self.fs.set_passthrough(false);
        }
        self.refuse(reason, Some(&refused))
    }

    fn refuse(&self, reason: Refusal, error: Option<&io::Error>) -> Option<Backing> {
        let count = self.metrics.passthrough_refused.at(reason);
        // Two opens at once may log it twice.
        if count.get() == 0 {
            tracing::info!(
                error = error.map(tracing::field::display),
                "cached files are read through the daemon: {}",
                reason.text()
            );
        }
        count.inc();
        None
    }

    /// Whether the file system of `file` takes `O_DIRECT`. The kernel opens the disk's file with the flags of
    /// the program. Where `O_DIRECT` is not taken, such an open fails with EIO. So there nothing is open by
    /// passthrough.
    fn takes_direct(&self, file: &File) -> io::Result<bool> {
        let device = file.metadata()?.dev();
        let mut known = self.take_direct.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(takes) = known.get(&device) {
            return Ok(*takes);
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let takes = match File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
            Ok(_) => true,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
            Err(error) => return Err(error),
        };
        known.insert(device, takes);
        Ok(takes)
    }
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::Denied,
            Some(libc::ELOOP) => Self::Stacked,
            Some(libc::EOPNOTSUPP) => Self::Unsupported,
            _ => Self::Other,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Busy => "some are still open from before they were cached",
            Self::Denied => "passthrough takes root (CAP_SYS_ADMIN outside of user namespaces)",
            Self::Stacked => "the cache lies on a file system that lies on others",
            Self::Unsupported => "the kernel has no passthrough for the file system of the cache",
            Self::NoDirectIo => "the file system of the cache does not take O_DIRECT",
            Self::Other => "the kernel does not take them",
        }
    }
}
