//! Reads that are not answered yet: which bytes each has found, and its reply.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::ByteRange;
use tokio::time::Instant;

use crate::reader::segment::{Segment, SegmentState};
use crate::stream::Access;
use crate::{ReadError, Tier};

/// A read that goes through the segments from left to right. It keeps the bytes that it has found, and their buffers,
/// until it is complete. When memory is so short that it must give them up, it gets a GET of its own
/// ([`ObjectReader::detach_holders`](super::ObjectReader::detach_holders)).
pub(super) struct Progress {
    pub(super) range: ByteRange,
    pub(super) at: u64,
    pub(super) access: Access,
    /// The slowest place from which its bytes came so far, or will come.
    pub(super) tier: Tier,
    pub(super) found: FoundBytes,
}

impl Progress {
    /// Whether it holds buffers that others may wait for.
    pub(super) fn holds_buffers(&self) -> bool {
        !matches!(self.found, FoundBytes::None)
    }
}

/// The bytes that a read has found. Mostly they are one slice, which costs no allocation.
pub(super) enum FoundBytes {
    None,
    One(Bytes),
    Many(Vec<Bytes>),
}

impl FoundBytes {
    pub(super) fn push(&mut self, piece: Bytes) {
        *self = match std::mem::replace(self, FoundBytes::None) {
            FoundBytes::None => FoundBytes::One(piece),
            FoundBytes::One(first) => FoundBytes::Many(vec![first, piece]),
            FoundBytes::Many(mut pieces) => {
                pieces.push(piece);
                FoundBytes::Many(pieces)
            }
        }
    }

    /// Calls `show` with all bytes as one slice. Several slices are copied together.
    pub(super) fn with<R>(&self, show: impl FnOnce(&[u8]) -> R) -> R {
        thread_local! {
            static STITCHED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        match self {
            FoundBytes::None => show(&[]),
            FoundBytes::One(piece) => show(piece),
            FoundBytes::Many(pieces) => {
                let mut stitched = STITCHED.take();
                stitched.clear();
                pieces.iter().for_each(|piece| stitched.extend_from_slice(piece));
                let shown = show(&stitched);
                STITCHED.set(stitched);
                shown
            }
        }
    }
}

pub(super) type Reply = Box<dyn FnOnce(Result<&[u8], ReadError>) + Send>;

/// A read that waits for a segment in flight.
pub(super) struct Waiter {
    pub(super) progress: Progress,
    pub(super) reply: Reply,
    /// When the read came. The read time-out counts from here, no matter how many GETs the read waits for, and when
    /// they were sent.
    pub(super) since: Instant,
}

impl Waiter {
    /// When the read fails.
    pub(super) fn deadline(&self, read_timeout: Duration) -> Instant {
        self.since + read_timeout
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("range", &self.progress.range).finish_non_exhaustive()
    }
}

impl Segment<Waiter> {
    /// The streams whose reads wait for it.
    pub(super) fn awaiting_streams(&self) -> impl Iterator<Item = u64> {
        let waiters: &[Waiter] = match &self.state {
            SegmentState::InFlight { waiters, .. } => waiters,
            SegmentState::Ready(_) => &[],
        };
        waiters.iter().filter_map(|waiter| match waiter.progress.access {
            Access::Stream(id) => Some(id),
            Access::Random | Access::Paged => None,
        })
    }
}
