//! Half-open ranges of bytes in an object.

use std::fmt;

/// The bytes `start..end` of an object; `end` is exclusive, and never below `start`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The bytes from `start` up to, not including, `end`.
    ///
    /// # Panics
    /// When `end < start`: such a range is a bug of the caller, never input.
    pub fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "byte range {start}..{end} ends before it starts");
        Self { start, end }
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Length in bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty range is never asked for by its emptiness alone"
    )]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether `offset` lies inside.
    pub fn contains(self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }

    /// Whether every byte of `other` lies inside.
    pub fn covers(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether the two share a byte.
    pub fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The value of an HTTP `Range` header. The range must not be empty.
    pub fn to_http(self) -> String {
        debug_assert!(self.start < self.end, "HTTP cannot ask for an empty range");
        format!("bytes={}-{}", self.start, self.end - 1)
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRange;

    #[test]
    fn http_range_is_inclusive() {
        assert_eq!(ByteRange::new(0, 1).to_http(), "bytes=0-0");
        assert_eq!(ByteRange::new(8 << 20, 16 << 20).to_http(), "bytes=8388608-16777215");
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let (a, b) = (ByteRange::new(0, 10), ByteRange::new(10, 20));
        assert!(!a.overlaps(b) && !b.overlaps(a));
        assert!(a.overlaps(ByteRange::new(9, 10)) && a.covers(ByteRange::new(9, 10)));
        assert!(!a.contains(10));
    }
}
