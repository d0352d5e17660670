//! What an open version's readers are doing, for those who look at the mount.

use std::time::Duration;

use super::ObjectReader;
use crate::segment::SegmentState;

/// What the readers of one version are doing now.
#[derive(Clone, Debug, Default)]
pub struct ReaderView {
    /// The key of the version.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that were fetched for a stream or a hint, and not read yet.
    pub unread_bytes: u64,
    /// GETs in flight.
    pub gets_in_flight: usize,
    /// Bytes that these GETs are to bring.
    pub in_flight_bytes: u64,
    /// Reads that wait.
    pub waiting: usize,
    /// How long the longest of them has waited.
    pub longest_wait: Duration,
    /// Its streams.
    pub streams: Vec<StreamView>,
}

/// One stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamView {
    /// How far it has come: bytes from the object's beginning, from its end if the stream goes down, or of its
    /// pieces if it has a stride.
    pub position: u64,
    /// How many bytes are to be ahead of it.
    pub window_bytes: u64,
    /// How long it was not read, in whole seconds.
    pub idle: Duration,
}

impl ObjectReader {
    /// What its readers are doing now.
    pub(crate) fn view(&self) -> ReaderView {
        let mut view =
            ReaderView { key: self.object().key().to_owned(), size: self.size(), ..ReaderView::default() };
        let state = &self.lock().state;
        for segment in state.segments.iter() {
            view.unread_bytes += segment.unread_bytes();
            if let SegmentState::InFlight { waiters, .. } = &segment.state {
                view.gets_in_flight += 1;
                view.in_flight_bytes += segment.range.len();
                view.waiting += waiters.len();
                let longest = waiters.iter().map(|waiter| waiter.since.elapsed()).max();
                view.longest_wait = view.longest_wait.max(longest.unwrap_or_default());
            }
        }
        view.streams = state
            .streams
            .iter()
            .map(|stream| StreamView {
                position: stream.position,
                window_bytes: stream.window.bytes(),
                idle: Duration::from_secs(stream.idle_ticks.into()),
            })
            .collect();
        view
    }
}
