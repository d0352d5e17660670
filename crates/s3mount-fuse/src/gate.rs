//! The gate that all passes that begins a change: it is shut while the daemon makes way for another one.
//!
//! Files that are being written are in this daemon's memory. So before it makes way, their writers have to close them, and
//! no other may begin. What waits at the gate has no answer, so the kernel sends it to the next daemon.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The gate. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<RwLock<()>>);

impl Gate {
    /// Waits until the gate is open. It can't be shut before the guard is dropped.
    async fn pass(&self) -> OwnedRwLockReadGuard<()> {
        self.0.clone().read_owned().await
    }

    /// Does `work` once the gate is open. It can't be shut before that is done.
    pub(crate) fn gated<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let gate = self.clone();
        async move {
            let _passed = gate.pass().await;
            work.await
        }
    }

    /// Shuts the gate, and waits until all that has passed it is done. It is open again once the guard is dropped.
    pub(crate) async fn shut(&self) -> OwnedRwLockWriteGuard<()> {
        self.0.clone().write_owned().await
    }
}
