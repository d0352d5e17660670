//! A queue of bytes that wait to be written: bounded, and shed when readers need the memory. An item that exceeds the
//! bound is accepted only into an empty queue: else it would never be.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// A queue of at most a number of bytes, or of one item.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    limit_bytes: u64,
    state: Mutex<QueuedItems<T>>,
    /// Notified when an item is added, or the queue is closed.
    came: Condvar,
    /// Notified when no item waits or is being written.
    is_idle: Condvar,
    /// Notified of each item, where no thread writes.
    bell: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct QueuedItems<T> {
    items: VecDeque<(u64, T)>,
    /// Bytes that wait or are being written.
    held_bytes: u64,
    /// How many items are being written.
    taken: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let state = QueuedItems { items: VecDeque::new(), held_bytes: 0, taken: 0, is_closed: false };
        let (came, is_idle) = (Condvar::new(), Condvar::new());
        Self { limit_bytes, state: Mutex::new(state), came, is_idle, bell: None }
    }

    /// A queue without threads: items wait for [`step`](Self::step), and each notifies `bell`.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn by_hand(limit_bytes: u64, bell: Arc<Notify>) -> Self {
        Self { bell: Some(bell), ..Self::new(limit_bytes) }
    }

    fn lock(&self) -> MutexGuard<'_, QueuedItems<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait or are being written.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.lock().held_bytes
    }

    /// Whether the queue would accept an item of `bytes`.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let state = self.lock();
        self.takes(&state, bytes)
    }

    fn takes(&self, state: &QueuedItems<T>, bytes: u64) -> bool {
        let fits = state.held_bytes == 0 || state.held_bytes + bytes <= self.limit_bytes;
        fits && !state.is_closed
    }

    /// Whether no item waits or is being written.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.taken == 0 && state.items.is_empty()
    }

    /// Adds an item, or returns it if there is no room for its bytes.
    pub(crate) fn push(&self, item: T, bytes: u64) -> Result<(), T> {
        let mut state = self.lock();
        if !self.takes(&state, bytes) {
            return Err(item);
        }
        state.held_bytes += bytes;
        state.items.push_back((bytes, item));
        drop(state);
        self.came.notify_one();
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
        Ok(())
    }

    /// Passes items to `work`, one at a time, until the queue is closed.
    pub(crate) fn work(&self, mut work: impl FnMut(T)) {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return;
            }
            let Some((bytes, item)) = state.items.pop_front() else {
                state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.taken += 1;
            drop(state);
            work(item);
            state = self.done(bytes);
        }
    }

    /// Notes that an item of `bytes` was written.
    fn done(&self, bytes: u64) -> MutexGuard<'_, QueuedItems<T>> {
        let mut state = self.lock();
        state.taken -= 1;
        state.held_bytes -= bytes;
        if state.taken == 0 && state.items.is_empty() {
            self.is_idle.notify_all();
        }
        state
    }

    /// How many items wait.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().items.len()
    }

    /// Passes the waiting item with this number to `work`; the oldest is 0.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn step(&self, number: usize, work: impl FnOnce(T)) {
        let mut state = self.lock();
        let Some((bytes, item)) = state.items.remove(number) else { return };
        state.taken += 1;
        drop(state);
        work(item);
        drop(self.done(bytes));
    }

    /// Removes waiting items, the newest first, until their sum is `bytes`.
    pub(crate) fn shed(&self, bytes: u64) -> Vec<(u64, T)> {
        let (mut shed, mut freed) = (Vec::new(), 0);
        let mut state = self.lock();
        while freed < bytes
            && let Some((bytes, item)) = state.items.pop_back()
        {
            freed += bytes;
            state.held_bytes -= bytes;
            shed.push((bytes, item));
        }
        shed
    }

    /// Waits until no item waits or is being written, at most for `limit`. Returns whether the queue became idle.
    pub(crate) fn wait_idle(&self, limit: Duration) -> bool {
        let is_busy = |state: &mut QueuedItems<T>| state.taken > 0 || !state.items.is_empty();
        let waited = self.is_idle.wait_timeout_while(self.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Ends [`work`](Self::work), and drops the waiting items.
    pub(crate) fn close(&self) {
        let items = {
            let mut state = self.lock();
            state.is_closed = true;
            state.held_bytes -= state.items.iter().map(|(bytes, _)| bytes).sum::<u64>();
            std::mem::take(&mut state.items)
        };
        drop(items);
        self.came.notify_all();
        self.is_idle.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Queue;

    #[test]
    fn an_item_that_is_too_large_is_taken_alone() {
        let queue = Queue::new(10);
        assert!(queue.has_room(11) && queue.push('a', 11).is_ok());
        assert!(!queue.has_room(1) && queue.push('b', 1).is_err());
        assert_eq!(queue.shed(1), [(11, 'a')]);
        assert!(queue.push('b', 1).is_ok() && !queue.has_room(11));
    }

    #[test]
    fn it_holds_so_many_bytes_and_sheds_the_newest() {
        let queue = Queue::new(10);
        assert_eq!((queue.push('a', 4), queue.push('b', 5), queue.push('c', 2)), (Ok(()), Ok(()), Err('c')));
        assert_eq!(queue.push('d', 1), Ok(()));
        assert_eq!(queue.shed(2), [(1, 'd'), (5, 'b')]);
        assert_eq!((queue.held_bytes(), queue.wait_idle(Duration::ZERO)), (4, false));
        let mut seen = Vec::new();
        queue.work(|item| {
            seen.push(item);
            assert_eq!(queue.held_bytes(), 4, "bytes that are being written are held");
            queue.close();
        });
        assert_eq!((seen, queue.held_bytes(), queue.push('e', 1)), (vec!['a'], 0, Err('e')));
        assert!(queue.wait_idle(Duration::ZERO));
    }
}
