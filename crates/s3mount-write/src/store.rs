//! The requests of drafts and copies: each is made again while that may help, and until a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use s3mount_bucket::{Attempts, Retries, RetryBudget};
use s3mount_object::{
    Body, ByteRange, ChecksumAlgorithm, Completion, Condition, CopySource, Description, ErrorKind, GetObject,
    KeptChecksum, NewObject, ObjectChecksum, ObjectError, ObjectId, ObjectWriter, PartBuffer, UploadId,
    UploadsPage, Written, WrittenPart,
};
use tokio::time::Instant;

use crate::WriteMetrics;

/// Each request may take this long, and longer for the bytes that it moves.
pub(crate) const BASE: Duration = Duration::from_secs(20);

/// A body moves at least as fast as this; what is slower counts as stalled. Sixteen bodies at once over a
/// line of 100 Mbit/s have 0.8 MB/s each.
const BYTES_PER_SECOND: u64 = 500_000;

/// S3 copies at least as fast as this inside a region. 180 MB/s were measured.
pub(crate) const COPIED_BYTES_PER_SECOND: u64 = 20_000_000;

const COMPLETE: &str = "CompleteMultipartUpload";

/// A request that failed, and what is not known because of that.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ObjectError,
    /// Whether the store may have done what an earlier attempt asked for.
    pub(crate) may_be_done: bool,
}

impl From<Failure> for ObjectError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// The CRC-64/NVME of some pieces.
pub(crate) fn crc(pieces: &[Bytes]) -> ObjectChecksum {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    pieces.iter().for_each(|piece| digest.update(piece));
    ObjectChecksum { algorithm: ChecksumAlgorithm::Crc64Nvme, value: digest.finalize() }
}

/// The CRC-64/NVME of all parts together, if that of each is known.
pub(crate) fn crc_of(parts: &[WrittenPart]) -> Option<ObjectChecksum> {
    let algorithm = ChecksumAlgorithm::Crc64Nvme;
    let crc =
        |part: &WrittenPart| part.checksum.filter(|sum| sum.algorithm == algorithm).map(|sum| sum.value);
    let (first, rest) = parts.split_first()?;
    let combine = |value, part: &WrittenPart| {
        Some(checksum_combine(CrcAlgorithm::Crc64Nvme, value, crc(part)?, part.len))
    };
    Some(ObjectChecksum { algorithm, value: rest.iter().try_fold(crc(first)?, combine)? })
}

/// A bucket that is written to.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) client: Arc<dyn ObjectWriter>,
    pub(crate) retry_budget: Arc<RetryBudget>,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// Whether the CRC-64/NVME of everything is sent along and compared with the store's.
    pub(crate) has_checksums: bool,
    /// How long a request may be made again. One that moves many bytes has longer.
    pub(crate) timeout: Duration,
    seeds: AtomicU64,
}

impl Store {
    pub(crate) fn new(
        client: Arc<dyn ObjectWriter>,
        retry_budget: Arc<RetryBudget>,
        metrics: Arc<WriteMetrics>,
        has_checksums: bool,
        timeout: Duration,
    ) -> Self {
        Self { client, retry_budget, metrics, has_checksums, timeout, seeds: AtomicU64::new(0) }
    }

