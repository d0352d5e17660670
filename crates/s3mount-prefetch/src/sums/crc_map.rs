//! Checksums of an object's bytes as they arrive: range by range, in any order.
//!
//! [`CrcMap`] is pure. It knows the CRC of each range that was fetched. When no gap is left, it computes the
//! CRC of the whole object from these.

use std::collections::BTreeMap;
use std::sync::Arc;

use crc_fast::CrcAlgorithm;
use s3mount_object::{ByteRange, ChecksumAlgorithm, FollowedBy, ObjectChecksum};

use crate::sums::upload_parts::UploadParts;

/// The most pieces of one object, and one more for each part of its upload. A piece takes 56 bytes. Objects of up to
/// 256 MiB keep pieces of 128 KiB, and one of 16 GiB has pieces of 8 MiB.
const MOST_PIECES: usize = 2048;

const ALGORITHMS: usize = ChecksumAlgorithm::ALL.len();

/// The CRCs of the same bytes by all algorithms, or by one. Any CRC may be needed until the store has named the one
/// that it keeps. 0 stands for a CRC that was not computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums([u64; ALGORITHMS]);

impl Sums {
    /// The CRC of `bytes` by `only`, or by all algorithms.
    pub(crate) fn of(bytes: &[u8], only: Option<ChecksumAlgorithm>) -> Self {
        Self(ChecksumAlgorithm::ALL.map(|algorithm| match only {
            Some(only) if only != algorithm => 0,
            _ => crc_fast::checksum(named(algorithm), bytes),
        }))
    }

    /// Adds the CRC-64/NVME of the same `bytes` if it is missing.
    pub(crate) fn with_crc64(mut self, bytes: &[u8]) -> Self {
        for (sum, algorithm) in self.0.iter_mut().zip(ChecksumAlgorithm::ALL) {
            if algorithm == ChecksumAlgorithm::Crc64Nvme && *sum == 0 {
                *sum = crc_fast::checksum(named(algorithm), bytes);
            }
        }
        self
    }

    /// The CRC by `algorithm`.
    pub(crate) fn get(&self, algorithm: ChecksumAlgorithm) -> ObjectChecksum {
        let indexes = ChecksumAlgorithm::ALL.iter().zip(self.0);
        let value = indexes.filter(|(other, _)| **other == algorithm).map(|(_, value)| value).sum();
        ObjectChecksum { algorithm, value }
    }

    /// The first CRC that both have and that differs: that of `self` and that of `other`.
    fn difference(&self, other: &Self) -> Option<(ObjectChecksum, ObjectChecksum)> {
        let both = |algorithm| (self.get(algorithm), other.get(algorithm));
        let mut all = ChecksumAlgorithm::ALL.into_iter().map(both);
        all.find(|(here, there)| here.value != 0 && there.value != 0 && here != there)
    }
}

fn named(algorithm: ChecksumAlgorithm) -> CrcAlgorithm {
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Crc32c => CrcAlgorithm::Crc32Iscsi,
        ChecksumAlgorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
    }
}

/// Joins the CRCs of neighbours. Most pieces have the same length, so the last factor is kept.
struct Joiner {
    len: u64,
    followed: [FollowedBy; ALGORITHMS],
}

impl Joiner {
    fn new() -> Self {
        Self { len: 0, followed: ChecksumAlgorithm::ALL.map(|algorithm| FollowedBy::new(algorithm, 0)) }
    }

    /// The CRCs of the bytes with the CRCs `first`, followed by `len` bytes with the CRCs `next`.
    fn join(&mut self, first: &Sums, next: &Sums, len: u64) -> Sums {
        if self.len != len {
            self.len = len;
            self.followed = ChecksumAlgorithm::ALL.map(|algorithm| FollowedBy::new(algorithm, len));
        }
        Sums(std::array::from_fn(|index| self.followed[index].join(first.0[index], next.0[index])))
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    sums: Sums,
    /// Whether the piece was fetched more than once. Then it is unknown which readers have the bytes of the first
    /// fetch.
    came_again: bool,
}

/// The result of noting a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// The range is new, or its CRC is the same as before.
    Fine,
    /// The CRC differs from the earlier one, so the bytes do, too. The earlier CRC comes first.
    Differs(ObjectChecksum, ObjectChecksum),
    /// There are too many pieces, and all of them are forgotten.
    TooMany,
}

