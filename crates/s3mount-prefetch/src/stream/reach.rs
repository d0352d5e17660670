//! How far apart two reads may be that still go on from each other.

use s3mount_object::ByteRange;

/// A read this far behind a cursor is still the cursor's: the reader's second thread, or requests
/// out of order. Segments stay for that long after they were consumed.
pub(crate) const BEHIND_BYTES: u64 = 8 << 20;

/// A stream may skip at most so much at once, however much it has read, and not more than its window:
/// what is skipped was mostly fetched.
pub(super) const AHEAD_BYTES: u64 = 16 << 20;

/// The kernel has at most two READs of 1 MiB of one reader's readahead under way, and they arrive in any
/// order.
pub(super) const REORDERED_BYTES: u64 = 2 << 20;

/// Gap after which a second read still goes on where a candidate ended: the kernel's readahead
/// leaves none, and loaders of records skip padding. Each stream may skip as much: a random read is
/// rounded to no less.
pub(super) const ADJACENT_BYTES: u64 = 128 << 10;

/// Whether `range` begins where another read ended, or a little behind.
pub(super) fn goes_on(end: u64, range: ByteRange) -> bool {
    (end..=end + ADJACENT_BYTES).contains(&range.start())
}
