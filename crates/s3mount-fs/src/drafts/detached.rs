//! Opens that have to be repeated.
//!
//! An open of an inode that has lost its name fails with `ESTALE`, and the kernel looks the name up again and repeats the
//! open: once. So as long as somebody is about to do so, the name keeps its inode.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::numbers::InodeNo;
use crate::sync::{Mutex, lock};

/// How long the kernel may take to repeat an open.
const REPEATED: Duration = Duration::from_secs(10);

/// An open that has to be repeated. A thread opens one file at a time.
#[derive(Debug)]
struct Open {
    thread: u32,
    /// The name that the inode had.
    parent: InodeNo,
    name: Arc<str>,
    since: Instant,
}

/// Opens that have to be repeated.
#[derive(Debug, Default)]
pub(crate) struct Detached(Mutex<Vec<Open>>);

impl Detached {
    /// Notes that a thread has to repeat its open of a name.
    pub(crate) fn note(&self, parent: InodeNo, name: &Arc<str>, thread: u32) {
        let mut opens = lock(&self.0);
        opens.retain(|open| open.thread != thread && open.since.elapsed() < REPEATED);
        opens.push(Open { thread, parent, name: name.clone(), since: Instant::now() });
    }

    /// Whether an open of a name is about to be repeated.
    pub(crate) fn has(&self, parent: InodeNo, name: &Arc<str>) -> bool {
        self.is_any(|open| (open.parent, &open.name) == (parent, name))
    }

    /// Whether a thread repeats its open. The file may have got another name meanwhile.
    pub(crate) fn is_repeated(&self, thread: u32) -> bool {
        self.is_any(|open| open.thread == thread)
    }

    fn is_any(&self, is_meant: impl Fn(&Open) -> bool) -> bool {
        lock(&self.0).iter().any(|open| is_meant(open) && open.since.elapsed() < REPEATED)
    }

    /// A thread has not to repeat its open any more.
    pub(crate) fn end(&self, thread: u32) {
        lock(&self.0).retain(|open| open.thread != thread);
    }
}
