//! How a reader uses what the mount has learnt: it begins as readers of its kind of file went on, and notes how its own
//! file is read.

use super::ObjectReader;
use super::state::ReaderState;
use crate::learn::{Beginning, Reading};
use crate::limits::window::{Window, WindowLimits};
use crate::stream::Stream;

impl ObjectReader {
    /// If stream `id` has just begun at the object's beginning, opens its window as wide as readers of such files
    /// needed in the end.
    pub(super) fn begin(&self, state: &mut ReaderState, id: u64, limits: &WindowLimits<'_>) {
        let is_new = |stream: &Stream| stream.is_from_start() && stream.window.is_new();
        let is_new = state.streams.get(id).is_some_and(is_new);
        if is_new && !self.is_small() {
            state.streams.begin(id, Window::at_beginning(self.beginning(), self.size(), limits));
            state.arrive(id);
        }
    }

    /// The prefetching that a reader of such an object starts with, as the mount has learnt it.
    pub(super) fn beginning(&self) -> Beginning {
        self.shared.learnt().beginning(self.object().key(), self.shared.config.initial_window_bytes)
    }

    /// The bytes fetched ahead at the object's beginning before any read.
    pub(super) fn first_bytes(&self) -> u64 {
        let config = &self.shared.config;
        let usual = config.initial_window_bytes;
        match self.beginning() {
            Beginning::Header { bytes } => bytes.next_multiple_of(config.random_read_bytes).min(usual),
            Beginning::Usual | Beginning::Stream { .. } => usual,
        }
    }

    /// Notes how far the object was read if its reader seems to have left it, although it is still open: then the next
    /// file of its kind begins accordingly.
    pub(super) fn note_left(&self, state: &mut ReaderState) {
        let now = self.now();
        let is_left =
            |stream: &Stream| stream.is_quiet(now) && !state.awaiting_streams().contains(&stream.id);
        if state.streams.furthest_from_start().is_some_and(is_left) {
            self.note_reading(state, true);
        }
    }

    /// Notes how far the object was read from its beginning, and how fast. That happens when it was read to its
    /// end, when it is closed, or when its reader seems to have left it. Small objects are fetched whole anyway.
    pub(super) fn note_reading(&self, state: &mut ReaderState, is_closed: bool) {
        if self.is_small() {
            return;
        }
        let Some(stream) = state.streams.furthest_from_start() else { return };
        let bytes = stream.position;
        let is_whole = bytes >= self.size();
        if bytes <= state.noted_bytes || (!is_whole && !is_closed) {
            return;
        }
        let rate = stream.window.rate_at(bytes, self.now());
        let reading = Reading { bytes, is_whole, rate };
        let noted = self.shared.learnt().note(self.object().key(), reading);
        self.shared.metrics.window_size.note(stream.window.bytes());
        state.noted_bytes = bytes;
        state.noted_left = (!is_whole).then_some(noted);
    }

    /// Takes back the note that the reader left the object, once the reader has gone on.
    pub(super) fn note_return(&self, state: &mut ReaderState) {
        if state.noted_left.is_some()
            && state.streams.furthest_from_start().is_some_and(|stream| stream.position > state.noted_bytes)
            && let Some(noted) = state.noted_left.take()
        {
            self.shared.learnt().take_back(self.object().key(), noted);
        }
    }
}
