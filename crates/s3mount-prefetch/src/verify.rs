//! Whole objects compared with the checksums that the store keeps of them.
//!
//! A store sends no checksum with a range. So each range's CRC is computed when it lands, and when
//! every byte of a version has been fetched, the CRC that these make together is compared with the
//! one that the store keeps. The range that completes the object waits for that, so a reader that
//! has got all bytes has got the right ones, or an error.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use s3mount_memory::Buffer;
use s3mount_object::{Attempts, ByteRange, ErrorKind, ObjectChecksum, ObjectError, ObjectId, Retries};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::ReadError;
use crate::fetch::fetch;
use crate::prefetcher::Shared;
use crate::sums::{Noted, Pieces, Sums};
use crate::sync::{Mutex, lock, spawn};

/// The store is asked for a checksum when so much of an object has been asked for, in bytes, or all
/// of it: who looks at headers only does not pay for it, and who goes on has the answer long before
/// the last range.
const ASK_AFTER: u64 = 8 << 20;

/// What is fetched at most besides a range that was fetched before in other pieces, in bytes. Pieces of
/// objects of up to 2 GiB are not longer.
const MOST_BESIDE: u64 = 2 << 20;

/// How often a range is fetched that is not what it was when it was fetched before.
const TRIES: u32 = 3;

/// Compares one object version with its checksum.
#[derive(Debug)]
pub(crate) struct Verifier {
    object: ObjectId,
    size: u64,
    /// What the store keeps; empty before it has answered.
    kept: OnceCell<Option<ObjectChecksum>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    asked_bytes: u64,
    /// `None` once it is known that the object can't be verified.
    pieces: Option<Pieces>,
    was_right: bool,
    /// What was held was fetched again because the object was wrong: that helps once, or not at all.
    was_mended: bool,
}

impl Verifier {
    /// Nothing is known yet of `object`, which is counted in pieces of up to `block_bytes`.
    pub(crate) fn new(object: ObjectId, size: u64, block_bytes: u64) -> Self {
        let pieces = Some(Pieces::new(size, block_bytes));
        let state = State { asked_bytes: 0, pieces, was_right: false, was_mended: false };
        Self { object, size, kept: OnceCell::new(), state: Mutex::new(state) }
    }

