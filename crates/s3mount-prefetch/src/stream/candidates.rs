//! Reads that may turn out to begin a stream. They are kept apart from the streams: random reads, however many, push
//! out only each other.

use std::collections::VecDeque;

use s3mount_object::ByteRange;

use super::reach::{ADJACENT_BYTES, goes_on};
use crate::PrefetchConfig;

/// The most candidates of one object. This many threads may begin their shares of an object at once, each with a read
/// or two, and all are recognised.
pub(super) const MAX_CANDIDATES: u64 = 512;

/// An object has at most one candidate for this many bytes. More candidates would cover so much of a small object that
/// random reads continue them by chance, and twice.
const BYTES_FOR_EACH: u64 = 4 << 20;

/// By chance, one random read in size ÷ ([`ADJACENT_BYTES`] × n) continues one of the last n reads, and a whole first
/// window is then fetched in vain. So a candidate is confirmed by one read only if this many first windows for each
/// such candidate fit into the object. Then chance costs random reads less than a hundredth.
const SPARSENESS: u64 = 128;

/// This many of the latest candidates are always confirmed by one read: a reader goes on from its own last
/// read, and the kernel's readahead of it arrives out of order.
const ALWAYS_SURE: u64 = 4;

/// A read that a stream may continue at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// First byte read.
    pub(super) began: u64,
    /// One past the last byte read.
    end: u64,
    /// The table's clock at its first read.
    pub(super) since: u64,
    /// Whether a second read has continued the first.
    has_gone_on: bool,
}

/// How a read that belongs to no stream relates to the candidates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    /// It continues no other read.
    None,
    /// It continues another read, but that may be chance.
    Weak,
    /// It confirms this candidate: a stream begins with both.
    Sure(Candidate),
}

/// The latest candidates of one object, oldest first.
#[derive(Debug)]
pub(crate) struct Candidates {
    ring: VecDeque<Candidate>,
    capacity: usize,
}

impl Candidates {
    /// No candidates yet, for an object of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let capacity = (size / BYTES_FOR_EACH).clamp(ALWAYS_SURE, MAX_CANDIDATES);
        Self { ring: VecDeque::new(), capacity: capacity as usize }
    }

    /// Notes a read that belongs to no stream, in an object of `size` bytes. One read that continues one of the latest
    /// candidates confirms it. An older candidate, which a read may hit by chance, needs two.
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

    /// How much memory they take, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.ring.capacity() * size_of::<Candidate>()) as u64
    }

    /// Forgets all candidates, because there is no memory for them.
    pub(crate) fn forget(&mut self) {
        self.ring = VecDeque::new();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }
}
