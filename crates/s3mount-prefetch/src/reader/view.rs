//! The current state of an open version's readers, for tools that inspect the mount.

use std::time::Duration;

use super::ObjectReader;
use crate::reader::segment::SegmentState;

/// The current state of one version's readers.
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
    /// Bytes that these GETs will bring.
    pub in_flight_bytes: u64,
    /// The number of waiting reads.
    pub waiting: usize,
    /// How long the read that has waited longest has waited.
    pub longest_wait: Duration,
    /// Its streams.
    pub streams: Vec<StreamView>,
}

/// One stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamView {
    /// Its position: bytes from the object's beginning, from the object's end if the stream goes down, or of its pieces
    /// if it has a stride.
    pub position: u64,
    /// How many bytes to keep ahead of it.
    pub window_bytes: u64,
    /// Time since its last read, in whole seconds.
    pub idle: Duration,
}

impl ObjectReader {
    /// The current state of its readers.
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
