//! Cleans up what a daemon that is gone has left at the store.
//!
//! An upload is aborted. The rename of a folder is undone or finished ([`folder`]).

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use s3mount_bucket::WritableBucket;
use s3mount_object::{ListedUpload, ObjectError, UploadId};

use crate::folder::{self, MoveError, Sides};
use crate::journal::{Intent, Phase, Record};
use crate::store::Store;

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
            Intent::Rename { from, to, phase, .. } => {
                let sides = folder::recover(&self.store, from, to, *phase, self.is_dry).await?;
                Ok(match phase {
                    Phase::Copying => Recovered::Undone(sides),
                    Phase::Deleting => Recovered::Finished(sides),
                })
            }
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
}
