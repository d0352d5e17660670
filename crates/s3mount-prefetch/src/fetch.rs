//! One GET: memory, retries, deadline.

use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::Buffer;
use s3mount_object::{ByteRange, GetObject, ObjectId};
use tokio::time::{Instant, timeout};

use crate::ReadError;
use crate::prefetcher::Shared;

/// First pause before a GET is tried again; it doubles up to [`MAX_BACKOFF`]. S3 asks for
/// exponential back-off from a fraction of a second.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

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
    let mut backoff = FIRST_BACKOFF;
    loop {
        let into = match buffer.take() {
            Some(buffer) => buffer,
            None => shared.demand_buffer(len).await,
        };
        let request = GetObject { object: object.clone(), range };
        let began = Instant::now();
        let error = match shared.client.get_object(request, Box::new(into)).await {
            Ok(bytes) => {
                shared.counters.on_fetched(range.len());
                shared.latencies.note(range.len(), began.elapsed());
                return Ok(bytes);
            }
            Err(error) => error,
        };
        if !error.is_retryable() || Instant::now() + backoff >= deadline {
            return Err(ReadError::Object(error.into()));
        }
        tracing::warn!(%error, %range, ?backoff, "GET failed, trying again");
        tokio::time::sleep(jittered(backoff, range)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Between half of `backoff` and all of it, so that parts that failed together don't come back
/// together. Their offsets differ, which is all the randomness that takes.
fn jittered(backoff: Duration, range: ByteRange) -> Duration {
    let spread = (range.start() >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    backoff / 2 + backoff * u32::try_from(spread).unwrap_or(0) / 2048
}
