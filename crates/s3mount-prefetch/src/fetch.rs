//! One GET: memory, retries, deadline; and a second one beside it when it is slow.

use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::{Buffer, Priority};
use s3mount_object::{ByteRange, ErrorKind, GetAnswer, GetObject, ObjectError, ObjectId, Origin};
use s3mount_requests::{Attempts, Retries};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ReadError;
use crate::shared::Shared;
use crate::sync::at_most;

/// Why a GET brought nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was sent ahead of its readers, has failed, and nobody waits for it: its range is fetched when
    /// somebody asks for it, or when there is room to read ahead again.
    GivenUp,
    /// Its readers fail.
    Read(ReadError),
}

impl Failure {
    /// Why its readers fail.
    pub(crate) fn error(&self) -> Option<&ReadError> {
        match self {
            Failure::GivenUp => None,
            Failure::Read(error) => Some(error),
        }
    }

    /// What a reader that has waited for `limit` is told.
    pub(crate) fn into_error(self, limit: Duration) -> ReadError {
        match self {
            Failure::GivenUp => ReadError::TimedOut(limit),
            Failure::Read(error) => error,
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Failure::Read(error)
    }
}

/// What a GET is to know of the one who sends it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// It fails then, retries included.
    pub(crate) deadline: Instant,
    /// Whether a reader waits for it now.
    pub(crate) is_awaited: &'a (dyn Fn() -> bool + Send + Sync),
    /// Has readers give memory back for those who queue at the pool.
    pub(crate) reclaim: &'a (dyn Fn() + Send + Sync),
}

/// After this time, a GET that still waits for memory has readers give back more: what cancelled GETs held
/// may not have come back.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Fetches `range` of `object` into `buffer`, or into the first buffer that can be had. Retries what may
/// pass, until the deadline, as long as somebody waits for it or enough is to spare.
pub(crate) async fn fetch(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Bytes, Failure> {
    timeout_at(wanted.deadline, attempts(shared, object, range, buffer, wanted))
        .await
        .unwrap_or(Err(Failure::Read(ReadError::TimedOut(shared.config.read_timeout))))
}

async fn attempts(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    mut buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Bytes, Failure> {
    let Wanted { deadline, is_awaited, reclaim } = wanted;
    let len = usize::try_from(range.len()).expect("a part fits the address space");
    // Parts that fail together differ in their offsets, which is all the randomness that takes.
    let attempts = Attempts::new(shared.latencies.stalls_after(range.len()), range.start() >> 16);
    let mut retries = Retries::new(&shared.retry_budget, attempts, deadline);
    loop {
        let into = match buffer.take() {
            Some(buffer) => buffer,
            None => demand_buffer(shared, len, reclaim).await,
        };
        let request = GetObject { object: object.clone(), range };
        let turn = shared.turns.next().await;
        let sent = shared.started.elapsed();
        let result = retries.attempt("GetObject", object.key(), hedged(shared, request, into)).await;
        let was_refused = result.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Throttled);
        let (now, refused) = (shared.started.elapsed(), shared.client.refused_requests());
        shared.turns.on_answer(sent, now, refused, was_refused);
        drop(turn);
        match result {
            Ok(bytes) => {
                shared.metrics.get_requests.inc();
                shared.metrics.fetched_bytes.add(range.len());
                shared.metrics.part_size.note(range.len());
                return Ok(bytes);
            }
            Err(error) => match retries.pause(error, is_awaited).await {
                Err(error) if error.is_retryable() && !is_awaited() => return Err(Failure::GivenUp),
                Err(error) => return Err(Failure::Read(ReadError::Object(error.into()))),
                Ok(()) if is_awaited() => {}
                // It takes what is free, and nothing that a reader would have to wait for.
                Ok(()) => match shared.pool.try_buffer(len, Priority::Prefetch) {
                    Some(free) => buffer = Some(free),
                    None => return Err(Failure::GivenUp),
                },
            },
        }
    }
}

/// Sends a GET, and a second one when it takes much longer than its peers do: of S3's answers, a
/// few come very late, and who asks again gets another server. The first answer counts, and the
/// other GET is cancelled; a failure counts when both have failed.
async fn hedged(shared: &Shared, request: GetObject, into: Buffer) -> Result<Bytes, ObjectError> {
    let (len, began) = (request.range.len(), Instant::now());
    let send = |into: Buffer| async {
        let (began, _in_flight) = (Instant::now(), shared.latencies.on_sent(len));
        let GetAnswer { bytes, origin } = shared.client.get_object(request.clone(), Box::new(into)).await?;
        match origin {
            Origin::Store => shared.latencies.note(len, began.elapsed()),
        }
        Ok(bytes)
    };
    shared.hedges.earn(shared.config.hedge_share);
    let mut first = std::pin::pin!(send(into));
    if let Ok(result) = timeout(shared.latencies.slow_after(len), &mut first).await {
        return result;
    }
    let Some(_turn) = shared.turns.spare() else { return first.await };
    let Some(buffer) = hedge_buffer(shared, len) else { return first.await };
    tracing::debug!(object = ?request.object, range = %request.range, waited = ?began.elapsed(), "GET is slow, sending another");
    let mut second = std::pin::pin!(send(buffer));
    tokio::select! {
        result = &mut first => match result {
            Ok(bytes) => Ok(bytes),
            Err(_) => second.await,
        },
        result = &mut second => match result {
            Ok(bytes) => Ok(bytes),
            Err(_) => first.await,
        },
    }
}

/// A buffer for a reader that waits. Others give memory back for it (`reclaim`); it has no deadline of its
/// own.
async fn demand_buffer(shared: &Shared, len: usize, reclaim: &(dyn Fn() + Send + Sync)) -> Buffer {
    if let Some(buffer) = shared.pool.try_buffer(len, Priority::Demand) {
        return buffer;
    }
    let mut buffer = std::pin::pin!(shared.pool.buffer(len));
    loop {
        reclaim();
        if let Some(buffer) = at_most(ASK_AGAIN, &mut buffer).await {
            return buffer;
        }
    }
}

/// A buffer for a second GET of `len` bytes, if the budget and the memory have room for one.
fn hedge_buffer(shared: &Shared, len: u64) -> Option<Buffer> {
    let len = usize::try_from(len).ok()?;
    let buffer = shared.pool.try_buffer(len, Priority::Prefetch)?;
    shared.hedges.spend().then(|| {
        shared.metrics.hedges.inc();
        buffer
    })
}
