//! One GET: from the disk, from the shared tier, or from the store, with retries and a deadline; and a second
//! one beside it when it is slow.

use std::time::Duration;

use bytes::Bytes;
use s3mount_bucket::{Class, Operation};
use s3mount_memory::{Buffer, Priority};
use s3mount_object::{ByteRange, ErrorKind, GetAnswer, GetObject, ObjectError, ObjectId, Origin};
use s3mount_shared::Miss;
use tokio::time::{Instant, timeout, timeout_at};

use crate::ReadError;
use crate::shared::Shared;
use crate::sync::at_most;
use crate::version::Version;

/// Why a GET brought nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The GET was sent ahead of its readers, it failed, and nobody waits for it. Its range is fetched when
    /// somebody reads it, or when there is room to read ahead again.
    GivenUp,
    /// The GET failed, and the reads that wait for it fail.
    Read(ReadError),
}

impl Failure {
    /// The error of the reads that wait, if they fail.
    pub(crate) fn error(&self) -> Option<&ReadError> {
        match self {
            Failure::GivenUp => None,
            Failure::Read(error) => Some(error),
        }
    }

    /// The error for a read that has waited for `limit`.
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

/// Where bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Store,
    Disk,
    Shared,
}

/// What a GET has brought.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) bytes: Bytes,
    pub(crate) from: Place,
    /// Whether they are all bytes of the object, and were compared with a checksum that the store has sent.
    is_compared: bool,
}

/// What a GET has to know of the reader that sends it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The GET fails at this time, retries included.
    pub(crate) deadline: Instant,
    /// Whether a reader waits for it now.
    pub(crate) is_awaited: &'a (dyn Fn() -> bool + Send + Sync),
    /// Makes readers give memory back for the GETs that queue at the pool.
    pub(crate) reclaim: &'a (dyn Fn() + Send + Sync),
}

