//! What a daemon says of its mount at one time.

use std::time::Instant;

use anyhow::Context;
use serde::Deserialize;

use super::daemon::Daemon;
use super::metrics::Metrics;

/// The metrics of a mount at one time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) metrics: Metrics,
}

impl Sample {
    /// Asks for the metrics.
    ///
    /// # Errors
    /// As of [`Daemon::ask`].
    pub(crate) fn take(daemon: &Daemon) -> anyhow::Result<Self> {
        Self::parse(&daemon.ask("stats")?)
    }

    pub(crate) fn parse(json: &str) -> anyhow::Result<Self> {
        let metrics = Metrics::parse(json)?;
        Ok(Self { at: Instant::now(), metrics })
    }
}

/// A thread whose call has no answer yet.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Caller {
    pub(crate) pid: u32,
    /// Seconds.
    pub(crate) waits: f64,
}

/// One stream of a file.
#[derive(Clone, Copy, Debug, Default, Deserialize, serde::Serialize)]
#[serde(default)]
pub(crate) struct Stream {
    pub(crate) position: u64,
    pub(crate) window_bytes: u64,
    /// Seconds.
    pub(crate) idle: u64,
}

/// A stream that was read within this many seconds is active.
const ACTIVE_SECONDS: u64 = 3;

impl Stream {
    /// Whether it was read just now.
    pub(crate) fn is_active(&self) -> bool {
        self.idle <= ACTIVE_SECONDS
    }
}

/// A file that is open.
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize)]
#[serde(default)]
pub(crate) struct OpenFile {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) gets_in_flight: u64,
    pub(crate) in_flight_bytes: u64,
    pub(crate) waiting: u64,
    /// Seconds.
    pub(crate) longest_wait: f64,
    pub(crate) streams: Vec<Stream>,
}

/// What is being read at one time, and who waits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Streams {
    /// How many files are open.
    pub(crate) open: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) in_flight_bytes: u64,
    pub(crate) callers: Vec<Caller>,
    /// Those of most interest, at most 1000.
    pub(crate) files: Vec<OpenFile>,
}

impl Streams {
    /// Asks what is being read.
    ///
    /// # Errors
    /// As of [`Daemon::ask`].
    pub(crate) fn take(daemon: &Daemon) -> anyhow::Result<Self> {
        serde_json::from_str(&daemon.ask("streams")?)
            .context("what the daemon says of its streams is no JSON; it may be of another version")
    }
}
