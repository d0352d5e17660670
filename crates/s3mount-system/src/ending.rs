//! Notices that a command is asked to end, so that it can tidy up first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// Whether the process was asked to end, by SIGINT, SIGTERM or SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on, these signals are only noticed.
    ///
    /// # Errors
    /// Fails if they can't be caught.
    pub fn watch() -> io::Result<Self> {
        let ending = Self::default();
        let noticed = ending.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .map(signal)
            .into_iter()
            .collect::<io::Result<Vec<_>>>()?;
        drop(inside);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
                futures::future::select_all(any).await;
            });
            noticed.0.store(true, Ordering::Relaxed);
        })?;
        Ok(ending)
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
