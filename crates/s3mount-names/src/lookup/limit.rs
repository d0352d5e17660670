//! Bounds how many look-ups in one directory send LIST requests at a time. The page of one of them often answers the
//! others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::{Mutex, MutexGuard, lock};

/// One semaphore for each directory in which a look-up sends a request, or waits to.
#[derive(Debug)]
pub(crate) struct LookupLimiter {
    by_directory: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    at_once: usize,
}

/// The permit of one look-up to send a request, or its place in the queue.
#[derive(Debug)]
pub(crate) struct LookupPermit<'a> {
    limiter: &'a LookupLimiter,
    directory: Arc<str>,
    permit: Option<OwnedSemaphorePermit>,
}

impl LookupLimiter {
    /// A limiter with `at_once` permits for each directory.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { by_directory: Mutex::default(), at_once }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Semaphore>>> {
        lock(&self.by_directory)
    }

    /// Waits for a permit for `directory`.
    pub(crate) async fn acquire(&self, directory: &Arc<str>) -> LookupPermit<'_> {
        let new = || Arc::new(Semaphore::new(self.at_once));
        let semaphore = self.lock().entry(directory.clone()).or_insert_with(new).clone();
        // A caller that is dropped while it waits leaves nothing behind.
        let mut permit = LookupPermit { limiter: self, directory: directory.clone(), permit: None };
        permit.permit = Some(semaphore.acquire_owned().await.expect("it is never closed"));
        permit
    }
}

impl Drop for LookupPermit<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut semaphores = self.limiter.lock();
        // The map holds the last reference: no other look-up has a permit or waits.
        if semaphores.get(&self.directory).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            semaphores.remove(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::LookupLimiter;

    #[tokio::test]
    async fn lets_some_through_and_forgets_who_is_gone() {
        let (limiter, directory) = (LookupLimiter::new(3), Arc::from("d/"));
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(limiter.acquire(&directory).await);
        }
        let mut late = std::pin::pin!(limiter.acquire(&directory));
        let mut killed = Box::pin(limiter.acquire(&directory));
        let mut context = Context::from_waker(Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        assert!(killed.as_mut().poll(&mut context).is_pending());
        permits.clear();
        drop(late.await);
        drop(killed);
        assert!(limiter.lock().is_empty());
    }
}
