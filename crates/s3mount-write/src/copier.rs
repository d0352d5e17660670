//! Copies whole objects inside the store.
//!
//! A short object is copied by one CopyObject. A longer one becomes an upload whose parts are copied side by side: S3
//! copies one range at some 180 MB/s, and sixteen at a time. Each request names the version of the source. The copy
//! gets the source's metadata.

mod order;
mod parts;
mod upload;

use std::sync::Arc;

use s3mount_bucket::WritableBucket;
use s3mount_object::{
    Condition, CopySource, ETag, ErrorKind, NewObject, ObjectChecksum, ObjectError, ObjectId, Written,
};
use tokio::sync::Semaphore;

pub use self::order::{Copied, CopyConfig, CopyError, CopyOrder, Encrypted, Progress, Proof, Source};
use self::parts::{MOST_PART, Parts};
use crate::beside::keep;
use crate::shared::Shared;
use crate::store::Store;

/// Copies objects. Cheap to clone; all clones together keep to the limit of requests.
#[derive(Clone, Debug)]
pub struct Copier {
    source: Arc<Store>,
    target: Arc<Store>,
    requests: Arc<Semaphore>,
    config: CopyConfig,
    /// Whose journal has the uploads.
    writer: Option<Arc<Shared>>,
}

/// One copy, as its requests need it.
struct Job<'a> {
    from: &'a Source,
    source: CopySource,
    key: &'a str,
    object: NewObject,
    condition: Option<&'a Condition>,
    progress: Progress<'a>,
}

/// A version that was written.
struct Made {
    written: Written,
    resumed_bytes: u64,
    lacks_tags: bool,
}

impl Job<'_> {
    fn size(&self) -> u64 {
        self.from.description.meta.size
    }

    /// The CRC of the source's bytes, if the store keeps one.
    fn sum(&self) -> Option<ObjectChecksum> {
        self.from.description.checksum
    }

    /// The proof that the copy has the bytes of its source.
    ///
    /// # Errors
    /// `Differs`.
    fn compare(&self, etag: &ETag, checksum: Option<ObjectChecksum>) -> Result<Proof, CopyError> {
        match (self.sum(), checksum) {
            (Some(source), Some(copy)) if source.algorithm == copy.algorithm => {
                let (key, expected) = (self.key.to_owned(), source);
                if source == copy {
                    return Ok(Proof::Checksum);
                }
                Err(CopyError::Differs { key, expected, copy })
            }
            _ if etag == self.from.object.etag() => Ok(Proof::ETag),
            _ => Ok(Proof::Length),
        }
    }

    fn source_changed(&self) -> CopyError {
        CopyError::SourceChanged { key: self.from.object.key().to_owned() }
    }

    fn taken(&self) -> CopyError {
        CopyError::Taken { key: self.key.to_owned() }
    }
}

impl Copier {
    /// Copies objects from the bucket `source` to the bucket `target`. Both may be the same.
    pub fn new(
        source: impl Into<WritableBucket>,
        target: impl Into<WritableBucket>,
        config: CopyConfig,
    ) -> Self {
        let (has_checksums, timeout) = (config.has_checksums, config.timeout);
        let store = |bucket| Arc::new(Store::new(bucket, Arc::default(), has_checksums, timeout));
        let requests = Arc::new(Semaphore::new(config.max_requests));
        Self { source: store(source.into()), target: store(target.into()), requests, config, writer: None }
    }

    /// Copies objects inside the bucket of a writer.
    pub(crate) fn of(writer: Arc<Shared>) -> Self {
        let Shared { store, requests, config, .. } = &*writer;
        let config = CopyConfig { max_requests: config.max_requests, ..CopyConfig::default() };
        let (source, target, requests) = (store.clone(), store.clone(), requests.clone());
        Self { source, target, requests, config, writer: Some(writer) }
    }

    /// The version that is at `key` of the source's bucket now.
    ///
    /// # Errors
    /// Those of a HEAD.
    pub async fn describe(&self, key: &str) -> Result<Source, CopyError> {
        let description = self.source.bucket.describe(key).await?;
        Ok(Source { object: ObjectId::new(key, description.meta.etag.clone()), description })
    }

    /// This version, if it is at its key still.
    ///
    /// # Errors
    /// `SourceChanged`, or those of a HEAD.
    pub(crate) async fn describe_version(&self, version: &ObjectId) -> Result<Source, CopyError> {
        let source = self.describe(version.key()).await?;
        if source.object == *version {
            Ok(source)
        } else {
            Err(CopyError::SourceChanged { key: version.key().to_owned() })
        }
    }

