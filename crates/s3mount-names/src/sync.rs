//! Locks, atomics and tasks of this crate, from one place so that a model checker can replace them.
//!
//! Time comes from tokio's clock ([`tokio::time::Instant`]), which tests pause and advance by hand.

#[cfg(feature = "shuttle")]
mod join_set;

use std::future::Future;

use tokio::runtime::Handle;

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use tokio::task::{JoinError, JoinSet};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    future::JoinError,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

#[cfg(feature = "shuttle")]
pub(crate) use self::join_set::JoinSet;

/// Locks, also when a panic poisoned the lock: the state behind it is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `task` on `runtime`.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    drop(runtime.spawn(task));
}

/// Runs `task` as one of the checker's tasks.
#[cfg(feature = "shuttle")]
pub(crate) fn spawn(_: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    drop(shuttle::future::spawn(task));
}
