//! A value that others wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that others wait for. They are woken in the order in which they came; tokio's `watch` wakes them in an order
/// of its own, which no seed decides.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    has_changed: Notify,
}

impl<T: Copy> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), has_changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> T {
        *self.lock()
    }

    pub(crate) fn set(&self, value: T) {
        *self.lock() = value;
        self.has_changed.notify_waiters();
    }

    /// Waits until the value is one of these, and returns it.
    pub(crate) async fn wait_for(&self, is_one: impl Fn(T) -> bool) -> T {
        loop {
            let changed = self.has_changed.notified();
            let value = self.get();
            if is_one(value) {
                return value;
            }
            changed.await;
        }
    }
}
