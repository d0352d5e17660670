//! The versions to complete in the disk cache, and the GET that does so: see [`backfill`](crate::fill::backfill).

use std::collections::{HashSet, VecDeque};

use s3mount_object::{ByteRange, ObjectId};
use tokio::sync::Notify;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::version::Version;

/// The most versions that are remembered as having had their turn, at 100 bytes each and their names; and the most that
/// wait.
const MOST_VERSIONS: usize = 10_000;

/// Versions whose missing ranges will be fetched.
#[derive(Debug, Default)]
pub(crate) struct BackfillQueue {
    versions: Mutex<QueuedVersions>,
    /// The bytes of the buffer of the GET in flight.
    pub(crate) in_flight: AtomicU64,
    /// Tells the GET that a reader needs that buffer.
    pub(crate) needed: Notify,
}

#[derive(Debug, Default)]
struct QueuedVersions {
    /// Versions in the order in which they were closed, with their sizes.
    waiting: VecDeque<(ObjectId, u64)>,
    /// Versions that wait, or have had their turn.
    known: HashSet<ObjectId>,
}

impl BackfillQueue {
    /// Notes that the last reader closed a version. The version gets a turn if this was not its first reading: it
    /// `is_reopened`, or the disk held parts of it before.
    pub(crate) fn on_close(&self, version: &Version, is_reopened: bool) {
        let Some(disk) = version.disk.as_ref().filter(|disk| is_reopened || disk.was_in_parts()) else {
            return;
        };
        if disk.first_missing(ByteRange::new(0, version.size)).is_none() {
            return;
        }
        self.add(&version.object, version.size);
    }

    fn add(&self, object: &ObjectId, size: u64) {
        let mut versions = lock(&self.versions);
        if versions.waiting.len() >= MOST_VERSIONS {
            return;
        }
        if versions.known.len() >= MOST_VERSIONS {
            // The other versions may get another turn.
            versions.known = versions.waiting.iter().map(|(object, _)| object.clone()).collect();
        }
        if versions.known.insert(object.clone()) {
            versions.waiting.push_back((object.clone(), size));
        }
    }

    /// Cancels the GET in flight, because a reader waits for memory. Returns the bytes that this gives back.
    pub(crate) fn give_way(&self) -> u64 {
        let bytes = self.in_flight.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            self.needed.notify_waiters();
        }
        bytes
    }

    /// The version whose turn it is, and its size.
    pub(crate) fn next(&self) -> Option<(ObjectId, u64)> {
        lock(&self.versions).waiting.pop_front()
    }

    /// Forgets a version of which nothing was fetched: it may get its turn when it is closed again.
    pub(crate) fn forget(&self, object: &ObjectId) {
        lock(&self.versions).known.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, ObjectId};

    use super::{BackfillQueue, MOST_VERSIONS};

    #[test]
    fn there_are_turns_after_very_many_versions() {
        let queue = BackfillQueue::default();
        let object = |number: usize| ObjectId::new(&number.to_string(), ETag::new("e"));
        for number in 0..3 * MOST_VERSIONS {
            queue.add(&object(number), 1);
            queue.add(&object(number), 1);
            assert_eq!(queue.next().map(|(object, _)| object), Some(object(number)));
            assert!(queue.next().is_none(), "one turn each");
        }
        (0..2 * MOST_VERSIONS).for_each(|number| queue.add(&object(number), 1));
        assert_eq!(std::iter::from_fn(|| queue.next()).count(), MOST_VERSIONS, "no more wait");
    }
}
