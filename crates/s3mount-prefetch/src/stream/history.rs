//! How far the streams of one object went before their readers turned elsewhere. A reader that takes a
//! piece here and a piece there begins a stream with each piece: what it reads of one, it will read of
//! the next.

/// The latest so many streams are judged by: enough for a loader of columns of several lengths.
const REMEMBERED: usize = 8;

/// Fewer say nothing yet.
const ENOUGH: usize = 3;

/// So many bytes that nobody has read say nothing yet: another reader may be about to come to them.
const SLACK_BYTES: u64 = 32 << 20;

/// Of the bytes served, so large a part may have been fetched for nothing.
const WASTE_ALLOWED: u64 = 8;

/// Once so many bytes were served, what was fetched and served counts half: a loader may change its ways.
const HALF_LIFE_BYTES: u64 = 1 << 30;

/// The streams that were left behind last, and what was fetched and served for all.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Ids, and the bytes read.
    left: [Option<(u64, u64)>; REMEMBERED],
    next: usize,
    fetched_bytes: u64,
    served_bytes: u64,
    is_wasteful: bool,
}

impl History {
    /// The stream `id` was left behind after `len` bytes.
    pub(super) fn push(&mut self, id: u64, len: u64) {
        self.left[self.next] = Some((id, len));
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// The stream `id` goes on after all.
    pub(super) fn retract(&mut self, id: u64) {
        for entry in &mut self.left {
            entry.take_if(|(left, _)| *left == id);
        }
    }

    /// So many bytes were asked of the store for a stream.
    pub(super) fn fetched(&mut self, bytes: u64) {
        self.fetched_bytes += bytes;
    }

    /// So many of these were read, for the first time.
    pub(super) fn served(&mut self, bytes: u64) {
        self.served_bytes += bytes;
    }

    /// Judges what was fetched, while `ahead_bytes` are planned ahead of the streams that are read.
    pub(super) fn judge(&mut self, ahead_bytes: u64) {
        while self.served_bytes > HALF_LIFE_BYTES {
            self.fetched_bytes /= 2;
            self.served_bytes /= 2;
        }
        let unread = self.fetched_bytes.saturating_sub(self.served_bytes).saturating_sub(ahead_bytes);
        self.is_wasteful = unread > SLACK_BYTES + self.served_bytes / WASTE_ALLOWED;
    }

    /// Whether too much of what was fetched is not read: it was skipped, or lies beyond the end of a
    /// stream that was left behind.
    pub(super) fn is_wasteful(&self) -> bool {
        self.is_wasteful
    }

    /// How many bytes the last streams have read, the latest first.
    fn lengths(&self) -> Option<impl Iterator<Item = u64>> {
        let latest = || (1..=REMEMBERED).map(|age| self.left[(self.next + REMEMBERED - age) % REMEMBERED]);
        let lengths = move || latest().flatten().map(|(_, len)| len);
        (lengths().count() >= ENOUGH).then(lengths)
    }

    /// As many bytes each of the very last streams has read: a new one will, too.
    pub(super) fn shortest(&self) -> Option<u64> {
        self.lengths()?.take(ENOUGH).min()
    }

    /// After how many bytes a new stream may end: the longest of the last. `None` where what lies beyond
    /// is mostly read by somebody, and so not fetched for nothing.
    pub(super) fn longest(&self) -> Option<u64> {
        self.lengths().filter(|_| self.is_wasteful)?.max()
    }
}
