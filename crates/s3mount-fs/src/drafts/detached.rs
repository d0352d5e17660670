//! Opens that the kernel has to repeat.
//!
//! An open of an inode that has lost its name fails with `ESTALE`, and the kernel looks the name up again and repeats the
//! open: once. So while a repeated open is expected, the name keeps its inode.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::handover::Handover;
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
pub(crate) struct Detached {
    opens: Mutex<Vec<Open>>,
    /// The kernel repeats an open also where the daemon dies before it does.
    handover: OnceLock<Arc<Handover>>,
}

impl Detached {
    /// Takes notes for the next daemon. It can be set once.
    pub(crate) fn hand_over(&self, handover: Arc<Handover>) {
        // A second one changes nothing.
        let _ = self.handover.set(handover);
    }

    /// Notes that a thread must repeat its open of a name.
    pub(crate) fn note(&self, parent: InodeNo, name: &Arc<str>, thread: u32) {
        let mut opens = lock(&self.opens);
        self.drop_where(&mut opens, |open| open.thread == thread || open.since.elapsed() >= REPEATED);
        opens.push(Open { thread, parent, name: name.clone(), since: Instant::now() });
        if let Some(handover) = self.handover.get() {
            handover.set_repeated(thread, Some((parent, name)));
        }
    }

    fn drop_where(&self, opens: &mut Vec<Open>, is_over: impl Fn(&Open) -> bool) {
        for open in opens.extract_if(.., |open| is_over(open)) {
            if let Some(handover) = self.handover.get() {
                handover.set_repeated(open.thread, None);
            }
        }
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
        lock(&self.opens).iter().any(|open| is_meant(open) && open.since.elapsed() < REPEATED)
    }

    /// Notes that a thread need not repeat its open any more.
    pub(crate) fn end(&self, thread: u32) {
        self.drop_where(&mut lock(&self.opens), |open| open.thread == thread);
    }
}
