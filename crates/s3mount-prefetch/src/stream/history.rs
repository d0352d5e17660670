//! How far the streams of one object went before their readers moved elsewhere. A reader of scattered pieces begins a
//! stream with each piece. It will read as much of the next piece as of the last.

/// The number of latest streams that are remembered: enough for a loader of columns of several lengths.
const REMEMBERED: usize = 8;

/// Fewer streams than this prove nothing.
const ENOUGH: usize = 3;

/// This many unread bytes prove nothing: another reader may be about to reach them.
const SLACK_BYTES: u64 = 32 << 20;

/// Up to an eighth of the bytes served may be fetched in vain.
const WASTE_ALLOWED: u64 = 8;

/// When this many bytes have been served, both counts are halved: a loader may change its pattern.
const HALF_LIFE_BYTES: u64 = 1 << 30;

/// The last streams that were left behind, and the bytes fetched and served for all streams.
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
    /// Notes that the stream `id` was left behind after `len` bytes.
    pub(super) fn push(&mut self, id: u64, len: u64) {
        self.left[self.next] = Some((id, len));
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Notes that the stream `id` goes on after all.
    pub(super) fn retract(&mut self, id: u64) {
        for entry in &mut self.left {
            entry.take_if(|(left, _)| *left == id);
        }
    }

    /// Notes that a GET of `bytes` was sent for a stream.
    pub(super) fn fetched(&mut self, bytes: u64) {
        self.fetched_bytes += bytes;
    }

    /// Notes how many fetched bytes were read for the first time.
    pub(super) fn served(&mut self, bytes: u64) {
        self.served_bytes += bytes;
    }

    /// Judges whether too much is fetched, while `ahead_bytes` are planned ahead of active streams.
    pub(super) fn judge(&mut self, ahead_bytes: u64) {
        while self.served_bytes > HALF_LIFE_BYTES {
            self.fetched_bytes /= 2;
            self.served_bytes /= 2;
        }
        let unread = self.fetched_bytes.saturating_sub(self.served_bytes).saturating_sub(ahead_bytes);
        self.is_wasteful = unread > SLACK_BYTES + self.served_bytes / WASTE_ALLOWED;
    }

    /// Whether too many fetched bytes stay unread: they were skipped, or lie beyond the end of a stream that was left
    /// behind.
    pub(super) fn is_wasteful(&self) -> bool {
        self.is_wasteful
    }

    /// How many bytes each of the last streams has read, the latest first.
    fn lengths(&self) -> Option<impl Iterator<Item = u64>> {
        let latest = || (1..=REMEMBERED).map(|age| self.left[(self.next + REMEMBERED - age) % REMEMBERED]);
        let lengths = move || latest().flatten().map(|(_, len)| len);
        (lengths().count() >= ENOUGH).then(lengths)
    }

    /// The least bytes that one of the very last streams has read. A new stream will read as much.
    pub(super) fn shortest(&self) -> Option<u64> {
        self.lengths()?.take(ENOUGH).min()
    }

    /// The bytes after which a new stream may end: the length of the longest of the last streams. `None` if readers
    /// read most of the bytes beyond, which are then not fetched in vain.
    pub(super) fn longest(&self) -> Option<u64> {
        self.lengths().filter(|_| self.is_wasteful)?.max()
    }
}
