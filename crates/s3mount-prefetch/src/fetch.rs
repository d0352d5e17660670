//! One GET: memory, retries, deadline; and a second one beside it when it is slow.

use bytes::Bytes;
use s3mount_memory::Buffer;
use s3mount_object::{Attempts, ByteRange, GetObject, ObjectError, ObjectId, Retries};
use tokio::time::{Instant, timeout};

use crate::ReadError;
use crate::prefetcher::Shared;
use crate::sync::{AtomicU64, Ordering};

/// Fetches `range` of `object` into `buffer`, or into the first buffer that can be had. Retries
/// what may pass, until the read time-out.
pub(crate) async fn fetch(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    buffer: Option<Buffer>,
) -> Result<Bytes, ReadError> {
    let limit = shared.config.read_timeout;
    timeout(limit, attempts(shared, object, range, buffer, Instant::now() + limit))
        .await
        .unwrap_or(Err(ReadError::TimedOut(limit)))
}

async fn attempts(
    shared: &Shared,
    object: &ObjectId,
    range: ByteRange,
    mut buffer: Option<Buffer>,
    deadline: Instant,
) -> Result<Bytes, ReadError> {
    let len = usize::try_from(range.len()).expect("a part fits the address space");
    // Parts that fail together differ in their offsets, which is all the randomness that takes.
    let attempts = Attempts::new(shared.latencies.stalls_after(range.len()), range.start() >> 16);
    let mut retries = Retries::new(&shared.retry_budget, attempts, deadline);
    loop {
        let into = match buffer.take() {
            Some(buffer) => buffer,
            None => shared.demand_buffer(len).await,
        };
        let request = GetObject { object: object.clone(), range };
        match retries.attempt("GetObject", object.key(), hedged(shared, request, into)).await {
            Ok(bytes) => {
                shared.counters.on_fetched(range.len());
                return Ok(bytes);
            }
            Err(error) => {
                let result = retries.pause(error, || true).await;
                result.map_err(|error| ReadError::Object(error.into()))?;
            }
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
        let result = shared.client.get_object(request.clone(), Box::new(into)).await;
        if result.is_ok() {
            shared.latencies.note(len, began.elapsed());
        }
        result
    };
    shared.hedges.earn(shared.config.hedge_share);
    let mut first = std::pin::pin!(send(into));
    if let Ok(result) = timeout(shared.latencies.slow_after(len), &mut first).await {
        return result;
    }
    let Some(buffer) = shared.hedge_buffer(len) else { return first.await };
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

/// The budget of second GETs: each GET earns a part of one.
#[derive(Debug, Default)]
pub(crate) struct Hedges(AtomicU64);

impl Hedges {
    /// Parts of a second GET that a budget is counted in.
    const ONE: u64 = 1 << 20;

    /// What is saved up at most: a store that was good for an hour may not be asked for everything
    /// twice when it gets slow.
    const MOST: u64 = 8 * Self::ONE;

    fn earn(&self, share: f64) {
        let part = (share * Self::ONE as f64) as u64;
        let earn = |saved: u64| Some((saved + part).min(Self::MOST));
        // It never refuses.
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, earn);
    }

    /// Takes one out of the budget, if there is one.
    pub(crate) fn spend(&self) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(Self::ONE)).is_ok()
    }
}