/// The CRCs of the fetched ranges of one object.
///
/// **Invariant:** pieces are not empty and do not overlap. None reaches across a multiple of `cell`, or
/// across the end of a part of the upload.
#[derive(Debug)]
pub(crate) struct CrcMap {
    size: u64,
    /// The parts in which the object was uploaded, once they are known, if they have CRCs of their own.
    parts: Option<Arc<UploadParts>>,
    /// The largest length of a piece, in bytes. It doubles when there are too many pieces.
    cell: u64,
    most: usize,
    pieces: BTreeMap<u64, Piece>,
    covered_bytes: u64,
}

impl CrcMap {
    /// No pieces yet, for an object of `size` bytes. Pieces have at most `cell` bytes, until there are too
    /// many.
    pub(crate) fn new(size: u64, cell: u64) -> Self {
        Self { size, parts: None, cell, most: MOST_PIECES, pieces: BTreeMap::new(), covered_bytes: 0 }
    }

    /// From now on, pieces end where a part of `parts` ends. Forgets the pieces that reach across such an
    /// end. Returns whether there was any.
    pub(crate) fn set_parts(&mut self, parts: Arc<UploadParts>) -> bool {
        let before = self.covered_bytes;
        self.pieces.retain(|start, piece| {
            let is_inside = parts.end_of(*start) >= piece.end;
            self.covered_bytes -= if is_inside { 0 } else { piece.end - start };
            is_inside
        });
        self.parts = Some(parts);
        self.covered_bytes < before
    }

