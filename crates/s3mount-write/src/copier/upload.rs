//! Copies in parts.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use s3mount_bucket::Failure;
use s3mount_object::{
    ChecksumAlgorithm, Condition, ErrorKind, NewObject, ObjectError, UploadId, Written, WrittenPart,
};
use tokio::runtime::Handle;

use super::parts::Parts;
use super::{Copier, CopyError, Job, Made};
use crate::store::crc_of;

/// How often an upload is completed anew after the store named a part that it does not have.
const MOST_CORRECTIONS: u32 = 3;

/// Gives an upload up when its copy is no longer awaited.
struct Abandoned {
    copier: Copier,
    upload: Option<UploadId>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.upload.take(), Handle::try_current()) {
            let copier = self.copier.clone();
            runtime.spawn(async move { copier.abort(&upload).await });
        }
    }
}

/// An upload, and the parts of it that the store has.
struct Begun {
    upload: UploadId,
    parts: BTreeMap<u32, WrittenPart>,
    /// Whether an earlier copy has begun it.
    is_found: bool,
    /// Whether the tags of the source may not be read.
    lacks_tags: bool,
}

impl Copier {
    /// Copies in parts.
    pub(super) async fn copy_parts(&self, job: &Job<'_>) -> Result<Made, CopyError> {
        let size = job.size();
        let parts = Parts::new(size, self.config.part_bytes)
            .ok_or_else(|| CopyError::TooLong { key: job.from.object.key().to_owned(), size })?;
        let mut found = self.unfinished(job, parts).await;
        loop {
            let begun = match found.take() {
                Some(begun) => begun,
                None => self.begin(job).await?,
            };
            let (upload, is_found, lacks_tags) = (begun.upload.clone(), begun.is_found, begun.lacks_tags);
            let resumed_bytes = begun.parts.values().map(|part| part.len).sum();
            let may_stay = self.config.resumes && job.sum().is_some();
            let kept = Some(upload.clone()).filter(|_| !may_stay);
            let mut abandoned = Abandoned { copier: self.clone(), upload: kept };
            let copied = self.copy_missing(job, parts, begun).await;
            abandoned.upload = None;
            let error = match copied {
                Ok(written) => {
                    if let Some(writer) = &self.writer {
                        writer.ended(&upload);
                    }
                    return Ok(Made { written, resumed_bytes, lacks_tags });
                }
                Err(error) => error,
            };
            if is_found && is_of_upload(&error) {
                // It was another's, or was given up meanwhile.
                tracing::info!(key = job.key, %error, "an upload can't be gone on with: a new one begins");
                continue;
            }
            if !(may_stay && passes(&error)) {
                self.abort(&upload).await;
            }
            return Err(error);
        }
    }

    async fn abort(&self, upload: &UploadId) {
        match &self.writer {
            Some(writer) => writer.abort(upload).await,
            None => drop(self.target.abort(upload).await),
        }
    }

    async fn begin(&self, job: &Job<'_>) -> Result<Begun, CopyError> {
        let (tags, lacks_tags) = match self.source.tags(job.from.object.key()).await {
            Ok(tags) => (tags, false),
            Err(error) if *error.kind() == ErrorKind::Forbidden => {
                tracing::warn!(key = job.key, %error, "copied without tags, which may not be read");
                (None, true)
            }
            Err(error) if *error.kind() == ErrorKind::NotFound => return Err(job.source_changed()),
            Err(error) => return Err(error.into()),
        };
        let object = NewObject { tags, ..job.object.clone() };
        let upload = match &self.writer {
            Some(writer) => writer.create_upload(job.key, &object).await?,
            None => self.target.create_upload(job.key, &object, &mut false).await?,
        };
        Ok(Begun { upload, parts: BTreeMap::new(), is_found: false, lacks_tags })
    }

