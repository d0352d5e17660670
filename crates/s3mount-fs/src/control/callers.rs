//! Whose calls have no answer yet. Whoever mounts the filesystem knows.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// A thread whose call has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The thread. 0 stands for a thread of the kernel.
    pub pid: u32,
    /// How long it has waited.
    pub waits: Duration,
}

type WhoWaits = Box<dyn Fn() -> Vec<Caller> + Send + Sync>;

/// Knows who waits. Unset where the filesystem is not mounted.
#[derive(Default)]
pub(crate) struct Callers(OnceLock<WhoWaits>);

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    /// Sets the function that knows. It can be set once.
    pub(crate) fn set(&self, who_waits: impl Fn() -> Vec<Caller> + Send + Sync + 'static) {
        // Whoever mounts sets it, and does so once.
        let _ = self.0.set(Box::new(who_waits));
    }

    /// Those who wait now.
    pub(crate) fn now(&self) -> Vec<Caller> {
        self.0.get().map(|who_waits| who_waits()).unwrap_or_default()
    }
}
