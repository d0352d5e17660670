//! Drafts that another process can go on with.
//!
//! A draft with a keeper has each change in its file of the spool before the change is acknowledged, and tells the
//! keeper what that file has. If the process is killed, the next one makes a [`KeptDraft`] of what the keeper knows.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use s3mount_object::ObjectId;

use crate::ranges::Ranges;
use crate::spool_disk::{RestingBytes, SpoolBytes};

/// Is told of each change of a draft before that is acknowledged. It is not told of publications or of
/// [`Draft::discard`](crate::Draft::discard): the caller of these knows.
///
/// Calls for one draft come one after another, but for [`given_up`](Self::given_up), which may come at any time. What is
/// told between that and the next [`begin`](Self::begin) counts for nothing. The draft is not to be called meanwhile.
pub trait KeptChanges: std::fmt::Debug + Send + Sync {
    /// The draft is about to change for the first time since it was made, or was published last. From now on each of its
    /// bytes is in `file`, as [`wrote`](Self::wrote) says; or else among the first `base_bytes` of the version that it was
    /// made of, or published as last; or else zero. It has `size` bytes now. Returns whether it is kept: a file without a
    /// name is not, and is [given up](Self::given_up).
    ///
    /// # Errors
    /// If the draft can't be kept: it is given up, too.
    fn begin(&self, file: &Arc<dyn SpoolBytes>, base_bytes: u64, size: u64) -> io::Result<bool>;

    /// `file` has the bytes `start..end` of the draft now, which is at least that long.
    fn wrote(&self, start: u64, end: u64);

    /// The draft has `size` bytes now. What it had behind them is no more part of it, also not of its version or of its
    /// file; what it has got behind its end is zeros.
    fn resized(&self, size: u64);

    /// No other process can go on with the draft before it is published: it has bytes of another version, or another key,
    /// the spool is full or broken, or a write has failed.
    fn given_up(&self);
}

/// A draft that the process before has left, and whose bytes others have.
#[derive(Debug)]
pub struct RestingDraft {
    /// Its bytes.
    pub bytes: Arc<dyn RestingBytes>,
    /// Its length in bytes.
    pub size: u64,
    /// When it was changed last.
    pub modified: SystemTime,
    /// The version that it replaces, if it was made of one.
    pub replaced: Option<ObjectId>,
}

/// A draft that the process before has left: what its keeper was told.
#[derive(Debug)]
pub struct KeptDraft {
    /// Its file of the spool: see [`kept_file`](crate::kept_file).
    pub file: Arc<dyn SpoolBytes>,
    /// The version that it is made of, and the length of that, in bytes.
    pub base: Option<(ObjectId, u64)>,
    /// How many bytes at the beginning of the version are part of it.
    pub base_bytes: u64,
    /// The length of the draft, in bytes.
    pub size: u64,
    /// What of it is in the file.
    pub spooled: Ranges,
}
