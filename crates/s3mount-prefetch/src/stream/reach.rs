//! How far apart two reads may be while the second still continues the first.

use s3mount_object::ByteRange;

/// A read up to this far behind a cursor still belongs to its stream: it is the reader's second thread, or the requests
/// are out of order. That many bytes of consumed segments stay.
pub(crate) const BEHIND_BYTES: u64 = 8 << 20;

/// The most bytes that a stream may skip at once, however much it has read. It also never skips more than its window.
/// Most of the skipped bytes were fetched.
pub(super) const AHEAD_BYTES: u64 = 16 << 20;

/// The kernel has at most two READs of 1 MiB of one reader's readahead in flight, and they arrive in any order.
pub(super) const REORDERED_BYTES: u64 = 2 << 20;

/// The largest gap after which a second read still continues a candidate. The kernel's readahead leaves no gap, and
/// loaders of records skip padding. Each stream may skip as much: a random read is rounded to at least this.
pub(super) const ADJACENT_BYTES: u64 = 128 << 10;

/// Whether `range` begins at `end`, where another read ended, or a little beyond.
pub(super) fn goes_on(end: u64, range: ByteRange) -> bool {
    (end..=end + ADJACENT_BYTES).contains(&range.start())
}
