//! The whole objects to compare with their checksums in the background, and in which order.
//!
//! - *Doubtful* objects may not have survived a power cut. The kernel gets them only after the comparison, so they come
//!   first.
//! - *Passed* objects were read by the kernel, which compares nothing, and reports no unreadable sector to the daemon.
//!   They are checked slowly. The one that was closed last comes first: a reader whose read failed tries again soon.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::clock::SinceBoot;
use crate::disk::layout::Hash;
use crate::disk::object::whole::Named;

/// The most objects of each kind that wait. Further ones are compared at their next use.
const MOST_WAITING: usize = 4096;

/// An object that the kernel reads is not checked again before this time has passed.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// The most objects whose last check is remembered, at 64 bytes each.
const MOST_KNOWN: usize = 1 << 16;

/// Why an object is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Doubtful,
    Passed,
}

/// Objects that wait to be compared.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    state: Mutex<CheckQueues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CheckQueues {
    doubtful: VecDeque<Named>,
    passed: VecDeque<Named>,
    /// All waiting objects.
    waiting: HashSet<Hash>,
    /// When objects that the kernel reads were last checked and found right.
    known: HashMap<Hash, SinceBoot>,
    /// Whether a doubtful object is being compared.
    is_busy: bool,
    is_closed: bool,
}

impl Checks {
    fn lock(&self) -> MutexGuard<'_, CheckQueues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an object, unless it waits already or was just checked.
    pub(crate) fn push(&self, named: &Named, why: Why, now: SinceBoot) {
        let mut state = self.lock();
        let is_known = |then: &SinceBoot| now.since(*then) < AGAIN_AFTER;
        let is_done = why == Why::Passed && state.known.get(&named.hash).is_some_and(is_known);
        if state.is_closed || is_done || state.waiting.contains(&named.hash) {
            return;
        }
        match why {
            Why::Doubtful if state.doubtful.len() == MOST_WAITING => return,
            Why::Doubtful => state.doubtful.push_back(named.clone()),
            Why::Passed => {
                if state.passed.len() == MOST_WAITING
                    && let Some(oldest) = state.passed.pop_front()
                {
                    state.waiting.remove(&oldest.hash);
                }
                state.passed.push_back(named.clone());
            }
        }
        state.waiting.insert(named.hash);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether a doubtful object waits.
    pub(crate) fn has_doubtful(&self) -> bool {
        !self.lock().doubtful.is_empty()
    }

    /// Takes out the object that comes next.
    pub(crate) fn next(&self) -> Option<(Named, Why)> {
        let mut state = self.lock();
        let doubtful = state.doubtful.pop_front().map(|named| (named, Why::Doubtful));
        let (named, why) = doubtful.or_else(|| state.passed.pop_back().map(|named| (named, Why::Passed)))?;
        state.waiting.remove(&named.hash);
        state.is_busy = why == Why::Doubtful;
        Some((named, why))
    }

    /// Notes that an object that the kernel reads was checked and found right.
    pub(crate) fn on_right(&self, hash: Hash, now: SinceBoot) {
        let mut state = self.lock();
        if state.known.len() == MOST_KNOWN {
            state.known.clear();
        }
        state.known.insert(hash, now);
    }

    /// Notes that the comparison of the object that was taken out last has ended.
    pub(crate) fn done(&self) {
        self.lock().is_busy = false;
        self.changed.notify_all();
    }

    /// Whether an object waits.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn has_any(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Sleeps for `rest`, or until an object is queued. Returns whether the checks go on.
    pub(crate) fn rest(&self, rest: Option<Duration>) -> bool {
        let state = self.lock();
        let is_closed = match rest {
            Some(rest) => {
                let waited = self.changed.wait_timeout_while(state, rest, |state| !state.is_closed);
                waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
            }
            None => {
                let is_idle = |state: &mut CheckQueues| !state.is_closed && state.waiting.is_empty();
                let waited = self.changed.wait_while(state, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).is_closed
            }
        };
        !is_closed
    }

    /// Waits until no object is doubtful, at most for `limit`. Returns whether none is.
    pub(crate) fn wait_doubtful(&self, limit: Duration) -> bool {
        let is_left = |state: &mut CheckQueues| state.is_busy || !state.doubtful.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Ends all comparisons.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        *state = CheckQueues { is_closed: true, ..CheckQueues::default() };
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, ObjectId};

    use super::{AGAIN_AFTER, Checks, MOST_WAITING, Why};
    use crate::disk::clock::SinceBoot;
    use crate::disk::layout::Hash;
    use crate::disk::object::whole::Named;

    fn named(number: usize) -> Named {
        let object = ObjectId::new(&number.to_string(), ETag::new("\"1\""));
        let hash = Hash::of("test", &object);
        Named { object, size: 1, hash }
    }

    #[test]
    fn the_doubtful_come_first_and_of_the_others_the_last() {
        let (checks, now) = (Checks::default(), SinceBoot(1));
        for number in 0..3 {
            checks.push(&named(number), Why::Passed, now);
            checks.push(&named(number), Why::Passed, now);
            checks.push(&named(10 + number), Why::Doubtful, now);
        }
        let next = || checks.next().map(|(named, why)| (named.object.key().to_owned(), why));
        let order: Vec<_> = std::iter::from_fn(next).collect();
        let expected = ["10", "11", "12"]
            .map(|key| (key, Why::Doubtful))
            .into_iter()
            .chain(["2", "1", "0"].map(|key| (key, Why::Passed)));
        assert!(order.iter().map(|(key, why)| (key.as_str(), *why)).eq(expected), "{order:?}");
    }

    #[test]
    fn the_kernels_files_are_looked_through_again_later() {
        let (checks, now) = (Checks::default(), SinceBoot(1));
        let takes = |now| {
            checks.push(&named(0), Why::Passed, now);
            let taken = checks.next();
            taken.map(|(named, _)| checks.on_right(named.hash, now)).is_some()
        };
        assert!(takes(now) && !takes(now.after(AGAIN_AFTER / 2)) && takes(now.after(AGAIN_AFTER)));
        checks.push(&named(0), Why::Doubtful, now.after(AGAIN_AFTER));
        assert!(checks.next().is_some(), "a doubtful object is compared each time");
    }

    #[test]
    fn only_so_many_wait() {
        let (checks, now) = (Checks::default(), SinceBoot(1));
        for number in 0..2 * MOST_WAITING {
            checks.push(&named(number), Why::Passed, now);
            checks.push(&named(2 * MOST_WAITING + number), Why::Doubtful, now);
        }
        let order: Vec<_> = std::iter::from_fn(|| checks.next()).collect();
        assert_eq!(order.len(), 2 * MOST_WAITING);
        let key = |at: usize| order[at].0.object.key().to_owned();
        assert_eq!(key(0), (2 * MOST_WAITING).to_string(), "the first");
        assert_eq!(key(MOST_WAITING), (2 * MOST_WAITING - 1).to_string(), "the last");
    }
}
