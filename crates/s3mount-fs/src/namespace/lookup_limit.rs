//! Few LISTs of one directory at a time: what one brings often answers for those who wait.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::{Mutex, MutexGuard, lock};

/// Gates by directory, while anybody is at them.
#[derive(Debug)]
pub(crate) struct Gates {
    by_directory: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    at_once: usize,
}

/// A way through, or a place in the queue for one.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gates: &'a Gates,
    directory: Arc<str>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Gates {
    /// Lets so many through at once to each directory.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { by_directory: Mutex::default(), at_once }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Semaphore>>> {
        lock(&self.by_directory)
    }

    /// Waits for a way to `directory`.
    pub(crate) async fn pass(&self, directory: &Arc<str>) -> Pass<'_> {
        let new = || Arc::new(Semaphore::new(self.at_once));
        let gate = self.lock().entry(directory.clone()).or_insert_with(new).clone();
        // Who goes away while waiting leaves nothing behind.
        let mut pass = Pass { gates: self, directory: directory.clone(), permit: None };
        pass.permit = Some(gate.acquire_owned().await.expect("it is never closed"));
        pass
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut gates = self.gates.lock();
        // The map's: nobody else is here or waits.
        if gates.get(&self.directory).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::Gates;

    #[tokio::test]
    async fn lets_some_through_and_forgets_who_is_gone() {
        let (gates, directory) = (Gates::new(3), Arc::from("d/"));
        let mut passes = Vec::new();
        for _ in 0..3 {
            passes.push(gates.pass(&directory).await);
        }
        let mut late = std::pin::pin!(gates.pass(&directory));
        let mut killed = Box::pin(gates.pass(&directory));
        let mut context = Context::from_waker(Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        assert!(killed.as_mut().poll(&mut context).is_pending());
        passes.clear();
        drop(late.await);
        drop(killed);
        assert!(gates.lock().is_empty());
    }
}
