//! Locks, atomics and tasks of this crate, from one place so that a model checker can replace them.
//!
//! Time comes from tokio's clock ([`tokio::time::Instant`]), which tests pause and advance by hand.

use std::future::Future;

use tokio::runtime::Handle;

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use tokio::task::JoinHandle;

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    future::JoinHandle,
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Locks, also when a panic poisoned the lock: the state behind it is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `task` on `runtime`, also after the result was dropped.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn spawn<T: Send + 'static>(
    runtime: &Handle,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(task)
}

/// Runs `task` as one of the checker's tasks.
#[cfg(feature = "shuttle")]
pub(crate) fn spawn<T: Send + 'static>(
    _: &Handle,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    shuttle::future::spawn(task)
}
