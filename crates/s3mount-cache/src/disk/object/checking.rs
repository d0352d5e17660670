//! Compares whole objects with their checksums, a piece at a time: those that [`Checks`](crate::disk::checks::Checks)
//! has. An operation of the disk reads one piece, so a large file never looks like a disk that hangs. After each
//! piece the disk rests.

use std::sync::Arc;
use std::time::Duration;

use super::{DiskObject, Inner};
use crate::disk::checks::Why;
use crate::disk::health::Condition;
use crate::disk::io::ALIGN;
use crate::disk::whole::{PIECE_BYTES, Whole};

/// How many times as long as a piece took the disk rests after it. Somebody may wait for a doubtful object.
const REST_DOUBTFUL: u32 = 1;
const REST_PASSED: u32 = 49;

/// The disk rests no longer than this.
const MOST_REST: Duration = Duration::from_secs(1);

/// An object that is being compared.
pub(crate) struct Checked {
    object: Arc<DiskObject>,
    whole: Arc<Whole>,
    why: Why,
    /// The first block of the next piece.
    next: u64,
    memory: Vec<u8>,
}

impl Inner {
    /// Compares what is to be compared, until the cache ends.
    pub(super) fn keep_checking(self: &Arc<Self>) {
        let mut current = None;
        while self.checks.rest(self.check_piece(&mut current)) {}
    }

    /// Compares one more piece of an object. Returns how long the disk rests after it, or nothing if no object
    /// waits.
    pub(crate) fn check_piece(self: &Arc<Self>, current: &mut Option<Checked>) -> Option<Duration> {
        let is_passed = current.as_ref().is_some_and(|current| current.why == Why::Passed);
        if self.dir.health.condition() != Condition::Healthy || (is_passed && !self.queue.is_idle()) {
            return Some(MOST_REST);
        }
        let Some(mut checked) = current.take() else {
            let (named, why) = self.checks.next(self.dir.clock.now())?;
            *current = self.begin_check(self.object(named), why);
            if current.is_none() {
                self.checks.done();
            }
            return Some(Duration::ZERO);
        };
        let began = self.dir.clock.now();
        if self.compare_piece(&mut checked) {
            let times = if checked.why == Why::Doubtful { REST_DOUBTFUL } else { REST_PASSED };
            *current = Some(checked);
            return Some((self.dir.clock.now().since(began) * times).min(MOST_REST));
        }
        drop(checked);
        self.checks.done();
        Some(Duration::ZERO)
    }

    fn begin_check(&self, object: Arc<DiskObject>, why: Why) -> Option<Checked> {
        let whole = object.version.whole_to_check(why == Why::Passed)?;
        let memory = vec![0; PIECE_BYTES + ALIGN];
        Some(Checked { object, whole, why, next: 0, memory })
    }

    /// Returns whether there is more to compare.
    fn compare_piece(&self, checked: &mut Checked) -> bool {
        let version = &checked.object.version;
        let start = checked.memory.as_ptr().align_offset(ALIGN);
        let memory = &mut checked.memory[start..start + PIECE_BYTES];
        match version.check_piece(&checked.whole, checked.next, memory) {
            Some(next) => checked.next = next,
            None => return false,
        }
        true
    }
}
