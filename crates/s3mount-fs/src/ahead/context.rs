//! The parts of a mount that predictions are made from, and that prefetch what is predicted.

use std::sync::Arc;

use s3mount_prefetch::Prefetcher;

use super::hints::Hints;
use crate::names::Namespace;
use crate::open::passthrough::Passthrough;
use crate::tree::inode::InodeTable;

/// What the fetcher and the seams share.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) hints: Arc<Hints>,
    pub(crate) passthrough: Passthrough,
}
