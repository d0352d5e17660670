//! Opens that the kernel has to repeat.
//!
//! An open of an inode that has lost its name fails with `ESTALE`, and the kernel looks the name up again and repeats the
//! open: once. So while a repeated open is expected, the name keeps its inode.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::numbers::InodeNo;
use crate::sync::{Mutex, lock};

/// How long the kernel may take to repeat an open.
const REPEATED: Duration = Duration::from_secs(10);

/// An open that the kernel has to repeat. A thread opens one file at a time.
#[derive(Debug)]
struct Open {
    thread: u32,
    /// The name that the inode had.
    parent: InodeNo,
    name: Arc<str>,
    since: Instant,
}

/// Opens that the kernel has to repeat.
#[derive(Debug, Default)]
pub(crate) struct Detached(Mutex<Vec<Open>>);

impl Detached {
    /// Notes that a thread must repeat its open of a name.
    pub(crate) fn note(&self, parent: InodeNo, name: &Arc<str>, thread: u32) {
        let mut opens = lock(&self.0);
        opens.retain(|open| open.thread != thread && open.since.elapsed() < REPEATED);
        opens.push(Open { thread, parent, name: name.clone(), since: Instant::now() });
    }

    /// Whether a repeated open of a name is expected.
    pub(crate) fn has(&self, parent: InodeNo, name: &Arc<str>) -> bool {
        self.is_any(|open| (open.parent, &open.name) == (parent, name))
    }

    /// Whether a thread repeats its open. The file may have been renamed meanwhile.
    pub(crate) fn is_repeated(&self, thread: u32) -> bool {
        self.is_any(|open| open.thread == thread)
    }

    fn is_any(&self, is_meant: impl Fn(&Open) -> bool) -> bool {
        lock(&self.0).iter().any(|open| is_meant(open) && open.since.elapsed() < REPEATED)
    }

    /// Notes that a thread need not repeat its open any more.
    pub(crate) fn end(&self, thread: u32) {
        lock(&self.0).retain(|open| open.thread != thread);
    }
}
