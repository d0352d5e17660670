//! How a copy is cut into parts. Pure.

use s3mount_object::ByteRange;

use crate::part_layout::{LEAST_PART, MOST_PARTS};

const MIB: u64 = 1 << 20;

/// S3 takes no longer part, and copies no more by one request.
pub(super) const MOST_PART: u64 = 5 << 30;

/// Objects of up to this many bytes are copied by one request, unless the length of the parts is given. Two
/// parts would need four requests more, and save less than half a second.
const MOST_WHOLE: u64 = 128 * MIB;

/// The shortest and the longest part that is chosen. A copy of 10 GB takes as long with parts of 64 MiB as
/// with parts of 1 GiB, and more than twice as long with parts of 8 MiB. What an interrupted copy has to
/// repeat, and how long a request stays without an answer, grows with them.
const CHOSEN: std::ops::RangeInclusive<u64> = 64 * MIB..=256 * MIB;

/// A copy has about so many parts, as long as their length can be chosen: four rounds of sixteen requests.
const WANTED_PARTS: u64 = 64;

/// The parts of one copy: all of them have the same length, but the last. Some stores want that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    size: u64,
    len: u64,
}

impl Parts {
    /// The parts of an object of `size` bytes, of a length that is given or chosen. `None` for an object that
    /// is longer than S3 can copy.
    pub(super) fn new(size: u64, given: Option<u64>) -> Option<Self> {
        let least = size.div_ceil(u64::from(MOST_PARTS)).next_multiple_of(MIB);
        let len = match given {
            Some(given) => given.clamp(LEAST_PART, MOST_PART),
            // The parts share the bytes evenly.
            None => {
                let len = (size / WANTED_PARTS).clamp(*CHOSEN.start(), *CHOSEN.end());
                size.div_ceil(size.div_ceil(len).max(1)).next_multiple_of(MIB)
            }
        };
        let len = len.max(least);
        (len <= MOST_PART).then_some(Self { size, len })
    }

    /// Whether an object of `size` bytes is copied by one request.
    pub(super) fn is_one(size: u64, given: Option<u64>) -> bool {
        size <= given.unwrap_or(MOST_WHOLE).min(MOST_PART)
    }

    /// The number and the range of each part.
    pub(super) fn all(self) -> impl Iterator<Item = (u32, ByteRange)> {
        let ranges = (0..self.size).step_by(usize::try_from(self.len).unwrap_or(usize::MAX));
        (1..).zip(ranges.map(move |start| ByteRange::new(start, (start + self.len).min(self.size))))
    }

    /// The length of a part; `None` for a number that no part has.
    pub(super) fn len_of(self, number: u32) -> Option<u64> {
        let start = u64::from(number.checked_sub(1)?).checked_mul(self.len)?;
        (start < self.size).then(|| self.len.min(self.size - start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MIB, MOST_PART, Parts};

    #[test]
    fn lengths_follow_the_size() {
        let cases = [
            (129 * MIB, None, 43),
            (1 << 30, None, 64),
            (10_000_000_000, None, 150),
            (1 << 40, None, 256),
            (5 << 40, None, 525),
            (10_000_000_000, Some(8 * MIB), 8),
            (5 << 40, Some(8 * MIB), 525),
        ];
        for (size, given, mib) in cases {
            assert_eq!(Parts::new(size, given).map(|parts| parts.len / MIB), Some(mib), "{size} {given:?}");
        }
        assert_eq!(Parts::new(50 << 40, None), None);
        assert!(Parts::is_one(128 * MIB, None) && !Parts::is_one(128 * MIB + 1, None));
        assert!(!Parts::is_one(MOST_PART + 1, Some(u64::MAX)));
    }

    proptest! {
        #[test]
        fn parts_cover_the_object(size in 1_u64..1 << 42, given in proptest::option::of(1_u64..1 << 34)) {
            let parts = Parts::new(size, given).expect("it is not too long");
            let (mut end, mut count) = (0, 0);
            for (number, range) in parts.all() {
                count += 1;
                prop_assert_eq!((number, range.start()), (count, end));
                prop_assert_eq!(parts.len_of(number), Some(range.len()));
                prop_assert!(range.len() <= MOST_PART && (range.len() >= 5 * MIB || range.end() == size));
                end = range.end();
            }
            prop_assert_eq!((end, parts.len_of(count + 1)), (size, None));
            prop_assert!(count <= 10_000);
        }
    }
}