/// A GET that still waits for memory after this time asks readers to give back more. The buffers of cancelled
/// GETs may not have come back.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Fetches `range` of `object` into `buffer`, or into the first buffer that it can get. Retries errors that
/// may pass until the deadline, as long as somebody waits for the bytes or memory is to spare.
pub(crate) async fn fetch(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Came, Failure> {
    timeout_at(wanted.deadline, from_nearest(shared, version, range, buffer, wanted))
        .await
        .unwrap_or(Err(Failure::Read(ReadError::TimedOut(shared.config.read_timeout))))
}

/// Fetches from the disk what the disk holds, and else from the shared tier or the store.
async fn from_nearest(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Came, Failure> {
    let Some(disk) = &version.disk else {
        return from_afar(shared, version, range, buffer, wanted).await;
    };
    // It looks first, if nobody has, and gives the buffer back at once where the range is not on the disk.
    let into = buffer_for(shared, range, buffer, wanted.reclaim).await;
    let left = match disk.read(range, into).await {
        Ok(bytes) => return Ok(Came { bytes, from: Place::Disk, is_compared: false }),
        Err(left) => left,
    };
    let came = from_afar(shared, version, range, left, wanted).await?;
    if came.is_compared {
        disk.offer_compared(range, &came.bytes);
    } else {
        disk.offer(range, &came.bytes);
    }
    Ok(came)
}

/// Fetches from the shared tier what the tier holds, and else from the store.
async fn from_afar(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Came, Failure> {
    let Version { object, size, .. } = version;
    let Some(tier) = &shared.tiers.shared else {
        return attempts(shared, object, range, buffer, wanted).await;
    };
    let into = buffer_for(shared, range, buffer, wanted.reclaim).await;
    let Miss { buffer: left, lease } = match tier.get(object, *size, range, into).await {
        Ok(bytes) => return Ok(Came { bytes, from: Place::Shared, is_compared: false }),
        Err(miss) => miss,
    };
    let came = attempts(shared, object, range, left, wanted).await?;
    tier.offer(object, *size, range, &came.bytes);
    // Until now the lease has kept room for the block.
    drop(lease);
    Ok(came)
}

/// The buffer that is here already, or one as soon as there is memory for it.
async fn buffer_for(
    shared: &Shared,
    range: ByteRange,
    buffer: Option<Buffer>,
    reclaim: &(dyn Fn() + Send + Sync),
) -> Buffer {
    match buffer {
        Some(buffer) => buffer,
        None => {
            let len = usize::try_from(range.len()).expect("a part fits the address space");
            demand_buffer(shared, len, reclaim).await
        }
    }
}

async fn attempts(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    mut buffer: Option<Buffer>,
    wanted: Wanted<'_>,
) -> Result<Came, Failure> {
    let Wanted { deadline, is_awaited, reclaim } = wanted;
    let slow = shared.latencies.stalls_after(range.len());
    let mut retries = shared.bucket.retries_until(Operation::GetObject, object.key(), slow, deadline);
    loop {
        let into = buffer_for(shared, range, buffer.take(), reclaim).await;
        let request = GetObject { object: object.clone(), range };
        let turn = shared.turns.next().await;
        let sent = shared.started.elapsed();
        let result = retries.attempt(hedged(shared, request, into)).await;
        let was_refused = result.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Throttled);
        let (now, refused) = (shared.started.elapsed(), shared.bucket.refused_requests());
        shared.turns.on_answer(sent, now, refused, was_refused);
        drop(turn);
        match result {
            Ok(came) => {
                shared.metrics.get_requests.inc();
                shared.metrics.fetched_bytes.add(range.len());
                shared.metrics.part_size.note(range.len());
                return Ok(came);
            }
            Err(error) => match retries.pause(error, is_awaited).await {
                Err(error) if error.is_retryable() && !is_awaited() => return Err(Failure::GivenUp),
                Err(error) => return Err(Failure::Read(ReadError::Object(error.into()))),
                Ok(()) if is_awaited() => {}
                // Nobody waits for this GET, so it takes only memory that no reader needs.
                Ok(()) => match spare_buffer(shared, range) {
                    Some(free) => buffer = Some(free),
                    None => return Err(Failure::GivenUp),
                },
            },
        }
    }
}

/// Sends a GET, and a second one when the first takes much longer than its peers do. A few of S3's answers
/// come very late, and a repeated request reaches another server. The first answer counts, and the other GET
/// is cancelled. A failure counts when both have failed.
async fn hedged(shared: &Shared, request: GetObject, into: Buffer) -> Result<Came, ObjectError> {
    let (len, began) = (request.range.len(), Instant::now());
    let send = |into: Buffer| async {
        let (began, _in_flight) = (Instant::now(), shared.latencies.on_sent(len));
        let GetAnswer { bytes, origin, is_compared, .. } =
            shared.bucket.get_within(request.clone(), Box::new(into)).await?;
        match origin {
            Origin::Store => shared.latencies.note(len, began.elapsed()),
        }
        Ok(Came { bytes, from: Place::Store, is_compared })
    };
    shared.hedges.earn(shared.config.hedge_share);
    let mut first = std::pin::pin!(send(into));
    if let Ok(result) = timeout(shared.latencies.slow_after(len), &mut first).await {
        return result;
    }
    let Some(_turn) = shared.turns.spare() else { return first.await };
    let Some(_permit) = shared.bucket.try_permit(Class::Ahead) else { return first.await };
    let Some(buffer) = hedge_buffer(shared, len) else { return first.await };
    tracing::debug!(object = ?request.object, range = %request.range, waited = ?began.elapsed(), "the GET is slow: sending a second one");
    let mut second = std::pin::pin!(send(buffer));
    tokio::select! {
        result = &mut first => match result {
            Ok(came) => Ok(came),
            Err(_) => second.await,
        },
        result = &mut second => match result {
            Ok(came) => Ok(came),
            Err(_) => first.await,
        },
    }
}

/// A buffer for a reader that waits. Other readers give memory back for it (`reclaim`). The wait has no
/// deadline of its own.
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

/// A buffer for a GET that nobody waits for.
fn spare_buffer(shared: &Shared, range: ByteRange) -> Option<Buffer> {
    shared.pool.try_buffer(usize::try_from(range.len()).ok()?, Priority::Prefetch)
}

/// A buffer for a second GET of `len` bytes, if the hedge budget and the memory have room for one.
fn hedge_buffer(shared: &Shared, len: u64) -> Option<Buffer> {
    let buffer = shared.pool.try_buffer(usize::try_from(len).ok()?, Priority::Prefetch)?;
    shared.hedges.spend().then(|| {
        shared.metrics.hedges.inc();
        buffer
    })
}
