//! Threads whose calls have no answer yet. The crate that mounts the filesystem knows them.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// A thread whose call has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The thread. 0 is a thread of the kernel.
    pub pid: u32,
    /// How long it has waited.
    pub waits: Duration,
}

type WhoWaits = Box<dyn Fn() -> Vec<Caller> + Send + Sync>;

/// Returns the waiting callers. Unset if the filesystem is not mounted.
#[derive(Default)]
pub(crate) struct Callers(OnceLock<WhoWaits>);

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    /// Sets the function that returns the callers. It can be set once.
    pub(crate) fn set(&self, who_waits: impl Fn() -> Vec<Caller> + Send + Sync + 'static) {
        // The mounting crate sets it once.
        let _ = self.0.set(Box::new(who_waits));
    }

    /// The callers that wait now.
    pub(crate) fn now(&self) -> Vec<Caller> {
        self.0.get().map(|who_waits| who_waits()).unwrap_or_default()
    }
}