    /// As [`fetch`], and compares what comes: with the same range if that was fetched before, and all
    /// of the object with its checksum if this range completes it.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        range: ByteRange,
        mut buffer: Option<Buffer>,
    ) -> Result<Bytes, ReadError> {
        // The answer to a GET of the whole object brings its checksum, and the client compares it.
        if range.len() == self.size {
            return fetch(shared, &self.object, range, buffer).await;
        }
        self.ask_in_time(shared, range.len());
        let deadline = Instant::now() + shared.config.read_timeout;
        let wide = self.widen(shared, range);
        // Another buffer is needed then, and this one must not be held meanwhile.
        buffer = buffer.filter(|_| wide == range);
        for tries in 1.. {
            let bytes = fetch(shared, &self.object, wide, buffer.take()).await?;
            let Some((then, now)) = self.note(shared, wide, &bytes) else {
                self.compare(shared, deadline).await?;
                let place = |at: u64| usize::try_from(at - wide.start()).unwrap_or(usize::MAX);
                return Ok(bytes.slice(place(range.start())..place(range.end())));
            };
            tracing::warn!(object = ?self.object, %range, %then, %now, "a range is not what it was before");
            if tries == TRIES {
                return Err(ReadError::Changed { then, now });
            }
        }
        unreachable!("the last try returns")
    }

    /// `range` with the rest of the pieces that it begins and ends in, so that it can be compared with
    /// these; without where that is much more.
    fn widen(&self, shared: &Shared, range: ByteRange) -> ByteRange {
        let wide = lock(&self.state).pieces.as_ref().map_or(range, |pieces| pieces.widen(range));
        let most = (shared.pool.max_buffer_bytes() as u64).min(range.len() + MOST_BESIDE);
        if wide.len() <= most { wide } else { range }
    }

    /// Has the store asked for the checksum in the background, when enough of the object is wanted.
    fn ask_in_time(self: &Arc<Self>, shared: &Arc<Shared>, len: u64) {
        let enough = self.size.min(ASK_AFTER);
        let mut state = lock(&self.state);
        let before = state.asked_bytes;
        state.asked_bytes = before.saturating_add(len);
        if before < enough && state.asked_bytes >= enough {
            let (me, asker) = (self.clone(), shared.clone());
            spawn(&shared.runtime, async move {
                me.kept(&asker).await;
            });
        }
    }

    /// Counts a range; returns the CRCs of then and now if it was another when it was counted before.
    fn note(
        &self,
        shared: &Shared,
        range: ByteRange,
        bytes: &[u8],
    ) -> Option<(ObjectChecksum, ObjectChecksum)> {
        let only = match self.kept.get() {
            Some(None) => return None,
            Some(Some(kept)) => Some(kept.algorithm),
            None => None,
        };
        let cuts = lock(&self.state).pieces.as_ref()?.cut(range);
        // Not under the lock: this takes 0.7 ms for 8 MiB.
        let sum = |cut: ByteRange| {
            let place = |at: u64| usize::try_from(at - range.start()).unwrap_or(usize::MAX);
            (cut, Sums::of(&bytes[place(cut.start())..place(cut.end())], only))
        };
        let sums: Vec<_> = cuts.into_iter().map(sum).collect();
        let mut state = lock(&self.state);
        for (cut, sums) in sums {
            match state.pieces.as_mut()?.note(cut, sums) {
                Noted::Fine => {}
                Noted::Differs(then, now) => return Some((then, now)),
                Noted::TooMany => {
                    state.pieces = None;
                    shared.counters.on_unverified();
                    tracing::debug!(object = ?self.object, "read in too many pieces to be verified");
                }
            }
        }
        None
    }

    /// Compares the object with its checksum, if it has one and all bytes were counted.
    async fn compare(&self, shared: &Shared, deadline: Instant) -> Result<(), ReadError> {
        let whole = {
            let state = lock(&self.state);
            state.pieces.as_ref().filter(|_| !state.was_right).and_then(Pieces::whole)
        };
        let Some(sums) = whole else { return Ok(()) };
        // The store was asked long ago. A read has its time-out all the same.
        let Ok(Some(kept)) = timeout_at(deadline, self.kept(shared)).await else { return Ok(()) };
        // It was computed: all CRCs are until the store has named one.
        let came = sums.get(kept.algorithm);
        if came != kept {
            return Err(ReadError::Corrupt { kept, came });
        }
        if !std::mem::replace(&mut lock(&self.state).was_right, true) {
            shared.counters.on_verified();
        }
        Ok(())
    }

    /// What the store keeps. It is asked once.
    async fn kept(&self, shared: &Shared) -> Option<ObjectChecksum> {
        let ask = || async {
            let kept = ask(shared, &self.object).await;
            if kept.is_none() {
                lock(&self.state).pieces = None;
                shared.counters.on_unverified();
            }
            kept
        };
        *self.kept.get_or_init(ask).await
    }

    /// Whether an object that is not what the store keeps may be mended: by fetching again what no
    /// reader has seen.
    pub(crate) fn may_mend(&self, error: &ReadError) -> bool {
        let mut state = lock(&self.state);
        matches!(error, ReadError::Corrupt { .. }) && !std::mem::replace(&mut state.was_mended, true)
    }

    /// Counts `range` no more, because it will be fetched again, as far as it was fetched once. Returns
    /// whether that is so for all of its bytes.
    pub(crate) fn forget(&self, range: ByteRange) -> bool {
        lock(&self.state).pieces.as_mut().is_none_or(|pieces| pieces.forget(range))
    }
}

/// Asks for the checksum of `object`, until the read time-out.
async fn ask(shared: &Shared, object: &ObjectId) -> Option<ObjectChecksum> {
    let deadline = Instant::now() + shared.config.read_timeout;
    let seed = RandomState::new().hash_one(object);
    let attempts = Attempts::new(shared.latencies.slow_after(1), seed);
    let mut retries = Retries::new(&shared.retry_budget, attempts, deadline);
    let asked = async {
        loop {
            match retries.attempt("HeadObject", object.key(), shared.client.checksum(object)).await {
                Ok(kept) => return Ok(kept),
                Err(error) => retries.pause(error, || true).await?,
            }
        }
    };
    let error: ObjectError = match timeout_at(deadline, asked).await {
        Ok(Ok(kept)) => return kept,
        Ok(Err(error)) => error,
        Err(_) => ObjectError::new(ErrorKind::TimedOut, "HeadObject", object.key()),
    };
    tracing::warn!(
        error = &error as &dyn Error,
        "there is no checksum to be had, and the object is not verified"
    );
    None
}

/// As [`fetch`], by the verifier of the object if it has one.
pub(crate) async fn fetch_by(
    verifier: Option<&Arc<Verifier>>,
    shared: &Arc<Shared>,
    object: &ObjectId,
    range: ByteRange,
    buffer: Option<Buffer>,
) -> Result<Bytes, ReadError> {
    match verifier {
        Some(verifier) => verifier.fetch(shared, range, buffer).await,
        None => fetch(shared, object, range, buffer).await,
    }
}
