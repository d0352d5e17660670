//! Which versions are to be filled up in the disk cache, and the GET that does so: see [`refill`](crate::refill).

use std::collections::{HashSet, VecDeque};

use s3mount_object::{ByteRange, ObjectId};
use tokio::sync::Notify;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::version::Version;

/// So many versions have their turn in the life of a mount: 100 bytes each, and their names.
const MOST_VERSIONS: usize = 10_000;

/// Versions whose holes are to be fetched.
#[derive(Debug, Default)]
pub(crate) struct Refills {
    state: Mutex<State>,
    /// The bytes of the buffer of the GET in flight.
    pub(crate) in_flight: AtomicU64,
    /// A reader needs that buffer.
    pub(crate) needed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were closed, with their sizes.
    waiting: VecDeque<(ObjectId, u64)>,
    /// Versions that wait, or have had their turn.
    known: HashSet<ObjectId>,
}

impl Refills {
    /// A version was closed by its last reader.
    pub(crate) fn on_close(&self, version: &Version) {
        let Some(disk) = version.disk.as_ref().filter(|disk| disk.was_in_parts()) else { return };
        if disk.first_missing(ByteRange::new(0, version.size)).is_none() {
            return;
        }
        let mut state = lock(&self.state);
        if state.known.len() < MOST_VERSIONS && state.known.insert(version.object.clone()) {
            state.waiting.push_back((version.object.clone(), version.size));
        }
    }

    /// Cancels the GET in flight, because a reader waits for memory. Returns how many bytes that gives back.
    pub(crate) fn give_way(&self) -> u64 {
        let bytes = self.in_flight.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            self.needed.notify_waiters();
        }
        bytes
    }

    /// The version that has its turn, and its size.
    pub(crate) fn next(&self) -> Option<(ObjectId, u64)> {
        lock(&self.state).waiting.pop_front()
    }

    /// Nothing of the version was fetched: it may have its turn when it is closed again.
    pub(crate) fn forget(&self, object: &ObjectId) {
        lock(&self.state).known.remove(object);
    }
}
