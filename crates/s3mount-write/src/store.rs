//! The store as drafts and copies use it: the bucket, what is counted of its requests, and whether checksums are sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use s3mount_bucket::{Failure, WritableBucket};
use s3mount_object::{
    Body, ByteRange, ChecksumAlgorithm, Condition, CopySource, ErrorKind, NewObject, ObjectChecksum,
    ObjectError, ObjectId, UploadId, Written, WrittenPart,
};

use crate::WriteMetrics;

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
    pub(crate) bucket: WritableBucket,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// Whether the CRC-64/NVME of everything is sent along and compared with the store's.
    pub(crate) has_checksums: bool,
}

impl Store {
    /// A request may be made again for as long as `timeout`. One that moves many bytes has longer.
    pub(crate) fn new(
        bucket: WritableBucket,
        metrics: Arc<WriteMetrics>,
        has_checksums: bool,
        timeout: Duration,
    ) -> Self {
        Self { bucket: bucket.with_timeout(timeout), metrics, has_checksums }
    }

    /// CreateMultipartUpload. Notes in `is_unknown` whether the store may have another upload of the key.
    pub(crate) async fn create_upload(
        &self,
        key: &str,
        object: &NewObject,
        is_unknown: &mut bool,
    ) -> Result<UploadId, ObjectError> {
        let upload = self.bucket.create_upload(key, object, self.has_checksums, is_unknown).await?;
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
        let part = self.bucket.put_part(upload, number, body).await?;
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
        let part = self.bucket.copy_part(upload, number, source, range).await?;
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
        object: &NewObject,
        condition: Option<&Condition>,
    ) -> Result<Written, ObjectError> {
        let written = self.bucket.copy(source, size, key, object, condition).await?;
        self.metrics.copied_bytes.add(size);
        Ok(written)
    }

    /// The tags of the object at a key. A store without tags has none.
    pub(crate) async fn tags(&self, key: &str) -> Result<Option<String>, ObjectError> {
        match self.bucket.tags(key).await {
            Err(error) if *error.kind() == ErrorKind::Unsupported => Ok(None),
            tags => tags,
        }
    }

    /// Whether the store says that a version is no more.
    pub(crate) async fn is_gone(&self, object: &ObjectId) -> bool {
        match self.bucket.head(object.key()).await {
            Ok(Some(found)) => found.etag != *object.etag(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// CompleteMultipartUpload.
    pub(crate) async fn complete(
        &self,
        upload: &UploadId,
        parts: &[WrittenPart],
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        self.bucket.complete(upload, parts, (crc_of(parts), self.has_checksums), condition).await
    }

    /// Gives an upload up. Returns whether the store has done so.
    pub(crate) async fn abort(&self, upload: &UploadId) -> bool {
        self.metrics.aborted.inc();
        let aborted = self.bucket.abort(upload).await;
        if let Err(error) = &aborted {
            tracing::warn!(key = upload.key, %error, "an upload could not be given up");
        }
        aborted.is_ok()
    }
}
