//! How far the streams of one object went before their readers turned elsewhere. A reader that takes a piece
//! here and a piece there begins a stream with each piece. What it reads of one piece, it will read of the
//! next.

/// How many of the latest streams are remembered: enough for a loader of columns of several lengths.
const REMEMBERED: usize = 8;

/// Fewer streams than this say nothing yet.
const ENOUGH: usize = 3;

/// This many unread bytes say nothing yet: another reader may be about to come to them.
const SLACK_BYTES: u64 = 32 << 20;

/// An eighth of the bytes served may have been fetched for nothing.
const WASTE_ALLOWED: u64 = 8;

/// When this many bytes have been served, both counts are halved: a loader may change its ways.
const HALF_LIFE_BYTES: u64 = 1 << 30;

/// The streams that were left behind last, and how many bytes were fetched and served for all streams.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The ids of the streams, and how many bytes each has read.
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

    /// A GET of `bytes` was sent for a stream.
    pub(super) fn fetched(&mut self, bytes: u64) {
        self.fetched_bytes += bytes;
    }

    /// This many of the fetched bytes were read for the first time.
    pub(super) fn served(&mut self, bytes: u64) {
        self.served_bytes += bytes;
    }

    /// Judges whether too much is fetched, while `ahead_bytes` are planned ahead of the streams that are
    /// read.
    pub(super) fn judge(&mut self, ahead_bytes: u64) {
        while self.served_bytes > HALF_LIFE_BYTES {
            self.fetched_bytes /= 2;
            self.served_bytes /= 2;
        }
        let unread = self.fetched_bytes.saturating_sub(self.served_bytes).saturating_sub(ahead_bytes);
        self.is_wasteful = unread > SLACK_BYTES + self.served_bytes / WASTE_ALLOWED;
    }

    /// Whether too many of the fetched bytes are not read: they were skipped, or lie beyond the end of a
    /// stream that was left behind.
    pub(super) fn is_wasteful(&self) -> bool {
        self.is_wasteful
    }

    /// How many bytes each of the last streams has read, the latest first.
    fn lengths(&self) -> Option<impl Iterator<Item = u64>> {
        let latest = || (1..=REMEMBERED).map(|age| self.left[(self.next + REMEMBERED - age) % REMEMBERED]);
        let lengths = move || latest().flatten().map(|(_, len)| len);
        (lengths().count() >= ENOUGH).then(lengths)
    }

    /// The least that each of the very last streams has read. A new stream will read as much.
    pub(super) fn shortest(&self) -> Option<u64> {
        self.lengths()?.take(ENOUGH).min()
    }

    /// After how many bytes a new stream may end: the length of the longest of the last ones. `None` where
    /// most of the bytes beyond are read by somebody, and so are not fetched for nothing.
    pub(super) fn longest(&self) -> Option<u64> {
        self.lengths().filter(|_| self.is_wasteful)?.max()
    }
}
