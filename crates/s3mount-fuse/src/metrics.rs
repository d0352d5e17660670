//! Metrics of the kernel's requests.

use s3mount_fs::FsError;
use s3mount_metrics::{Counter, Family, Histogram, bounds, labels, metrics};
use tokio::time::Instant;

labels! {
    /// The operation that the kernel requests.
    pub enum Operation("operation") {
        /// LOOKUP.
        Lookup = "lookup",
        /// GETATTR.
        Getattr = "getattr",
        /// OPEN.
        Open = "open",
        /// READ.
        Read = "read",
        /// WRITE, of files and of hints.
        Write = "write",
        /// CREATE.
        Create = "create",
        /// FLUSH: a program closes a file that it has written.
        Flush = "flush",
        /// FSYNC.
        Fsync = "fsync",
        /// COPY_FILE_RANGE.
        Copy = "copy",
        /// SETATTR and FALLOCATE.
        Setattr = "setattr",
        /// MKDIR.
        Mkdir = "mkdir",
        /// SYMLINK.
        Symlink = "symlink",
        /// READLINK.
        Readlink = "readlink",
        /// RMDIR.
        Rmdir = "rmdir",
        /// UNLINK.
        Unlink = "unlink",
        /// RENAME.
        Rename = "rename",
        /// OPENDIR.
        Opendir = "opendir",
        /// READDIR and READDIRPLUS.
        Readdir = "readdir",
    }
}

labels! {
    /// The errno of a failed request, or a group of them.
    pub enum Failure("status") {
        /// ENOENT.
        NotFound = "not_found",
        /// EACCES, EPERM, EROFS.
        Denied = "denied",
        /// ESTALE: the object is another version.
        Stale = "stale",
        /// ETIMEDOUT.
        TimedOut = "timed_out",
        /// A READ that was refused, so that the kernel asks for less.
        Refused = "refused",
        /// EIO.
        Io = "io",
        /// Another errno.
        Other = "other",
    }
}

labels! {
    /// Why the daemon serves a file that lies on a disk as a whole.
    pub enum Refusal("reason") {
        /// The file is open from before it was cached. The kernel has one mode for all who have it open.
        Busy = "busy",
        /// The daemon is not privileged.
        Denied = "denied",
        /// The file lies on too many file systems.
        Stacked = "stacked",
        /// The kernel cannot do it with the disk's file system.
        Unsupported = "unsupported",
        /// The disk's file system does not take `O_DIRECT`.
        NoDirectIo = "no_direct_io",
        /// Another error.
        Other = "other",
    }
}

impl Failure {
    fn of(error: &FsError) -> Self {
        match error.errno() {
            _ if matches!(error, FsError::Refused) => Self::Refused,
            libc::ENOENT => Self::NotFound,
            libc::EACCES | libc::EPERM | libc::EROFS => Self::Denied,
            libc::ESTALE => Self::Stale,
            libc::ETIMEDOUT => Self::TimedOut,
            libc::EIO => Self::Io,
            _ => Self::Other,
        }
    }
}

metrics! {
    /// The kernel's requests.
    pub struct FuseMetrics {
        /// How long requests of the kernel took from when a session thread had them to their answer, those
        /// that failed included.
        times: Family<Histogram, Operation> = ("s3mount_fuse_seconds", Seconds, Stable, bounds::ANSWERS),
        /// Requests of the kernel that failed, by the errno.
        failures: Family<Counter, (Operation, Failure)> = ("s3mount_fuse_failures_total", Count, Stable),
        /// Opens of files that lie on a disk as a whole, and that the kernel does not read by itself, by the
        /// reason.
        passthrough_refused: Family<Counter, Refusal> = ("s3mount_passthrough_refused_total", Count, Stable),
    }
}

impl FuseMetrics {
    /// Counts a request that came at `began`, and was answered or has failed just now.
    pub(crate) fn on_answer(&self, operation: Operation, began: Instant, failed: Option<&FsError>) {
        self.times.at(operation).note_time(began.elapsed());
        if let Some(error) = failed {
            self.failures.at((operation, Failure::of(error))).inc();
        }
    }
}