    /// Another number for each request.
    pub(crate) fn seed(&self) -> u64 {
        self.seeds.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a request until it succeeds, fails for good, or its time is over.
    pub(crate) async fn request<T, F: Future<Output = Result<T, ObjectError>>>(
        &self,
        named: (&'static str, &str),
        least: Duration,
        attempt: impl Fn() -> F,
    ) -> Result<T, Failure> {
        self.request_noting(named, least, attempt, &mut false).await
    }

    /// As [`request`](Self::request), and notes in `is_unknown` whether an attempt may have been done although it
    /// failed.
    pub(crate) async fn request_noting<T, F: Future<Output = Result<T, ObjectError>>>(
        &self,
        (operation, target): (&'static str, &str),
        least: Duration,
        attempt: impl Fn() -> F,
        is_unknown: &mut bool,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.timeout.max(least * 2);
        // An attempt may take four times what counts as slow.
        let mut retries = Retries::new(&self.retry_budget, Attempts::new(least / 4, self.seed()), deadline);
        loop {
            let error = match retries.attempt(operation, target, attempt()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_conflict = *error.kind() == ErrorKind::Conflict;
            *is_unknown |= error.may_be_done();
            if is_conflict && operation == COMPLETE {
                // After this answer, S3 wants the whole upload anew.
                return Err(Failure { error, may_be_done: *is_unknown });
            }
            // Another write of the key is under way, and over soon.
            let error = if is_conflict { error.with_kind(ErrorKind::Server) } else { error };
            if let Err(error) = retries.pause(error, || true).await {
                let error = if is_conflict { error.with_kind(ErrorKind::Conflict) } else { error };
                return Err(Failure { error, may_be_done: *is_unknown });
            }
        }
    }

    /// PutObject.
    pub(crate) async fn put(
        &self,
        key: &str,
        body: &Body,
        object: &NewObject,
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let attempt = || self.client.put(key, body.clone(), object, condition);
        self.request(("PutObject", key), time_for(body.len()), attempt).await
    }

    /// CreateMultipartUpload.
    pub(crate) async fn create_upload(&self, key: &str, object: &NewObject) -> Result<UploadId, ObjectError> {
        let attempt = || self.client.create_upload(key, object, self.has_checksums);
        let upload = self.request(("CreateMultipartUpload", key), BASE, attempt).await?;
        self.metrics.uploads.inc();
        Ok(upload)
    }

    /// UploadPart.
    pub(crate) async fn put_part(
        &self,
        upload: &UploadId,
        number: u32,
        body: &Body,
    ) -> Result<WrittenPart, ObjectError> {
        let attempt = || self.client.put_part(upload, number, body.clone());
        let part = self.request(("UploadPart", &upload.key), time_for(body.len()), attempt).await?;
        self.metrics.parts.inc();
        self.metrics.uploaded_bytes.add(body.len());
        Ok(WrittenPart { checksum: body.checksum().or(part.checksum), ..part })
    }

    /// UploadPartCopy.
    pub(crate) async fn copy_part(
        &self,
        upload: &UploadId,
        number: u32,
        source: &CopySource,
        range: ByteRange,
    ) -> Result<WrittenPart, ObjectError> {
        let attempt = || self.client.copy_part(upload, number, source, range);
        let time = time_to_copy(range.len());
        let part = self.request(("UploadPartCopy", &upload.key), time, attempt).await?;
        self.metrics.parts.inc();
        self.metrics.copied_bytes.add(range.len());
        Ok(part)
    }

    /// CopyObject, of `size` bytes.
    pub(crate) async fn copy(
        &self,
        source: &CopySource,
        size: u64,
        key: &str,
        object: Option<&NewObject>,
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let attempt = || self.client.copy(source, key, object, condition);
        let written = self.request(("CopyObject", key), time_to_copy(size), attempt).await?;
        self.metrics.copied_bytes.add(size);
        Ok(written)
    }

    /// RenameObject.
    pub(crate) async fn rename(
        &self,
        source: &ObjectId,
        key: &str,
        condition: Option<&Condition>,
        token: &str,
    ) -> Result<(), ObjectError> {
        let attempt = || self.client.rename(source, key, condition, token);
        Ok(self.request(("RenameObject", key), BASE, attempt).await?)
    }

    /// HeadObject.
    pub(crate) async fn describe(&self, key: &str) -> Result<Description, ObjectError> {
        Ok(self.request(("HeadObject", key), BASE, || self.client.describe(key)).await?)
    }

    /// GetObjectTagging.
    pub(crate) async fn tags(&self, key: &str) -> Result<Option<String>, ObjectError> {
        Ok(self.request(("GetObjectTagging", key), BASE, || self.client.tags(key)).await?)
    }

    /// One page of a ListMultipartUploads.
    pub(crate) async fn list_uploads(
        &self,
        prefix: &str,
        after: Option<&UploadId>,
    ) -> Result<UploadsPage, ObjectError> {
        let attempt = || self.client.list_uploads(prefix, after);
        Ok(self.request(("ListMultipartUploads", prefix), BASE, attempt).await?)
    }

    /// The CRC of all bytes that the store keeps of a version.
    pub(crate) async fn kept_checksum(&self, object: &ObjectId) -> Option<ObjectChecksum> {
        let attempt = || self.client.checksum(object);
        match self.request(("HeadObject", object.key()), BASE, attempt).await {
            Ok(KeptChecksum::Whole(sum)) => Some(sum),
            Ok(KeptChecksum::None | KeptChecksum::OfParts) | Err(_) => None,
        }
    }

    /// Whether the store says that a version is no more.
    pub(crate) async fn is_gone(&self, object: &ObjectId) -> bool {
        let attempt = || self.client.describe(object.key());
        match self.request(("HeadObject", object.key()), BASE, attempt).await {
            Ok(found) => found.meta.etag != *object.etag(),
            Err(Failure { error, .. }) => *error.kind() == ErrorKind::NotFound,
        }
    }

    /// CompleteMultipartUpload.
    pub(crate) async fn complete(
        &self,
        upload: &UploadId,
        parts: &[WrittenPart],
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let checksum = if self.has_checksums { crc_of(parts) } else { None };
        let completion = Completion { condition: condition.cloned(), checksum };
        // S3 may need minutes for many parts.
        let time = BASE + Duration::from_millis(20 * parts.len() as u64);
        let attempt = || self.client.complete(upload, parts, &completion);
        self.request((COMPLETE, &upload.key), time, attempt).await
    }

    /// All parts that the store has of an upload.
    pub(crate) async fn list_parts(&self, upload: &UploadId) -> Result<Vec<WrittenPart>, ObjectError> {
        let mut all = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let attempt = || self.client.list_parts(upload, number);
            let page = self.request(("ListParts", &upload.key), BASE, attempt).await?;
            all.extend(page.parts);
            // A page that does not go on would be asked for again and again.
            after = page.next.filter(|next| *next > number);
        }
        Ok(all)
    }

    /// Gives an upload up. Returns whether the store has done so.
    pub(crate) async fn abort(&self, upload: &UploadId) -> bool {
        self.metrics.aborted.inc();
        let attempt = || self.client.abort(upload);
        let aborted = self.request(("AbortMultipartUpload", &upload.key), BASE, attempt).await;
        if let Err(Failure { error, .. }) = &aborted {
            tracing::warn!(key = upload.key, %error, "an upload could not be given up");
        }
        aborted.is_ok()
    }

    /// GetObject.
    pub(crate) async fn get<B: PartBuffer>(
        &self,
        object: &ObjectId,
        range: ByteRange,
        buffer: B,
    ) -> Result<Bytes, ObjectError> {
        let request = GetObject { object: object.clone(), range };
        Ok(self.client.get_object(request, Box::new(buffer)).await?.bytes)
    }

    /// Deletes one version, if it is still there; where the store knows no conditions, whatever is there. A
    /// version that somebody else has replaced stays.
    pub(crate) async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let delete = async |only| {
            let attempt = || self.client.delete(object.key(), only);
            self.request(("DeleteObject", object.key()), BASE, attempt).await.map_err(ObjectError::from)
        };
        let deleted = match delete(Some(object.etag())).await {
            Err(error) if *error.kind() == ErrorKind::Unsupported => delete(None).await,
            deleted => deleted,
        };
        match deleted {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PreconditionFailed) => {
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// What came of a write that failed. It may have been done all the same: its answer, or that of an earlier
    /// attempt, can be lost.
    ///
    /// # Errors
    /// The error of the write, unless the write is found to be done.
    pub(crate) async fn resolve(
        &self,
        key: &str,
        size: u64,
        sum: Option<ObjectChecksum>,
        failure: Failure,
    ) -> Result<Written, ObjectError> {
        if failure.may_be_done
            && let Some(written) = self.is_there(key, size, sum).await
        {
            tracing::info!(key, error = %failure.error, "the answer to a write was lost, and the write was done");
            return Ok(written);
        }
        Err(failure.error)
    }

    /// The version that is at `key` now, if it is one of `size` bytes with this checksum. So a write whose
    /// answer was lost is found to be done. A version without a checksum proves nothing, and neither does an
    /// empty one: others may have written the same nothing.
    async fn is_there(&self, key: &str, size: u64, checksum: Option<ObjectChecksum>) -> Option<Written> {
        let found = self.describe(key).await.ok()?;
        let is_same = size > 0 && found.meta.size == size && checksum.is_some() && found.checksum == checksum;
        is_same.then_some(Written { etag: found.meta.etag, checksum })
    }
}

/// How long one attempt may take that copies `bytes` inside the store. Nothing is heard of it meanwhile.
fn time_to_copy(bytes: u64) -> Duration {
    BASE + Duration::from_secs(bytes / COPIED_BYTES_PER_SECOND)
}

/// How long one attempt may take that moves `bytes` over the network.
fn time_for(bytes: u64) -> Duration {
    BASE + Duration::from_secs(bytes / BYTES_PER_SECOND)
}