    /// Copies a version to another key of its bucket, encrypted as it is.
    ///
    /// # Errors
    /// As of [`copy`](Self::copy).
    pub(crate) async fn copy_to(
        &self,
        source: &Source,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<ObjectId, CopyError> {
        let order =
            CopyOrder { condition: condition.cloned(), encrypted: Encrypted::Kept, ..CopyOrder::to(key) };
        Ok(self.copy(source, &order, &|_| {}).await?.object)
    }

    /// Copies a version.
    ///
    /// # Errors
    /// See [`CopyError`]. Unless the copier [resumes](CopyConfig::resumes), a copy that fails, or whose future is
    /// dropped, leaves no upload behind.
    pub async fn copy(
        &self,
        source: &Source,
        order: &CopyOrder,
        progress: Progress<'_>,
    ) -> Result<Copied, CopyError> {
        let job = self.job(source, order, progress);
        let size = job.size();
        let whole = |written| Made { written, resumed_bytes: 0, lacks_tags: false };
        let is_one = Parts::is_one(size, self.config.part_bytes);
        let made = if is_one && !self.target.bucket.must_be_parts(&order.key, size) {
            whole(self.copy_whole(&job).await?)
        } else {
            match self.copy_parts(&job).await {
                // Not every store copies parts, and not every store tells the right CRCs of them.
                Err(error) if size <= MOST_PART && is_of_parts(&error) => {
                    tracing::debug!(%error, "copied by one request instead");
                    whole(self.copy_whole(&job).await?)
                }
                made => made?,
            }
        };
        let Made { written, resumed_bytes, lacks_tags } = made;
        let proof = job.compare(&written.etag, written.checksum)?;
        Ok(Copied { object: ObjectId::new(&order.key, written.etag), size, resumed_bytes, proof, lacks_tags })
    }

    /// Gives a version another key in its bucket: by one request where the store can do so, which is then atomic;
    /// elsewhere it is copied, and the version at the old key is deleted.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub async fn rename(
        &self,
        object: &ObjectId,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<ObjectId, CopyError> {
        match self.target.bucket.rename(object, key, condition).await {
            Ok(()) => return Ok(ObjectId::new(key, object.etag().clone())),
            Err(error) if *error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.into()),
        }
        let source = self.describe_version(object).await?;
        let copied = self.copy_to(&source, key, condition).await?;
        self.target.bucket.delete(object).await?;
        Ok(copied)
    }

    fn job<'a>(&self, from: &'a Source, order: &'a CopyOrder, progress: Progress<'a>) -> Job<'a> {
        let encryption = match &order.encrypted {
            Encrypted::With(encryption) => Some(encryption.clone()),
            Encrypted::Kept | Encrypted::AsBucket => None,
        };
        let storage_class = order.storage_class.clone();
        let wanted = NewObject { storage_class, encryption, ..NewObject::default() };
        let mut object = keep(from.description.object.clone(), wanted);
        if order.encrypted == Encrypted::AsBucket {
            object.encryption = None;
        }
        let source = CopySource { bucket: order.source_bucket.clone(), object: from.object.clone() };
        Job { from, source, key: &order.key, object, condition: order.condition.as_ref(), progress }
    }

    /// Copies by one request.
    async fn copy_whole(&self, job: &Job<'_>) -> Result<Written, CopyError> {
        let copied = {
            // The semaphore is never closed.
            let _permit = self.requests.acquire().await;
            self.target.copy(&job.source, job.size(), job.key, &job.object, job.condition).await
        };
        let written = match copied {
            Ok(written) => written,
            Err(error) => return Err(self.explain(job, error).await),
        };
        (job.progress)(job.size());
        Ok(written)
    }

    /// Says which condition of a copy by one request did not hold.
    async fn explain(&self, job: &Job<'_>, error: ObjectError) -> CopyError {
        if !matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::NotFound) {
            return error.into();
        }
        match self.source.bucket.describe(job.from.object.key()).await {
            Ok(found) if found.meta.etag == *job.from.object.etag() => match job.condition {
                Some(_) => job.taken(),
                None => error.into(),
            },
            Ok(_) => job.source_changed(),
            Err(missing) if *missing.kind() == ErrorKind::NotFound => job.source_changed(),
            Err(_) => error.into(),
        }
    }
}

/// Whether a copy by one request may do better than one in parts.
fn is_of_parts(error: &CopyError) -> bool {
    match error {
        CopyError::Object(error) => *error.kind() == ErrorKind::Unsupported,
        CopyError::Differs { .. } => true,
        CopyError::SourceChanged { .. } | CopyError::Taken { .. } | CopyError::TooLong { .. } => false,
    }
}
