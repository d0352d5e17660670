//! Reads that may turn out to begin a stream. They are kept apart from the streams: however many
//! random reads there are, they only push each other out.

use std::collections::VecDeque;

use s3mount_object::ByteRange;

use super::reach::{ADJACENT_BYTES, goes_on};
use crate::PrefetchConfig;

/// Candidates of one object at most. As many threads may begin their shares of an object at once, each
/// with a read or two, and are all recognised.
pub(super) const MAX_CANDIDATES: u64 = 512;

/// An object has at most one candidate for so many bytes. More would cover so much of a small object that
/// random reads go on from them by chance, and twice.
const BYTES_FOR_EACH: u64 = 4 << 20;

/// A random read goes on from one of the last n reads by chance once in size ÷ ([`ADJACENT_BYTES`] × n)
/// reads, and a whole first window is then fetched in vain. So many first windows must fit into the
/// object for each candidate that one read can confirm: chance costs random reads less than a hundredth
/// then.
const SPARSENESS: u64 = 128;

/// The latest reads are always believed: one reader goes on from its own last read, and the kernel's
/// readahead of it arrives in disorder.
const ALWAYS_SURE: u64 = 4;

/// Where a read has ended, and a stream may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// First byte read.
    pub(super) began: u64,
    /// One past the last byte read.
    end: u64,
    /// The table's clock at its first read.
    pub(super) since: u64,
    /// Whether a second read has gone on from the first.
    has_gone_on: bool,
}

/// What a read that belongs to no stream is, as far as candidates tell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    /// It goes on from no other.
    None,
    /// It goes on from another, which chance may have hit.
    Weak,
    /// A stream begins with it that began as this candidate.
    Sure(Candidate),
}

/// The latest candidates of one object, oldest first.
#[derive(Debug)]
pub(super) struct Candidates {
    ring: VecDeque<Candidate>,
    capacity: usize,
}

impl Candidates {
    /// None yet, of an object of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let capacity = (size / BYTES_FOR_EACH).clamp(ALWAYS_SURE, MAX_CANDIDATES);
        Self { ring: VecDeque::new(), capacity: capacity as usize }
    }

    /// Notes a read that belongs to no stream of an object of `size` bytes. One of the latest candidates is
    /// confirmed by one read that goes on from it; an older one, which chance may have hit, by two.
    pub(super) fn on_read(
        &mut self,
        range: ByteRange,
        clock: u64,
        size: u64,
        config: &PrefetchConfig,
    ) -> Sign {
        let sure = size / (config.initial_window_bytes.max(ADJACENT_BYTES) * SPARSENESS);
        let sure = usize::try_from(sure.max(ALWAYS_SURE)).unwrap_or(usize::MAX);
        let found = self.ring.iter().rev().position(|candidate| goes_on(candidate.end, range));
        let candidate = found.and_then(|age| self.ring.remove(self.ring.len() - 1 - age));
        if let Some(candidate) = candidate
            && (candidate.has_gone_on || found < Some(sure))
        {
            return Sign::Sure(candidate);
        }
        if self.ring.len() >= self.capacity {
            self.ring.pop_front();
        }
        self.ring.push_back(Candidate {
            began: candidate.map_or(range.start(), |candidate| candidate.began),
            end: range.end(),
            since: candidate.map_or(clock, |candidate| candidate.since),
            has_gone_on: candidate.is_some(),
        });
        if candidate.is_some() { Sign::Weak } else { Sign::None }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }
}
