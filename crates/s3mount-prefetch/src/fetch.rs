//! One GET: from the disk, from the shared tier, or from the store, with retries and a deadline. A slow GET gets a
//! second one beside it.

use std::pin::pin;
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
    /// The GET was sent ahead of its readers, and failed while no read waited for it. Its range is fetched when a
    /// reader asks for it, or when there is room to read ahead again.
    GivenUp,
    /// The GET's time had run out at this moment. Reads whose time has also run out fail. For reads that came later,
    /// the range is fetched anew.
    Late(ReadError, Instant),
    /// The GET failed, and so do the reads that wait for it.
    Read(ReadError),
}

impl Failure {
    /// The error of the reads that fail, if any does.
    pub(crate) fn error(&self) -> Option<&ReadError> {
        match self {
            Failure::GivenUp => None,
            Failure::Late(error, _) | Failure::Read(error) => Some(error),
        }
    }

    /// The error of a read that has waited for `limit`.
    pub(crate) fn into_error(self, limit: Duration) -> ReadError {
        match self {
            Failure::GivenUp => ReadError::TimedOut(limit),
            Failure::Late(error, _) | Failure::Read(error) => error,
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

/// The bytes that a GET brought.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) bytes: Bytes,
    pub(crate) from: Place,
    /// Whether these are all bytes of the object, and were compared with a checksum from the store.
    is_compared: bool,
}

/// What a GET asks about the reads that want its bytes.
pub(crate) trait Wanted: Send + Sync {
    /// Whether a read waits for the GET now.
    fn is_awaited(&self) -> bool;

    /// The GET fails at this time, retries included, unless reads with a later deadline wait for it by then.
    fn first_deadline(&self) -> Instant;

    /// The deadline as it is now.
    fn deadline(&self) -> Instant {
        self.first_deadline()
    }

    /// Fails reads past their deadline. Returns when to check again.
    fn look(&self) -> Next {
        let deadline = self.first_deadline();
        if Instant::now() < deadline { Next::LookAt(deadline) } else { Next::Fail }
    }

    /// Makes readers give memory back for the GETs that queue at the pool.
    fn reclaim(&self) {}
}

/// What a GET does after it has checked its reads' deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The GET goes on, and checks again at this time.
    LookAt(Instant),
    /// The GET's time has run out.
    Fail,
    /// A shorter GET for the waiting reads replaces it.
    GiveWay,
}

/// The one read of a GET that no other read can join.
pub(crate) struct Alone {
    pub(crate) deadline: Instant,
}

impl Wanted for Alone {
    fn is_awaited(&self) -> bool {
        false
    }