    /// How many pieces it holds. A part of the upload takes as much memory as a quarter of a piece.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len() + self.parts.as_ref().map_or(0, |parts| parts.count() / 4)
    }

    /// Where a piece that begins at `start` ends at the latest.
    fn edge(&self, start: u64) -> u64 {
        let edge = (start / self.cell + 1).saturating_mul(self.cell);
        self.parts.as_ref().map_or(edge, |parts| parts.end_of(start).min(edge))
    }

    /// Cuts `range` into ranges that can be noted: gaps between pieces, and whole pieces. Leaves out the
    /// bytes of a piece that reaches beyond `range`, because their CRC alone tells nothing.
    pub(crate) fn cut(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut cuts = Vec::new();
        let before = self.pieces.range(..range.start()).next_back().map_or(0, |(_, piece)| piece.end);
        let mut at = range.start().max(before);
        for (start, piece) in self.pieces.range(at..range.end().max(at)) {
            self.cut_gap(at, *start, &mut cuts);
            if piece.end <= range.end() {
                cuts.push(ByteRange::new(*start, piece.end));
            }
            at = piece.end;
        }
        self.cut_gap(at, range.end(), &mut cuts);
        cuts
    }

    /// `range` with the rest of the pieces in which it begins and ends.
    pub(crate) fn widen(&self, range: ByteRange) -> ByteRange {
        let first = self.pieces.range(..range.start()).next_back();
        let first = first.filter(|(_, piece)| piece.end > range.start()).map(|(start, _)| *start);
        let last = self.pieces.range(..range.end()).next_back().map_or(0, |(_, piece)| piece.end);
        ByteRange::new(first.unwrap_or(range.start()), range.end().max(last))
    }

    fn cut_gap(&self, mut start: u64, end: u64, cuts: &mut Vec<ByteRange>) {
        while start < end {
            let edge = self.edge(start).min(end);
            cuts.push(ByteRange::new(start, edge));
            start = edge;
        }
    }

    /// Notes the CRCs of a range that [`cut`](Self::cut) returned. A range that does not fit any more,
    /// because another one was noted meanwhile, is left out.
    pub(crate) fn note(&mut self, range: ByteRange, sums: Sums) -> Noted {
        let (start, end) = (range.start(), range.end());
        let known = self.pieces.range_mut(..end).rev().take_while(|(_, piece)| piece.end > start);
        let (mut is_known, mut difference) = (false, None);
        for (known, piece) in known {
            is_known = true;
            piece.came_again = true;
            if (*known, piece.end) == (start, end) {
                difference = piece.sums.difference(&sums);
            }
        }
        if is_known {
            return difference.map_or(Noted::Fine, |(then, now)| Noted::Differs(then, now));
        }
        if end > self.edge(start) {
            return Noted::Fine;
        }
        self.pieces.insert(start, Piece { end, sums, came_again: false });
        self.covered_bytes += range.len();
        let parts = self.parts.as_ref().map_or(0, |parts| parts.count());
        if self.pieces.len() > self.most + parts {
            self.double_cells();
            // That halves the pieces of a stream. The pieces of random reads would soon be too many again.
            if self.pieces.len() > self.most / 4 * 3 + parts {
                self.pieces.clear();
                self.covered_bytes = 0;
                return Noted::TooMany;
            }
        }
        Noted::Fine
    }

    /// Joins the neighbours that lie in one cell of twice the size.
    fn double_cells(&mut self) {
        self.cell = self.cell.saturating_mul(2);
        let mut joined: BTreeMap<u64, Piece> = BTreeMap::new();
        let mut joiner = Joiner::new();
        for (start, piece) in std::mem::take(&mut self.pieces) {
            match joined.last_entry() {
                Some(mut last) if last.get().end == start && self.edge(*last.key()) > start => {
                    let sums = joiner.join(&last.get().sums, &piece.sums, piece.end - start);
                    let came_again = last.get().came_again || piece.came_again;
                    *last.get_mut() = Piece { end: piece.end, sums, came_again };
                }
                _ => {
                    joined.insert(start, piece);
                }
            }
        }
        self.pieces = joined;
    }

    /// Forgets the pieces in `range` that were fetched once. Returns whether no bytes of `range` are in a
    /// piece any more.
    pub(crate) fn forget(&mut self, range: ByteRange) -> bool {
        let inside = self.pieces.range(range.start()..range.end());
        let inside = inside.filter(|(_, piece)| piece.end <= range.end() && !piece.came_again);
        let inside: Vec<_> = inside.map(|(start, piece)| (*start, piece.end - start)).collect();
        for (start, len) in inside {
            self.pieces.remove(&start);
            self.covered_bytes -= len;
        }
        let last = self.pieces.range(..range.end()).next_back();
        last.is_none_or(|(_, piece)| piece.end <= range.start())
    }

    /// The CRCs of the whole object, if no gap is left.
    pub(crate) fn whole(&self) -> Option<Sums> {
        (self.covered_bytes >= self.size).then(|| self.of(ByteRange::new(0, self.size))).flatten()
    }

    /// Whether no gap is left.
    pub(crate) fn is_whole(&self) -> bool {
        self.covered_bytes >= self.size
    }

    /// The CRCs of `range`, which begins and ends where pieces do, if there is no gap in it.
    pub(crate) fn of(&self, range: ByteRange) -> Option<Sums> {
        let mut joiner = Joiner::new();
        let (mut at, mut sums) = (range.start(), None);
        for (start, piece) in self.pieces.range(range.start()..range.end()) {
            if *start != at {
                return None;
            }
            sums = Some(match &sums {
                None => piece.sums,
                Some(sums) => joiner.join(sums, &piece.sums, piece.end - start),
            });
            at = piece.end;
        }
        sums.filter(|_| at == range.end())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use s3mount_object::{ByteRange, ChecksumAlgorithm, UploadPart};

    use super::{CrcMap, Joiner, Noted, Sums, named};
    use crate::sums::upload_parts::UploadParts;

    const SIZE: usize = 200;

    fn bytes() -> Vec<u8> {
        (0..SIZE).map(|at| u8::try_from(at * 7 % 251).expect("below 256")).collect()
    }

    fn parts_of(bytes: &[u8], len: u64) -> UploadParts {
        let algorithm = ChecksumAlgorithm::Crc32c;
        let uploaded: Vec<_> = bytes
            .chunks(usize::try_from(len).expect("small"))
            .map(|bytes| UploadPart {
                len: bytes.len() as u64,
                checksum: Sums::of(bytes, None).get(algorithm),
            })
            .collect();
        UploadParts::new(bytes.len() as u64, &uploaded).expect("they make it up")
    }

    /// Notes a range as a verifier does.
    fn fetch(pieces: &mut CrcMap, range: ByteRange, bytes: &[u8], only: Option<ChecksumAlgorithm>) -> Noted {
        let index = |at: u64| usize::try_from(at).expect("a small object");
        for cut in pieces.cut(range) {
            let sums = Sums::of(&bytes[index(cut.start())..index(cut.end())], only);
            match pieces.note(cut, sums) {
                Noted::Fine => {}
                other => return other,
            }
        }
        Noted::Fine
    }

    /// What a range does to the object: it is fetched, with a flipped bit or without, or forgotten.
    #[derive(Clone, Debug)]
    enum Step {
        Fetch { start: u64, len: u64, flipped: Option<u64> },
        Forget { start: u64, len: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = || (0..SIZE as u64, 1..60_u64);
        let fetch = (range(), proptest::option::weighted(0.1, 0..60_u64));
        let fetch = fetch.prop_map(|((start, len), flipped)| Step::Fetch { start, len, flipped });
        let forget = range().prop_map(|(start, len)| Step::Forget { start, len });
        proptest::collection::vec(prop_oneof![12 => fetch, 1 => forget], 1..60)
    }

    proptest! {
        /// Compares the CRCs with the bytes themselves: `counted` holds each byte as it was noted.
        #[test]
        fn the_whole_is_what_was_counted(
            steps in steps(), most in 2..60_usize, cell in 1..50_u64, all in any::<bool>(),
            part in 1..90_u64, parts_at in 0..60_usize,
        ) {
            let only = (!all).then_some(ChecksumAlgorithm::Crc32c);
            let right = bytes();
            let mut pieces = CrcMap { most, ..CrcMap::new(SIZE as u64, cell) };
            let mut counted: Vec<Option<u8>> = vec![None; SIZE];
            let parts = Arc::new(parts_of(&right, part));
            for (index, step) in steps.into_iter().enumerate() {
                if index == parts_at {
                    pieces.set_parts(parts.clone());
                    for (at, byte) in counted.iter_mut().enumerate() {
                        let piece = pieces.pieces.range(..=at as u64).next_back();
                        if piece.is_none_or(|(_, piece)| piece.end <= at as u64) {
                            *byte = None;
                        }
                    }
                }
                let (Step::Fetch { start, len, .. } | Step::Forget { start, len }) = step;
                let range = ByteRange::new(start, (start + len).min(SIZE as u64));
                let indexes = usize::try_from(range.start()).expect("small")..usize::try_from(range.end()).expect("small");
                match step {
                    Step::Fetch { flipped, .. } => {
                        let wide = pieces.widen(range);
                        let all = pieces.cut(wide).iter().map(|cut| cut.len()).sum::<u64>();
                        prop_assert!(wide.covers(range) && all == wide.len(), "{wide} can be noted");
                        let mut came = right.clone();
                        if let Some(at) = flipped.filter(|at| *at < range.len()) {
                            came[indexes.start + usize::try_from(at).expect("small")] ^= 1;
                        }
                        let noted = fetch(&mut pieces, range, &came, only);
                        let differs = indexes.clone().any(|at| counted[at].is_some_and(|byte| byte != came[at]));
                        match noted {
                            Noted::Fine => {}
                            Noted::Differs(then, now) => {
                                prop_assert!(differs);
                                prop_assert!(then != now && then.algorithm == now.algorithm);
                            }
                            Noted::TooMany => {
                                prop_assert!(pieces.pieces.is_empty());
                                counted.fill(None);
                                continue;
                            }
                        }
                        // The cuts before the one that differs were noted.
                        for at in indexes {
                            let is_known = pieces.pieces.range(..=at as u64).next_back()
                                .is_some_and(|(_, piece)| piece.end > at as u64);
                            if is_known && counted[at].is_none() {
                                counted[at] = Some(came[at]);
                            }
                        }
                    }
                    Step::Forget { .. } => {
                        let is_gone = pieces.forget(range);
                        for (at, byte) in counted.iter_mut().enumerate() {
                            let is_known = pieces.pieces.range(..=at as u64).next_back()
                                .is_some_and(|(_, piece)| piece.end > at as u64);
                            if !is_known {
                                *byte = None;
                            }
                        }
                        prop_assert_eq!(is_gone, counted[indexes].iter().all(Option::is_none));
                    }
                }
                let covered = counted.iter().flatten().count();
                prop_assert_eq!(pieces.covered_bytes, covered as u64);
                let more = if index < parts_at { 0 } else { parts.count() };
                prop_assert!(pieces.pieces.len() <= most + more);
                for part in (index >= parts_at).then(|| 0..parts.count()).into_iter().flatten() {
                    let range = parts.range(part);
                    let indexes = usize::try_from(range.start()).expect("small")..usize::try_from(range.end()).expect("small");
                    let bytes: Option<Vec<u8>> = counted[indexes].iter().copied().collect();
                    prop_assert_eq!(pieces.of(range), bytes.map(|bytes| Sums::of(&bytes, only)));
                }
                let whole: Option<Vec<u8>> = counted.iter().copied().collect();
                prop_assert_eq!(pieces.whole(), whole.map(|whole| Sums::of(&whole, only)));
            }
        }
    }

    proptest! {
        #[test]
        fn joined_crcs_are_those_of_the_joined_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), middle in 0..300_usize,
        ) {
            let middle = middle.min(bytes.len());
            let (first, next) = bytes.split_at(middle);
            let len = next.len() as u64;
            let (first, next) = (Sums::of(first, None), Sums::of(next, None));
            let joined = Joiner::new().join(&first, &next, len);
            prop_assert_eq!(joined, Sums::of(&bytes, None));
            // The result is the library's, even for lengths that are too long for a test.
            for algorithm in ChecksumAlgorithm::ALL {
                let len = len << 35 | len;
                let joined = Joiner::new().join(&first, &next, len).get(algorithm).value;
                let (first, next) = (first.get(algorithm).value, next.get(algorithm).value);
                prop_assert_eq!(joined, crc_fast::checksum_combine(named(algorithm), first, next, len));
            }
        }
    }

    #[test]
    fn a_piece_that_comes_again_is_compared() {
        let right = bytes();
        let mut pieces = CrcMap::new(SIZE as u64, 64);
        assert_eq!(fetch(&mut pieces, ByteRange::new(64, 128), &right, None), Noted::Fine);
        let mut wrong = right.clone();
        wrong[80] ^= 1;
        assert!(matches!(
            fetch(&mut pieces, ByteRange::new(0, 200), &wrong, Some(ChecksumAlgorithm::Crc64Nvme)),
            Noted::Differs(..)
        ));
        // A part of a piece has no CRC of its own, so it can't be compared.
        assert_eq!(fetch(&mut pieces, ByteRange::new(66, 127), &wrong, None), Noted::Fine);
        assert_eq!(pieces.cut(ByteRange::new(40, 70)), [] as [ByteRange; 0]);
        assert_eq!(pieces.cut(ByteRange::new(120, 192)), [ByteRange::new(128, 192)]);
        // The whole piece has.
        assert_eq!(pieces.widen(ByteRange::new(66, 127)), ByteRange::new(64, 128));
        assert_eq!(pieces.widen(ByteRange::new(128, 129)), ByteRange::new(128, 129));
    }

    #[test]
    fn a_stream_of_any_length_stays_small() {
        let right = bytes();
        let mut pieces = CrcMap { most: 8, ..CrcMap::new(SIZE as u64, 2) };
        for start in (0..SIZE as u64).step_by(2) {
            assert_eq!(fetch(&mut pieces, ByteRange::new(start, start + 2), &right, None), Noted::Fine);
        }
        assert_eq!(pieces.whole(), Some(Sums::of(&right, None)));
        let mut random = CrcMap { most: 8, ..CrcMap::new(SIZE as u64, 2) };
        let noted = (0..SIZE as u64)
            .step_by(4)
            .map(|start| fetch(&mut random, ByteRange::new(start, start + 2), &right, None));
        assert_eq!(noted.filter(|noted| *noted == Noted::TooMany).count(), 5, "each ninth read");
    }
}
