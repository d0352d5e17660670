//! Bounds how many LIST requests ahead of their readers are in flight. The bound falls when the store throttles.

use std::sync::Arc;

use crate::sync::{Mutex, MutexGuard, lock};

/// The most of these requests, in all listings. With the one that a reader waits for there are 16. At 60 ms
/// each, they bring 267 pages a second.
const MOST: usize = 15;

/// After this many successful LISTs the bound is doubled again. A store that allows 20 LISTs a second then throttles
/// one in thirty.
const GOOD: u32 = 64;

/// How many permits there are, and how many are in use.
#[derive(Debug)]
struct Permits {
    most: usize,
    under_way: usize,
    good: u32,
}

/// The permits for LIST requests ahead of their readers.
#[derive(Debug)]
pub(crate) struct ListThrottle(Mutex<Permits>);

/// One permit.
#[derive(Debug)]
pub(crate) struct ListPermit(Arc<ListThrottle>);

impl Default for ListThrottle {
    fn default() -> Self {
        Self(Mutex::new(Permits { most: MOST, under_way: 0, good: 0 }))
    }
}

impl ListThrottle {
    fn lock(&self) -> MutexGuard<'_, Permits> {
        lock(&self.0)
    }

    /// A permit, if one is free.
    pub(crate) fn permit(self: &Arc<Self>) -> Option<ListPermit> {
        let mut state = self.lock();
        let is_free = state.under_way < state.most;
        state.under_way += usize::from(is_free);
        drop(state);
        is_free.then(|| ListPermit(self.clone()))
    }

    /// How many permits are free.
    pub(crate) fn spare(&self) -> usize {
        let state = self.lock();
        state.most.saturating_sub(state.under_way)
    }

    /// Notes that any LIST has succeeded.
    pub(crate) fn on_success(&self) {
        let mut state = self.lock();
        state.good += 1;
        if state.good >= GOOD {
            (state.good, state.most) = (0, (state.most * 2).clamp(1, MOST));
        }
    }

    /// Notes that the store has throttled a request.
    pub(crate) fn on_throttled(&self) {
        let mut state = self.lock();
        (state.good, state.most) = (0, state.most / 2);
    }
}

impl Drop for ListPermit {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{GOOD, ListThrottle, MOST};

    #[test]
    fn places_are_halved_and_come_back() {
        let throttle = Arc::new(ListThrottle::default());
        let permits: Vec<_> = std::iter::from_fn(|| throttle.permit()).collect();
        assert_eq!((permits.len(), throttle.spare()), (MOST, 0));
        throttle.on_throttled();
        drop(permits);
        assert_eq!(throttle.spare(), MOST / 2);
        (0..4).for_each(|_| throttle.on_throttled());
        assert!(throttle.permit().is_none(), "one page after another");
        (0..GOOD * 5).for_each(|_| throttle.on_success());
        assert_eq!(throttle.spare(), MOST);
    }
}
