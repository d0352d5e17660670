//! Files that the daemon before was writing.

use std::sync::Arc;

use crate::numbers::InodeNo;

/// A file that the daemon before was writing. Its bytes are lost.
#[derive(Debug)]
pub(super) struct LostDraft {
    pub(super) parent: InodeNo,
    pub(super) name: Arc<str>,
    /// Whether its name has to be looked up again.
    pub(super) is_outdated: bool,
}