    fn first_deadline(&self) -> Instant {
        self.deadline
    }
}

/// How often a GET checks its reads' deadlines. Most reads begin to wait after their GET was sent, and fail on time. A
/// read that waited for another GET before may fail this much too late.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// A GET that still waits for memory after this time asks readers to give back more. The buffers of cancelled
/// GETs may not have come back.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Fetches `range` of `object` into `buffer`, or into the first buffer that it can get. Retries transient errors until
/// the deadline, as long as a read waits for the bytes or memory is to spare.
pub(crate) async fn fetch(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Result<Came, Failure> {
    in_time(shared, wanted, from_nearest(shared, version, range, buffer, wanted)).await
}

/// Waits for a GET until its deadline. Fails reads whose own deadline comes earlier.
pub(crate) async fn in_time<T>(
    shared: &Shared,
    wanted: &dyn Wanted,
    get: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut get = pin!(get);
    let mut next = wanted.first_deadline().min(Instant::now() + LOOK);
    loop {
        if let Ok(result) = timeout_at(next, &mut get).await {
            return result;
        }
        let now = Instant::now();
        match wanted.look() {
            Next::LookAt(later) => next = later,
            Next::GiveWay => return Err(Failure::GivenUp),
            Next::Fail => return Err(Failure::Late(ReadError::TimedOut(shared.config.read_timeout), now)),
        }
    }
}

/// Fetches from the disk if the disk holds the range, else from the shared tier or the store. The caller watches the
/// deadline.
pub(crate) async fn from_nearest(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Result<Came, Failure> {
    let Some(disk) = &version.disk else {
        return from_afar(shared, version, range, buffer, wanted).await;
    };
    let source = source_time(shared, range);
    let into = buffer_for(shared, range, buffer, wanted).await;
    // The disk first checks whether it holds the range, if that is unknown, and gives the buffer back at once if not.
    let read = match disk.asks_source(range, source.is_some()) {
        None => disk.read(range, source, into).await,
        Some(limit) => {
            match before_slow(shared, version, range, into, (limit, source.is_some()), wanted).await {
                Ok(came) => return Ok(came),
                Err(failure @ Failure::GivenUp) => return Err(failure),
                Err(failure) => {
                    if matches!(failure, Failure::Late(..)) {
                        disk.on_source_slow();
                    }
                    let into = buffer_for(shared, range, None, wanted).await;
                    disk.read_anyway(range, source, into).await
                }
            }
        }
    };
    let left = match read {
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

/// Fetches from farther away what a slow disk holds, within `limit`, the time that the disk takes. If the store's time
/// is unknown, asks the store itself.
async fn before_slow(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Buffer,
    (limit, is_known): (Duration, bool),
    wanted: &dyn Wanted,
) -> Result<Came, Failure> {
    let get = async {
        if is_known {
            from_afar(shared, version, range, Some(buffer), wanted).await
        } else {
            attempts(shared, &version.object, range, Some(buffer), wanted).await
        }
    };
    let late = |_| Failure::Late(ReadError::TimedOut(limit), Instant::now());
    timeout(limit, get).await.map_err(late)?
}

/// The time that the store takes for `range`, if known.
fn source_time(shared: &Shared, range: ByteRange) -> Option<Duration> {
    Some(shared.latencies.mean(range.len())).filter(|mean| !mean.is_zero())
}

/// Fetches from the shared tier if it holds the range, else from the store.
async fn from_afar(
    shared: &Shared,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Result<Came, Failure> {
    let Version { object, size, .. } = version;
    let Some(tier) = &shared.tiers.shared else {
        return attempts(shared, object, range, buffer, wanted).await;
    };
    let source = source_time(shared, range);
    if source.is_none() && tier.may_be_slow() {
        // This GET measures whether the store is faster.
        return attempts(shared, object, range, buffer, wanted).await;
    }
    let into = buffer_for(shared, range, buffer, wanted).await;
    let Miss { buffer: left, lease } = match tier.get(object, *size, range, source, into).await {
        Ok(bytes) => return Ok(Came { bytes, from: Place::Shared, is_compared: false }),
        Err(miss) => miss,
    };
    let came = attempts(shared, object, range, left, wanted).await?;
    tier.offer(object, *size, range, &came.bytes);
    // Until now the lease has kept room for the block.
    drop(lease);
    Ok(came)
}

/// The buffer at hand, or a new one as soon as memory is free.
async fn buffer_for(
    shared: &Shared,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Buffer {
    match buffer {
        Some(buffer) => buffer,
        None => {
            let len = usize::try_from(range.len()).expect("a part fits the address space");
            demand_buffer(shared, len, wanted).await
        }
    }
}

async fn attempts(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    mut buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Result<Came, Failure> {
    // GETs that keep to the mount's rate wait for each other as at a slow link.
    let slow = || shared.latencies.stalls_after(range.len()).max(shared.bucket.gets_wait());
    let deadline = || wanted.deadline();
    let first = wanted.first_deadline();
    let retries = shared.bucket.retries_until(Operation::GetObject, object.key(), slow(), first);
    let mut retries = retries.joined(&deadline).slow_by(&slow);
    loop {
        let into = buffer_for(shared, range, buffer.take(), wanted).await;
        let request = GetObject { object: object.clone(), range };
        let permit = shared.request_permits.acquire().await;
        let sent = shared.started.elapsed();
        let result = retries.attempt(hedged(shared, request, into)).await;
        let was_refused = result.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Throttled);
        let (now, refused) = (shared.started.elapsed(), shared.bucket.refused_requests());
        shared.request_permits.on_answer(sent, now, refused, was_refused);
        drop(permit);
        match result {
            Ok(came) => {
                shared.metrics.get_requests.inc();
                shared.metrics.fetched_bytes.add(range.len());
                shared.metrics.part_size.note(range.len());
                return Ok(came);
            }
            Err(error) => match retries.pause(error, || wanted.is_awaited()).await {
                Err(_) if retries.gave_way() => return Err(Failure::GivenUp),
                Err(error) if error.is_retryable() => {
                    return Err(Failure::Late(ReadError::Object(error.into()), retries.deadline()));
                }
                Err(error) => return Err(Failure::Read(ReadError::Object(error.into()))),
                Ok(()) if wanted.is_awaited() => {}
                // No read waits for this GET, so it takes only memory that no reader needs.
                Ok(()) => match spare_buffer(shared, range) {
                    Some(free) => buffer = Some(free),
                    None => return Err(Failure::GivenUp),
                },
            },
        }
    }
}

/// Sends a GET, and a second one when the first takes much longer than its peers. A few of S3's answers come very late,
/// and a repeated request reaches another server. The first answer counts, and the other GET is cancelled. A failure
/// counts when both have failed.
async fn hedged(shared: &Shared, request: GetObject, into: Buffer) -> Result<Came, ObjectError> {
    let (len, began, sent) = (request.range.len(), Instant::now(), shared.started.elapsed());
    let send = |into: Buffer| async {
        let in_flight = shared.latencies.link.on_sent(len, shared.started.elapsed());
        let GetAnswer { bytes, origin, is_compared, .. } =
            shared.bucket.get_within(request.clone(), Box::new(into)).await?;
        match origin {
            Origin::Store => {
                let now = shared.started.elapsed();
                let took = in_flight.on_landed(now);
                shared.latencies.note(len, took);
                shared.ahead.congestion.on_landed(len, took, shared.latencies.mean(len), now);
            }
        }
        Ok(Came { bytes, from: Place::Store, is_compared })
    };
    shared.hedges.earn(shared.config.hedge_share);
    let mut first = pin!(send(into));
    loop {
        if let Ok(result) = timeout(shared.latencies.slow_after(len), &mut first).await {
            return result;
        }
        // While nothing comes, the link is slow and not this GET, or all connections are dead.
        let congestion = &shared.ahead.congestion;
        let is_slow_alone =
            !shared.latencies.link.has_in_flight_beside(len) || congestion.has_landed_since(sent);
        if is_slow_alone || congestion.may_probe(shared.started.elapsed()) {
            break;
        }
    }
    let Some(_permit) = shared.request_permits.try_acquire() else { return first.await };
    let Some(_permit) = shared.bucket.try_permit(Class::Ahead) else { return first.await };
    let Some(buffer) = hedge_buffer(shared, len) else { return first.await };
    tracing::debug!(object = ?request.object, range = %request.range, waited = ?began.elapsed(), "the GET is slow: sending a second one");
    let mut second = pin!(send(buffer));
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

/// A buffer for a read that waits. Other readers give memory back for it. This wait has no deadline of its own.
async fn demand_buffer(shared: &Shared, len: usize, wanted: &dyn Wanted) -> Buffer {
    if let Some(buffer) = shared.pool.try_buffer(len, Priority::Demand) {
        return buffer;
    }
    let mut buffer = pin!(shared.pool.buffer(len));
    loop {
        wanted.reclaim();
        if let Some(buffer) = at_most(ASK_AGAIN, &mut buffer).await {
            return buffer;
        }
    }
}

/// A buffer for a GET that no read waits for.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use s3mount_memory::{BufferPool, MemoryBudget};
    use s3mount_object::{ByteRange, ErrorKind};
    use s3mount_testkit::MemoryClient;
    use tokio::runtime::Handle;
    use tokio::time::Instant;

    use super::{Failure, Wanted, fetch};
    use crate::PrefetchConfig;
    use crate::shared::Shared;
    use crate::tiers::Tiers;
    use crate::version::Version;

    /// No read waits when the GET asks first; one waits when it asks again.
    struct JustCame(AtomicBool, Instant);

    impl Wanted for JustCame {
        fn is_awaited(&self) -> bool {
            self.0.swap(true, Ordering::Relaxed)
        }

        fn first_deadline(&self) -> Instant {
            self.1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_when_a_get_is_given_up_gets_no_error_of_it() {
        let client = Arc::new(MemoryClient::new());
        let object = client.put_synthetic("k", 4096);
        let pool = BufferPool::new(MemoryBudget::new(8 << 20)).expect("a pool");
        let shared = Shared::new(
            client.clone().into(),
            pool,
            Tiers::default(),
            PrefetchConfig::default(),
            Handle::current(),
        );
        let now = Instant::now();
        while shared.bucket.budget().take_spare(now.into_std()) {}
        client.fail_next([ErrorKind::Server]);
        let version = Version::new(object, 4096, &shared.tiers);
        let wanted = JustCame(AtomicBool::new(false), now + Duration::from_secs(60));
        let result = fetch(&shared, &version, ByteRange::new(0, 4096), None, &wanted).await;
        assert!(matches!(result, Err(Failure::GivenUp)), "{result:?}");
    }
}
