//! Cleans up what a daemon that is gone has left at the store.
//!
//! An upload is aborted. The rename of a folder is undone if it was still copying: then nothing was deleted, and its
//! copies go. It is finished if it was deleting: then all copies were there. In both cases an object is only
//! deleted while its twin is there, so nothing can be lost, whatever has happened since. What was written at the old
//! name after its twin at the new one stays: a program has made the folder anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures::{StreamExt as _, stream};
use s3mount_bucket::WritableBucket;
use s3mount_object::{ListedObject, ListedUpload, ObjectError, ObjectId, ObjectMeta, UploadId};

use crate::folder::{FolderMove, MoveError};
use crate::journal::{Intent, Phase, Record};
use crate::store::Store;

/// How many pairs of objects are compared at a time.
const AT_ONCE: usize = 64;

/// How far the clocks of a store and its clients may differ. S3 refuses requests beyond that.
const CLOCKS: Duration = Duration::from_secs(15 * 60);

/// What was left, and what became of it. Of a dry run: what would become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The upload was aborted.
    Aborted,
    /// The store had not begun the upload, or has it no more.
    Nothing,
    /// The answer that named the upload was lost. It is one of these, or none: another program may have begun them.
    Unsure(Vec<ListedUpload>),
    /// The folder has its old name.
    Undone(Sides),
    /// The folder has its new name.
    Finished(Sides),
}

/// The two sides of a rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// How many objects were deleted, because their twins are on the other side.
    pub deleted: usize,
    /// How many objects are on the wrong side: on the other one is nothing of this name, or another object.
    pub kept: usize,
}

/// Puts in order what was left in one bucket.
#[derive(Debug)]
pub struct Recovery {
    store: Arc<Store>,
    is_dry: bool,
}

impl Recovery {
    /// By requests to `bucket`, each of which may take `timeout`. A dry run changes nothing.
    pub fn new(bucket: impl Into<WritableBucket>, timeout: Duration, is_dry: bool) -> Self {
        Self { store: Arc::new(Store::new(bucket.into(), Arc::default(), true, timeout)), is_dry }
    }

    /// Puts one record in order.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recover(&self, record: &Record) -> Result<Recovered, MoveError> {
        match &record.intent {
            Intent::Upload { key, id: Some(id) } => {
                self.abort(&UploadId { key: key.clone(), id: id.clone() }).await?;
                Ok(Recovered::Aborted)
            }
            Intent::Upload { key, id: None } => {
                let since = UNIX_EPOCH + Duration::from_secs(record.since);
                let since = since.checked_sub(CLOCKS).unwrap_or(UNIX_EPOCH);
                let mut listed = self.uploads(key).await?;
                listed.retain(|listed| listed.upload.key == *key && listed.initiated >= since);
                Ok(if listed.is_empty() { Recovered::Nothing } else { Recovered::Unsure(listed) })
            }
            Intent::Rename { from, to, phase } => self.recover_rename(from, to, *phase).await,
        }
    }

    /// Aborts an upload.
    ///
    /// # Errors
    /// Those of the store. An upload that is not there is none.
    pub async fn abort(&self, upload: &UploadId) -> Result<(), ObjectError> {
        if self.is_dry {
            return Ok(());
        }
        self.store.bucket.abort(upload).await
    }

    /// All uploads to keys that begin with `prefix`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn uploads(&self, prefix: &str) -> Result<Vec<ListedUpload>, ObjectError> {
        let (mut all, mut after): (Vec<ListedUpload>, Option<UploadId>) = (Vec::new(), None);
        loop {
            let page = self.store.bucket.list_uploads(prefix, after.as_ref()).await?;
            all.extend(page.uploads);
            // A page that does not go on would be asked for again and again.
            match page.next.filter(|next| after.as_ref() != Some(next)) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn recover_rename(&self, from: &str, to: &str, phase: Phase) -> Result<Recovered, MoveError> {
        let folder = FolderMove::of(self.store.clone(), from, to);
        let sources = folder.list(from, usize::MAX).await?;
        let copies: HashMap<String, ObjectMeta> =
            folder.list(to, usize::MAX).await?.into_iter().map(|copy| (copy.key, copy.meta)).collect();
        let total = sources.len();
        let mut pairs = Vec::new();
        for source in sources {
            let key = folder.new_key(&source.key);
            // What was written after its twin is not what was copied: somebody has made it since.
            let is_older = |copy: &&ObjectMeta| source.meta.last_modified <= copy.last_modified;
            if let Some(copy) = copies.get(&key).filter(|copy| phase == Phase::Copying || is_older(copy)) {
                pairs.push((source, ListedObject { key, meta: copy.clone() }));
            }
        }
        let compared = stream::iter(pairs).map(|(source, copy)| {
            let folder = &folder;
            async move {
                let is_twin = folder.is_twin(&source, &copy).await;
                is_twin.map(|is_twin| is_twin.then_some((source, copy)))
            }
        });
        let compared: Vec<Result<_, ObjectError>> = compared.buffer_unordered(AT_ONCE).collect().await;
        let twins: Vec<(ListedObject, ListedObject)> =
            compared.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let deleted = twins.len();
        // Of the old folder, what has a twin in the new one stays only to be deleted.
        let kept = match phase {
            Phase::Copying => copies.len() - deleted,
            Phase::Deleting => total - deleted,
        };
        if !self.is_dry {
            let version = |object: ListedObject| ObjectId::new(&object.key, object.meta.etag);
            let doomed = twins.into_iter().map(|(source, copy)| match phase {
                Phase::Copying => version(copy),
                Phase::Deleting => version(source),
            });
            if let Some((_, error)) = folder.delete(doomed.collect()).await.into_iter().next() {
                return Err(error.into());
            }
        }
        let sides = Sides { deleted, kept };
        Ok(match phase {
            Phase::Copying => Recovered::Undone(sides),
            Phase::Deleting => Recovered::Finished(sides),
        })
    }
}