    /// The upload that an earlier copy of the same version has left, with the most parts. Only the CRC of
    /// the whole proves at the end that it was one of this version, so a source without one has none.
    async fn unfinished(&self, job: &Job<'_>, parts: Parts) -> Option<Begun> {
        let has_sum = job.sum().is_some_and(|sum| sum.algorithm == ChecksumAlgorithm::Crc64Nvme);
        if !self.config.resumes || !has_sum {
            return None;
        }
        match self.look_for_uploads(job, parts).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(key = job.key, %error, "uploads that were left can't be listed");
                None
            }
        }
    }

    async fn look_for_uploads(&self, job: &Job<'_>, parts: Parts) -> Result<Option<Begun>, ObjectError> {
        let mut best: Option<Begun> = None;
        let mut after = None;
        loop {
            let page = self.target.bucket.list_uploads(job.key, after.as_ref()).await?;
            let is_of_key = |upload: &UploadId| upload.key == job.key;
            let may_go_on = page.uploads.last().is_none_or(|last| is_of_key(&last.upload));
            let written_at = job.from.description.meta.last_modified;
            let wanted =
                page.uploads.into_iter().filter(|l| is_of_key(&l.upload) && l.initiated >= written_at);
            for listed in wanted {
                let known = self.target.bucket.list_parts(&listed.upload).await?;
                let fits = |part: &WrittenPart| {
                    parts.len_of(part.number) == Some(part.len) && part.checksum.is_some()
                };
                let most = best.as_ref().map_or(0, |best| best.parts.len());
                if known.len() > most && known.iter().all(fits) {
                    let parts = known.into_iter().map(|part| (part.number, part)).collect();
                    best = Some(Begun { upload: listed.upload, parts, is_found: true, lacks_tags: false });
                }
            }
            // A page that does not go on would be asked for again and again.
            match page.next.filter(|next| may_go_on && Some(next) != after.as_ref()) {
                Some(next) => after = Some(next),
                None => return Ok(best),
            }
        }
    }

    /// Copies the parts that are missing, and completes the upload.
    async fn copy_missing(&self, job: &Job<'_>, parts: Parts, begun: Begun) -> Result<Written, CopyError> {
        let Begun { upload, parts: mut there, .. } = begun;
        there.values().for_each(|part| (job.progress)(part.len));
        let mut corrections = 0;
        loop {
            let missing: Vec<_> = parts.all().filter(|(number, _)| !there.contains_key(number)).collect();
            let upload = &upload;
            let copies = stream::iter(missing).map(|(number, range)| async move {
                // The semaphore is never closed.
                let _permit = self.requests.acquire().await;
                let copied = self.target.copy_part(upload, number, &job.source, range).await;
                let part = copied.map_err(|error| match error.kind() {
                    ErrorKind::PreconditionFailed | ErrorKind::NotFound => job.source_changed(),
                    _ => error.into(),
                })?;
                (job.progress)(part.len);
                Ok::<_, CopyError>((number, part))
            });
            let copied: Vec<_> = copies.buffer_unordered(self.config.max_requests).try_collect().await?;
            there.extend(copied);
            match self.complete(job, upload, there.values().cloned().collect()).await {
                Err(CopyError::Object(error))
                    if *error.kind() == ErrorKind::InvalidPart && corrections < MOST_CORRECTIONS =>
                {
                    corrections += 1;
                    tracing::warn!(key = job.key, %error, "the store has other parts than it said");
                    let listed = self.target.bucket.list_parts(upload).await?;
                    let fits = |part: &WrittenPart| parts.len_of(part.number) == Some(part.len);
                    there = listed.into_iter().filter(fits).map(|part| (part.number, part)).collect();
                }
                completed => return completed,
            }
        }
    }

    async fn complete(
        &self,
        job: &Job<'_>,
        upload: &UploadId,
        parts: Vec<WrittenPart>,
    ) -> Result<Written, CopyError> {
        let sum = crc_of(&parts);
        if let Some(sum) = sum {
            // Wrong bytes are never published.
            job.compare(job.from.object.etag(), Some(sum))?;
        }
        match self.target.complete(upload, &parts, job.condition).await {
            // A store that tells no CRC of copied parts has none of the whole that means anything.
            Ok(written) => Ok(Written { checksum: written.checksum.filter(|_| sum.is_some()), ..written }),
            Err(Failure { error, .. }) if is_of_target(job.condition, &error) => Err(job.taken()),
            Err(Failure { error, .. }) => Err(error.into()),
        }
    }
}

/// Whether a completion failed by its condition.
fn is_of_target(condition: Option<&Condition>, error: &ObjectError) -> bool {
    condition.is_some() && matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::NotFound)
}

/// Whether another upload would do better.
fn is_of_upload(error: &CopyError) -> bool {
    match error {
        CopyError::Differs { .. } => true,
        CopyError::Object(error) => {
            matches!(error.kind(), ErrorKind::NoSuchUpload | ErrorKind::InvalidPart | ErrorKind::BadChecksum)
        }
        CopyError::SourceChanged { .. } | CopyError::Taken { .. } | CopyError::TooLong { .. } => false,
    }
}

/// Whether the copy may go on later from where it is.
fn passes(error: &CopyError) -> bool {
    let CopyError::Object(error) = error else { return false };
    let kind = error.kind();
    error.is_retryable() && *kind != ErrorKind::BadChecksum
        || matches!(kind, ErrorKind::Forbidden | ErrorKind::BadCredentials | ErrorKind::Cancelled)
}
