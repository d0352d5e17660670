//! Reading blocks from the tier.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::Priority;
use s3mount_object::{ByteRange, ErrorKind, ObjectId, PartBuffer, late_after};
use tokio::time::{Instant, timeout};

use crate::Miss;
use crate::block::Block;
use crate::lease::{Claim, Ended};
use crate::lent::lend;
use crate::metrics::MissReason;
use crate::patience::LIMIT_MOST;
use crate::sums::Sums;
use crate::tier_state::{Failure, RequestKind, TierState};

/// Why the tier has brought nothing, and the buffer, if it came back.
type Nothing<B> = (Option<B>, MissReason);

impl TierState {
    pub(crate) async fn get<B: PartBuffer>(
        self: &Arc<Self>,
        object: &ObjectId,
        size: u64,
        range: ByteRange,
        source: Option<Duration>,
        into: B,
    ) -> Result<Bytes, Miss<B>> {
        let Some(block) = Block::of(self.version(object), size, range) else {
            return Err(self.miss((Some(into), MissReason::Busy), None));
        };
        if self.books().distrusted.contains(&block.version) {
            return Err(self.miss((Some(into), MissReason::Distrusted), None));
        }
        let late = late_after(range.len(), source);
        let (buffer, reason) = match self.ask(&block, range, late, into).await {
            Ok(bytes) => return Ok(bytes),
            Err(nothing) => nothing,
        };
        // Only a GET that brings most of the block may promise it.
        if reason != MissReason::Absent || range.len() <= block.len() / 2 {
            return Err(self.miss((buffer, reason), None));
        }
        let mut broken = None;
        loop {
            match self.claim(&block, broken).await {
                Claim::Held(lease) => return Err(self.miss((buffer, reason), Some(lease))),
                Claim::Free => return Err(self.miss((buffer, reason), None)),
                Claim::Taken(promise) => match self.wait_for(&block, promise).await {
                    Ended::Kept => {
                        let Some(into) = buffer else {
                            return Err(self.miss((None, MissReason::Busy), None));
                        };
                        let asked = self.ask(&block, range, late, into).await;
                        return asked.map_err(|nothing| self.miss(nothing, None));
                    }
                    Ended::Broken => broken = Some(promise),
                    Ended::Failed => return Err(self.miss((buffer, MissReason::Failed), None)),
                },
            }
        }
    }

    fn miss<B>(&self, (buffer, reason): Nothing<B>, lease: Option<crate::Lease>) -> Miss<B> {
        self.metrics.misses.at(reason).inc();
        Miss { buffer, lease }
    }

    /// Asks the tier for a range of a block. An answer is late after `late`.
    async fn ask<B: PartBuffer>(
        &self,
        block: &Block,
        range: ByteRange,
        late: Duration,
        into: B,
    ) -> Result<Bytes, Nothing<B>> {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        if into.as_ref().len() < len {
            return Err((Some(into), MissReason::Busy));
        }
        if !self.admits(RequestKind::Read) {
            return Err((Some(into), MissReason::Resting));
        }
        let (until, mut backoff) = (self.now() + LIMIT_MOST, self.blocks.backoff());
        let mut into = into;
        loop {
            into = match self.ask_once(block, range, late, into).await {
                Ok(bytes) => {
                    self.metrics.hits.inc();
                    self.metrics.hit_bytes.add(range.len());
                    return Ok(bytes);
                }
                Err((Some(buffer), MissReason::Throttled)) => buffer,
                Err(nothing) => return Err(nothing),
            };
            if !self.pauses(&mut backoff, until).await {
                self.on_throttled(RequestKind::Read);
                return Err((Some(into), MissReason::Throttled));
            }
        }
    }

    async fn ask_once<B: PartBuffer>(
        &self,
        block: &Block,
        range: ByteRange,
        late: Duration,
        into: B,
    ) -> Result<Bytes, Nothing<B>> {
        let whole = block.widened(range);
        if whole == range {
            let (lent, back) = lend(into);
            return match self.fetch(block, range, late, Box::new(lent)).await {
                Ok(bytes) => Ok(bytes),
                Err(reason) => Err((back.wait().await, reason)),
            };
        }
        match self.fetch_around(block, range, whole, late).await {
            Ok(bytes) => {
                let mut into = into;
                into.as_mut()[..bytes.len()].copy_from_slice(&bytes);
                Ok(Bytes::from_owner(into).slice(..bytes.len()))
            }
            Err(reason) => Err((Some(into), reason)),
        }
    }

    /// Fetches `whole`, which has whole pieces, and returns `range` of it.
    async fn fetch_around(
        &self,
        block: &Block,
        range: ByteRange,
        whole: ByteRange,
        late: Duration,
    ) -> Result<Bytes, MissReason> {
        let len = usize::try_from(whole.len()).unwrap_or(usize::MAX);
        let buffer =
            (len <= self.pool.max_buffer_bytes()).then(|| self.pool.try_buffer(len, Priority::Prefetch));
        let buffer = buffer.flatten().ok_or(MissReason::Busy)?;
        let bytes = self.fetch(block, whole, late, Box::new(buffer)).await?;
        let start = usize::try_from(range.start() - whole.start()).unwrap_or(usize::MAX);
        Ok(bytes.slice(start..start + usize::try_from(range.len()).unwrap_or(usize::MAX)))
    }

    /// Fetches whole pieces of a block, and compares them with their checksums.
    async fn fetch(
        &self,
        block: &Block,
        range: ByteRange,
        late: Duration,
        into: Box<dyn PartBuffer>,
    ) -> Result<Bytes, MissReason> {
        let (key, within) = (self.key(block), block.within(range));
        let limit = self.policy().patience.get_limit(range.len());
        let permit = timeout(LIMIT_MOST, self.in_flight.acquire_many(mib(range.len()))).await;
        let Ok(Ok(_permit)) = permit else { return Err(MissReason::Busy) };
        let began = Instant::now();
        match timeout(limit, self.blocks.get_latest_once(&key, within, into)).await {
            Ok(Ok(answer)) => {
                let took = began.elapsed();
                self.metrics.get_times.note_time(took);
                self.policy().patience.note_get(range.len(), took);
                if took > late {
                    self.on_late(RequestKind::Read, took);
                } else {
                    self.on_good(RequestKind::Read);
                }
                let sums = Sums::from_metadata(&answer.metadata, block);
                if sums.is_some_and(|sums| sums.hold(block, range, &answer.bytes)) {
                    return Ok(answer.bytes);
                }
                self.on_damaged(block);
                Err(MissReason::Damaged)
            }
            Ok(Err(error)) => match error.kind() {
                ErrorKind::NotFound => {
                    self.on_good(RequestKind::Read);
                    self.books()
                        .notes
                        .update(block, |note| (note.is_there, note.is_damaged) = (false, false));
                    Err(MissReason::Absent)
                }
                ErrorKind::Throttled => Err(MissReason::Throttled),
                // The object is shorter or longer than the block, or has no ETag.
                ErrorKind::Integrity | ErrorKind::RangeNotSatisfiable | ErrorKind::NoEtag => {
                    self.on_damaged(block);
                    Err(MissReason::Damaged)
                }
                _ => {
                    self.on_failure(RequestKind::Read, &Failure::Error(error));
                    Err(MissReason::Failed)
                }
            },
            Err(_) => {
                self.on_failure(RequestKind::Read, &Failure::Silence(limit));
                Err(MissReason::Failed)
            }
        }
    }
}

/// The permits that a GET of `bytes` takes.
fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}
