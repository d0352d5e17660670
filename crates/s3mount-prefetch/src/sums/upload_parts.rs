//! The parts in which an object was uploaded, if the store keeps their CRCs.
//!
//! Pure. [`UploadParts`] knows their ranges and CRCs. It cuts a GET so that it holds whole parts: these are compared
//! before a reader gets a byte of them.

use std::ops::Range;

use s3mount_object::{ByteRange, ChecksumAlgorithm, ObjectChecksum, UploadPart};

/// The most parts of an upload to S3. Each takes 16 bytes here.
pub(crate) const MOST_PARTS: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    crc: u64,
}

/// **Invariant:** no part is empty, and the last ends where the object ends.
#[derive(Debug)]
pub(crate) struct UploadParts {
    algorithm: ChecksumAlgorithm,
    parts: Vec<Part>,
}

impl UploadParts {
    /// The parts of an object of `size` bytes. `None` if their lengths do not add up to `size`, or if their CRCs are of
    /// different kinds.
    pub(crate) fn new(size: u64, uploaded: &[UploadPart]) -> Option<Self> {
        let algorithm = uploaded.first()?.checksum.algorithm;
        let mut parts = Vec::with_capacity(uploaded.len());
        let mut end = 0_u64;
        for part in uploaded {
            end = end.checked_add(part.len)?;
            if part.len == 0 || part.checksum.algorithm != algorithm || parts.len() == MOST_PARTS {
                return None;
            }
            parts.push(Part { end, crc: part.checksum.value });
        }
        (end == size).then_some(Self { algorithm, parts })
    }

    pub(crate) fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The number of parts.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The index of the part that holds `offset`.
    fn at(&self, offset: u64) -> usize {
        self.parts.partition_point(|part| part.end <= offset)
    }

    /// The bytes of a part.
    pub(crate) fn range(&self, index: usize) -> ByteRange {
        let start = index.checked_sub(1).map_or(0, |before| self.parts[before].end);
        ByteRange::new(start, self.parts[index].end)
    }

    /// The CRC of a part.
    pub(crate) fn checksum(&self, index: usize) -> ObjectChecksum {
        ObjectChecksum { algorithm: self.algorithm, value: self.parts[index].crc }
    }

    /// The indexes of the parts that hold any byte of `range`, which is not empty.
    pub(crate) fn touching(&self, range: ByteRange) -> Range<usize> {
        self.at(range.start())..self.at(range.end() - 1) + 1
    }

    /// Where the part that holds `offset` ends. There is no part beyond the object's end.
    pub(crate) fn end_of(&self, offset: u64) -> u64 {
        self.parts.get(self.at(offset)).map_or(u64::MAX, |part| part.end)
    }

    /// Cuts a planned GET to whole parts of up to `most` bytes. A GET that holds less than a part goes on to
    /// the part's end, unless that is beyond `limit`. A GET that begins in the middle of a part ends with
    /// that part, so that the next GET holds whole parts again. Among parts that are longer than `most`, the
    /// GET stays as it is.
    pub(crate) fn fit(&self, planned: ByteRange, most: u64, limit: u64) -> ByteRange {
        let Some(part) = self.parts.get(self.at(planned.start())) else { return planned };
        let first = self.range(self.at(planned.start()));
        if planned.len() == 0 || first.len() > most {
            return planned;
        }
        let end = if first.start() < planned.start() {
            planned.end().min(part.end)
        } else if planned.end() < part.end {
            if part.end <= limit { part.end } else { planned.end() }
        } else {
            let whole = self.parts.partition_point(|part| part.end <= planned.end());
            self.parts[whole - 1].end
        };
        ByteRange::new(planned.start(), end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use s3mount_object::{ByteRange, ChecksumAlgorithm, ObjectChecksum, UploadPart};

    use super::UploadParts;

    fn part(len: u64, algorithm: ChecksumAlgorithm) -> UploadPart {
        UploadPart { len, checksum: ObjectChecksum { algorithm, value: len } }
    }

    fn parts(lens: &[u64]) -> UploadParts {
        let uploaded: Vec<_> = lens.iter().map(|len| part(*len, ChecksumAlgorithm::Crc32)).collect();
        UploadParts::new(lens.iter().sum(), &uploaded).expect("they make it up")
    }

    #[test]
    fn parts_that_do_not_make_up_the_object_are_none() {
        let crc = |len| part(len, ChecksumAlgorithm::Crc32);
        assert!(UploadParts::new(10, &[crc(5), crc(5)]).is_some());
        assert!(UploadParts::new(11, &[crc(5), crc(5)]).is_none());
        assert!(UploadParts::new(0, &[]).is_none());
        assert!(UploadParts::new(10, &[crc(10), crc(0)]).is_none());
        assert!(UploadParts::new(10, &[crc(5), part(5, ChecksumAlgorithm::Crc32c)]).is_none());
        assert!(UploadParts::new(5, &[crc(u64::MAX), crc(6)]).is_none());
        assert!(UploadParts::new(20_000, &vec![crc(1); 20_000]).is_none());
    }

    #[test]
    fn a_get_holds_whole_parts() {
        let parts = parts(&[8, 8, 8, 20, 3]);
        let fit = |start, end, limit| {
            let fit = parts.fit(ByteRange::new(start, end), 10, limit);
            assert_eq!(fit.start(), start);
            fit.end()
        };
        assert_eq!(fit(0, 2, 47), 8, "less than a part");
        assert_eq!(fit(0, 2, 7), 2, "and no more is wanted");
        assert_eq!(fit(0, 10, 47), 8);
        assert_eq!(fit(0, 17, 47), 16, "two");
        assert_eq!(fit(3, 13, 47), 8, "the rest of one");
        assert_eq!(fit(3, 5, 47), 5);
        assert_eq!(fit(24, 34, 47), 34, "a long one");
        assert_eq!(fit(40, 50, 47), 50);
        assert_eq!(fit(44, 45, 47), 47);
    }

    proptest! {
        #[test]
        fn each_byte_lies_in_its_part(lens in proptest::collection::vec(1..50_u64, 1..20), at in 0..1000_u64, len in 1..100_u64) {
            let parts = parts(&lens);
            let size = lens.iter().sum::<u64>();
            let (start, end) = (at % size, (at % size + len).min(size));
            let range = ByteRange::new(start, end);
            let touching = parts.touching(range);
            prop_assert!(parts.range(touching.start).contains(start));
            prop_assert!(parts.range(touching.end - 1).contains(end - 1));
            prop_assert_eq!(parts.end_of(start), parts.range(touching.start).end());
            prop_assert_eq!(parts.range(parts.count() - 1).end(), size);
        }
    }
}
