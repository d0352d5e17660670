//! Events of a mount, as its daemon sends them.

use serde::Deserialize;

/// A request to the store that has ended. Times are in microseconds, `at` from the beginning of the listening.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) operation: String,
    pub(crate) status: String,
    pub(crate) key: String,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) at: i64,
    /// How long after it was sent the first byte came.
    pub(crate) first: Option<i64>,
    pub(crate) took: i64,
}

/// A call of a program that was answered. Times are in microseconds, as those of a request.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) operation: String,
    pub(crate) pid: u32,
    pub(crate) key: String,
    pub(crate) len: u64,
    pub(crate) at: i64,
    pub(crate) took: i64,
}

/// Something that has happened.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    Request(Request),
    Call(Call),
    /// So many events are missing here, because nobody took them in time.
    Lost {
        count: u64,
    },
    /// Another event.
    #[serde(other)]
    Unknown,
}

impl Event {
    /// The event of a line. A line that can't be read is left out: it comes from another version.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}
