//! The settings of a mount.

use std::path::PathBuf;
use std::sync::Arc;

use crate::audit::AuditSink;

/// Settings of the mount, as plain data.
#[derive(Clone, Debug)]
pub struct FuseConfig {
    /// Source that `mount` and `df` show, such as `s3://bucket/prefix/`.
    pub fs_name: String,
    /// The kernel refuses whatever would write, also hints to `.s3mount/prefetch`.
    pub read_only: bool,
    /// The kernel runs no programs from the mount.
    pub no_exec: bool,
    /// Users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// Root may use the mount, besides the user who mounts.
    pub allow_root: bool,
    /// Number of session threads. Each reads requests from its own clone of the device.
    pub threads: usize,
    /// The kernel's readahead on this mount in bytes. Only root can raise it above the kernel's
    /// default of 128 KiB.
    pub read_ahead_bytes: u64,
    /// The most READs that the kernel sends before it has answers. It keeps the others to itself, also those
    /// that could be answered at once. Where the mounter is not root, the kernel may allow fewer.
    pub max_reads: u16,
    /// Folders of a disk cache whose files the kernel may read by itself (passthrough). If there are none, the
    /// daemon serves all reads.
    pub passthrough_dirs: Vec<PathBuf>,
    /// Told of each call that opens a file or changes something.
    pub audit: Option<Arc<dyn AuditSink>>,
    /// Takes the kernel for one that sends no request again to the next daemon, as kernels before Linux 6.9. For tests.
    pub without_resend: bool,
}
