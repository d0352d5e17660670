//! The beginnings of uploads, and uploads that nobody knows.
//!
//! A CreateMultipartUpload whose answer is lost is sent again, and may have begun two uploads. The id of the first is
//! not known, and its owner would pay for it for ever. So the store is asked for the uploads of the key.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use s3mount_object::{ListedUpload, NewObject, ObjectError, UploadId};
use tokio::time::{Instant, sleep};

use crate::Intent;
use crate::shared::Shared;

/// An upload that has no part after this time is nobody's: whoever else has begun one for the same key has uploaded
/// a part by then, or is done.
const UNUSED: Duration = Duration::from_secs(60);

/// How much later than all attempts a lost one may have been done, at the store's clock.
const LEEWAY: Duration = Duration::from_secs(1);

impl Shared {
    /// CreateMultipartUpload.
    pub(crate) async fn create_upload(
        self: &Arc<Self>,
        key: &str,
        object: &NewObject,
    ) -> Result<UploadId, ObjectError> {
        let intent = |id| Intent::Upload { key: key.to_owned(), id };
        let _begins = self.beginning.read().await;
        let noted = self.config.journal.note(self.now(), intent(None));
        let (began, mut is_unknown) = (Instant::now(), false);
        let created = self.store.create_upload(key, object, &mut is_unknown).await;
        let upload = match created {
            Ok(upload) => upload,
            Err(error) => {
                if !is_unknown {
                    noted.done();
                }
                return Err(error);
            }
        };
        let known = intent(Some(upload.id.clone()));
        if !is_unknown {
            noted.change(known);
            self.begun(&upload, noted);
            return Ok(upload);
        }
        self.begun(&upload, self.config.journal.note(self.now(), known));
        let (shared, ours, took) = (self.clone(), upload.clone(), began.elapsed());
        self.runtime.spawn(async move {
            match shared.abort_orphans(&ours, took).await {
                Ok(()) => noted.done(),
                // The intent without an id stays.
                Err(error) => {
                    let key = ours.key;
                    tracing::warn!(key, %error, "an upload whose answer was lost may be left at the store");
                }
            }
        });
        Ok(upload)
    }

    /// Gives up what attempts that were lost may have begun beside `ours`, which took `took`.
    async fn abort_orphans(&self, ours: &UploadId, took: Duration) -> Result<(), ObjectError> {
        let begun = self.uploads_of(&ours.key).await?;
        let Some(known) = begun.iter().find(|listed| listed.upload == *ours) else { return Ok(()) };
        let first = known.initiated.checked_sub(took + LEEWAY).unwrap_or(known.initiated);
        let last = known.initiated.checked_add(LEEWAY).unwrap_or(known.initiated);
        sleep(UNUSED).await;
        let is_lost = |listed: &ListedUpload| {
            let at: SystemTime = listed.initiated;
            listed.upload != *ours && first <= at && at <= last
        };
        for listed in self.uploads_of(&ours.key).await?.into_iter().filter(is_lost) {
            if self.store.bucket.list_parts(&listed.upload).await?.is_empty() {
                self.store.abort(&listed.upload).await;
            }
        }
        Ok(())
    }

    /// The uploads to one key that are not complete.
    async fn uploads_of(&self, key: &str) -> Result<Vec<ListedUpload>, ObjectError> {
        let mut found = Vec::new();
        let mut after: Option<UploadId> = None;
        loop {
            let page = self.store.bucket.list_uploads(key, after.as_ref()).await?;
            // Longer keys begin with this one, and follow it.
            let is_past = page.uploads.last().is_none_or(|last| last.upload.key != key);
            found.extend(page.uploads.into_iter().filter(|listed| listed.upload.key == key));
            match page.next {
                Some(next) if !is_past && Some(&next) != after.as_ref() => after = Some(next),
                _ => return Ok(found),
            }
        }
    }
}
