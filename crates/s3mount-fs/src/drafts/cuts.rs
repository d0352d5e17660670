//! Files that are being cut.
//!
//! The kernel learns the new size of a file from the answer to SETATTR. Until its caller has taken that answer, the kernel
//! believes the old size, and a READ that ends before it is a hole: programs would see zeros where there never were any.
//! So a READ that fills the page cache, and ends early because the file was just cut, is repeated when the kernel has
//! had time to take the answer. The kernel drops the pages behind the new end only then, so it waits for this READ, and
//! no READ can be cut off twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::numbers::InodeNo;

/// The longest time, as a rule, until a caller runs and has taken an answer.
const SETTLES: Duration = Duration::from_millis(10);

/// A file that is being cut, and the number of its callers.
#[derive(Debug)]
struct Cut {
    under_way: usize,
    ended: Instant,
}

/// The files that are being cut, and those that were cut just now.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    files: watch::Sender<BTreeMap<InodeNo, Cut>>,
}

/// Marks a file as being cut. Dropped when the kernel has the answer.
#[derive(Debug)]
#[must_use]
pub struct Cutting {
    cuts: Arc<Cuts>,
    ino: InodeNo,
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.cuts.files.send_modify(|files| {
            if let Some(cut) = files.get_mut(&self.ino) {
                (cut.under_way, cut.ended) = (cut.under_way - 1, Instant::now());
            }
        });
    }
}

impl Cuts {
    /// Marks a file as being cut.
    pub(crate) fn begin(self: &Arc<Self>, ino: InodeNo) -> Cutting {
        let now = Instant::now();
        self.files.send_modify(|files| {
            files.retain(|_, cut| cut.under_way > 0 || now < cut.ended + SETTLES);
            files.entry(ino).or_insert(Cut { under_way: 0, ended: now }).under_way += 1;
        });
        Cutting { cuts: self.clone(), ino }
    }

    /// Whether the kernel may believe that a file is longer than it is.
    pub(crate) fn has(&self, ino: InodeNo) -> bool {
        let files = self.files.borrow();
        files.get(&ino).is_some_and(|cut| cut.under_way > 0 || cut.ended.elapsed() < SETTLES)
    }

    /// Waits until the kernel has the size of a file.
    pub(crate) async fn settled(&self, ino: InodeNo) {
        let mut files = self.files.subscribe();
        let is_over = |files: &BTreeMap<InodeNo, Cut>| files.get(&ino).is_none_or(|cut| cut.under_way == 0);
        let ended = match files.wait_for(is_over).await {
            Ok(files) => files.get(&ino).map(|cut| cut.ended),
            Err(_) => None,
        };
        if let Some(ended) = ended {
            sleep_until(ended + SETTLES).await;
        }
    }
}
