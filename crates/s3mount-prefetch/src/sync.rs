//! Locks, atomics and tasks of this crate. They come from one place so that a model checker can replace them.

use std::future::Future;
use std::time::Duration;

#[cfg(feature = "shuttle")]
use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::runtime::Handle;

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use tokio::task::AbortHandle;

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    future::AbortHandle,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Locks, even if a panic has poisoned the lock: the data behind it is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `task` on `runtime`.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    runtime.spawn(task).abort_handle()
}

/// Runs `task` as a task of the model checker.
#[cfg(feature = "shuttle")]
pub(crate) fn spawn(_: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    shuttle::future::spawn(task).abort_handle()
}

/// Waits for `task`, but no longer than `limit`.
#[cfg(not(feature = "shuttle"))]
pub(crate) async fn at_most<F: Future + Unpin>(limit: Duration, task: F) -> Option<F::Output> {
    tokio::time::timeout(limit, task).await.ok()
}

/// Waits for `task`, but for no more than a few turns: the model checker has no time.
#[cfg(feature = "shuttle")]
pub(crate) async fn at_most<F: Future + Unpin>(_: Duration, mut task: F) -> Option<F::Output> {
    for _ in 0..4 {
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut task).poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        shuttle::future::yield_now().await;
    }
    None
}
