//! The requests of a folder's rename. A copy is made only where no object is, and only the versions are deleted that were
//! copied.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt as _, stream};
use s3mount_bucket::Failure;
use s3mount_object::{
    Condition, CopySource, Description, ETag, ErrorKind, ListObjects, ListedObject, ObjectError, ObjectId,
    ObjectMeta, Written,
};

use super::moved::{MoveError, Moved};
use crate::copier::{Copier, CopyError};
use crate::copies::MOST_COPIED;
use crate::store::Store;

/// How many copies or deletions are under way at a time. S3 takes some 0.1 s for a copy and 3,500 writes a second
/// below one prefix: 10,000 objects take half a minute.
const AT_ONCE: usize = 64;

/// Why the objects of a folder could not be copied.
#[derive(Debug)]
pub(super) struct CopyFailed {
    /// The first error.
    pub(super) error: MoveError,
    /// Whether some copies may be left.
    pub(super) has_left: bool,
}

/// What became of one copy.
enum Copied {
    Done(Moved),
    /// Another copy had failed before this one began.
    Skipped,
    /// It failed, and may have been made all the same.
    Unknown(MoveError),
    Failed(MoveError),
}

/// The objects below one prefix on their way to another. Both prefixes end in `/`.
#[derive(Debug)]
pub(super) struct FolderObjects {
    store: Arc<Store>,
    from: String,
    to: String,
    /// Whether a daemon before has begun to copy them. The store may have its copies, and may be about to make some.
    goes_on: bool,
}

impl FolderObjects {
    pub(super) fn new(store: Arc<Store>, from: &str, to: &str) -> Self {
        Self { store, from: from.to_owned(), to: to.to_owned(), goes_on: false }
    }

    /// Takes copies that are there already for its own.
    pub(super) fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// All objects below `prefix`: at most `most`.
    pub(super) async fn list(&self, prefix: &str, most: usize) -> Result<Vec<ListedObject>, MoveError> {
        let mut all = Vec::new();
        let mut request = ListObjects { prefix: prefix.to_owned(), ..ListObjects::default() };
        loop {
            let page = self.store.bucket.list(&request).await?;
            all.extend(page.objects);
            if all.len() > most {
                return Err(MoveError::TooMany(most));
            }
            match page.next {
                Some(next) => request.continuation = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// The key that an object has of which a copy has this one.
    pub(super) fn old_key(&self, key: &str) -> String {
        format!("{}{}", self.from, key.strip_prefix(&self.to).unwrap_or_default())
    }

    /// The key that the copy of an object has.
    pub(super) fn new_key(&self, key: &str) -> String {
        format!("{}{}", self.to, key.strip_prefix(&self.from).unwrap_or_default())
    }

    /// The objects to move: at most `most`. The folder's own marker object is among them.
    ///
    /// # Errors
    /// `TooMany`, `KeyTooLong`, or an error of the store.
    pub(super) async fn sources(&self, most: usize) -> Result<Vec<ListedObject>, MoveError> {
        let sources = self.list(&self.from, most).await?;
        let too_long = sources.iter().map(|object| self.new_key(&object.key)).find(|key| key.len() > 1024);
        match too_long {
            Some(key) => Err(MoveError::KeyTooLong(key)),
            None => Ok(sources),
        }
    }

    /// Copies all `sources`, large ones by `copier`. Either all copies are there when this returns, or those that
    /// were made are deleted again, as far as the store lets it.
    ///
    /// # Errors
    /// `Taken`, `Lost`, `Parts`, or an error of the store.
    pub(super) async fn copy(
        &self,
        sources: &[ListedObject],
        copier: &Copier,
    ) -> Result<Vec<Moved>, CopyFailed> {
        let has_failed = AtomicBool::new(false);
        let copies = stream::iter(sources.to_vec()).map(|source| self.copy_one(source, copier, &has_failed));
        let mut copies = std::pin::pin!(copies.buffer_unordered(AT_ONCE));
        let (mut moved, mut unknown, mut first_error) = (Vec::with_capacity(sources.len()), false, None);
        while let Some(copied) = copies.next().await {
            match copied {
                Copied::Done(done) => moved.push(done),
                Copied::Skipped => {}
                Copied::Unknown(error) => {
                    unknown = true;
                    first_error.get_or_insert(error);
                }
                Copied::Failed(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let error = match first_error {
            Some(error) => error,
            None => match self.verify(&moved).await {
                Ok(()) => return Ok(moved),
                Err(error) => error,
            },
        };
        let left = self.delete(moved.into_iter().map(|moved| moved.to).collect()).await.len();
        if left > 0 || unknown {
            let (from, to) = (&self.from, &self.to);
            tracing::error!(from, to, left, "a folder was not renamed, and copies of its objects are left");
        }
        Err(CopyFailed { error, has_left: left > 0 || unknown })
    }

    async fn copy_one(&self, source: ListedObject, copier: &Copier, has_failed: &AtomicBool) -> Copied {
        if has_failed.load(Ordering::Relaxed) {
            return Copied::Skipped;
        }
        let key = self.new_key(&source.key);
        // A late change must not find in a whole copy what it waits for.
        let must_be_parts = self.store.bucket.must_be_parts(&key, source.meta.size);
        let etag = if source.meta.size > MOST_COPIED || must_be_parts {
            self.copy_parts(&source, &key, copier).await
        } else {
            self.copy_whole(&source, &key).await
        };
        let etag = match etag {
            Ok(etag) => etag,
            Err(failed) => {
                has_failed.store(true, Ordering::Relaxed);
                return failed;
            }
        };
        let ObjectMeta { size, last_modified, .. } = source.meta;
        let from = ObjectId::new(&source.key, source.meta.etag);
        let to = ObjectId::new(&key, etag);
        Copied::Done(Moved { from, to, size, modified: last_modified, was_gone: false })
    }

    /// Copies an object in parts, many at once: one request would take long, and takes up to 5 GiB.
    async fn copy_parts(&self, source: &ListedObject, key: &str, copier: &Copier) -> Result<ETag, Copied> {
        let failed = |error: ObjectError| Copied::Failed(error.into());
        let at = if self.goes_on { self.find_copy(source, key).await.map_err(failed)? } else { At::Nothing };
        let condition = match at {
            At::Nothing => Condition::Absent,
            At::Copy(etag) => return Ok(etag),
            At::Unsure(etag) => Condition::Matches(etag),
            At::Other => return Err(Copied::Failed(MoveError::Taken(key.to_owned()))),
        };
        let version = ObjectId::new(&source.key, source.meta.etag.clone());
        let from = copier.describe_version(&version).await.map_err(|error| Copied::Failed(error.into()))?;
        let copied = match copier.copy_to(&from, key, Some(&condition)).await {
            // Nobody has seen an object there.
            Err(CopyError::Object(error)) if *error.kind() == ErrorKind::Unsupported => {
                copier.copy_to(&from, key, None).await
            }
            copied => copied,
        };
        match copied {
            Ok(copied) => Ok(copied.etag().clone()),
            Err(CopyError::Taken { key }) => Err(Copied::Failed(MoveError::Taken(key))),
            // The last answer may be lost.
            Err(error @ CopyError::Object(_)) => Err(Copied::Unknown(error.into())),
            Err(error) => Err(Copied::Failed(error.into())),
        }
    }

    /// Copies by one request.
    async fn copy_whole(&self, source: &ListedObject, key: &str) -> Result<ETag, Copied> {
        let copied = match self.copy_if(source, key, Some(&Condition::Absent)).await {
            // Nobody has seen an object there.
            Err(Failure { error, .. }) if *error.kind() == ErrorKind::Unsupported => {
                self.copy_if(source, key, None).await
            }
            copied => copied,
        };
        match copied {
            Ok(written) => Ok(written.etag),
            Err(failure) => self.resolve(source, key, failure).await,
        }
    }

    async fn copy_if(
        &self,
        source: &ListedObject,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let object = ObjectId::new(&source.key, source.meta.etag.clone());
        let from = CopySource { bucket: None, object };
        self.store.bucket.copy_as_it_is(&from, source.meta.size, key, condition).await
    }

    /// What came of a copy that failed: the answer may be lost, and the copy there.
    async fn resolve(&self, source: &ListedObject, key: &str, failure: Failure) -> Result<ETag, Copied> {
        let Failure { error, may_be_done } = failure;
        let is_refused = matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::Conflict);
        if !may_be_done && !is_refused {
            return Err(Copied::Failed(error.into()));
        }
        match self.find_copy(source, key).await {
            Ok(At::Copy(etag)) if may_be_done || self.goes_on => Ok(etag),
            Ok(At::Unsure(etag)) if self.goes_on => self.replace(source, key, etag).await,
            Ok(At::Copy(_) | At::Unsure(_) | At::Other) => {
                Err(Copied::Failed(MoveError::Taken(key.to_owned())))
            }
            // The object has changed, or nothing was done.
            Ok(At::Nothing) if !may_be_done => Err(Copied::Failed(error.into())),
            Ok(At::Nothing) | Err(_) => Err(Copied::Unknown(error.into())),
        }
    }

    /// Copies onto the version that is at `key`.
    async fn replace(&self, source: &ListedObject, key: &str, version: ETag) -> Result<ETag, Copied> {
        let copied = self.copy_if(source, key, Some(&Condition::Matches(version))).await;
        copied.map(|written| written.etag).map_err(|Failure { error, may_be_done }| match may_be_done {
            true => Copied::Unknown(error.into()),
            false => Copied::Failed(error.into()),
        })
    }

    /// Whether an object is at `key`.
    pub(super) async fn has(&self, key: &str) -> Result<bool, ObjectError> {
        match self.describe(key).await {
            Ok(_) => Ok(true),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn describe(&self, key: &str) -> Result<Description, ObjectError> {
        self.store.bucket.describe(key).await
    }

    /// What is at `key`, where a copy of `source` may be.
    async fn find_copy(&self, source: &ListedObject, key: &str) -> Result<At, ObjectError> {
        let meta = match self.describe(key).await {
            Ok(found) => found.meta,
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(At::Nothing),
            Err(error) => return Err(error),
        };
        let copy = ListedObject { key: key.to_owned(), meta };
        let is_twin = self.compare(source, &copy).await?;
        let ListedObject { meta: ObjectMeta { etag, .. }, .. } = copy;
        Ok(match is_twin {
            Some(true) => At::Copy(etag),
            Some(false) => At::Other,
            None => At::Unsure(etag),
        })
    }

    /// Whether two objects have the same bytes, as far as the store can tell without reading them. They have if
    /// their ETags are the same, or the checksums of all their bytes.
    pub(super) async fn is_twin(
        &self,
        source: &ListedObject,
        copy: &ListedObject,
    ) -> Result<bool, ObjectError> {
        Ok(self.compare(source, copy).await? == Some(true))
    }

    /// Whether two objects have the same bytes, or `None` if the store can't tell without reading them.
    async fn compare(&self, source: &ListedObject, copy: &ListedObject) -> Result<Option<bool>, ObjectError> {
        if source.meta.size != copy.meta.size {
            return Ok(Some(false));
        }
        if source.meta.etag == copy.meta.etag {
            return Ok(Some(true));
        }
        let both = futures::try_join!(self.describe(&source.key), self.describe(&copy.key));
        let (one, other) = match both {
            Ok(both) => both,
            // It was deleted just now.
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Some(false)),
            Err(error) => return Err(error),
        };
        if one.meta.etag != source.meta.etag || other.meta.etag != copy.meta.etag {
            return Ok(Some(false));
        }
        let sums = one.checksum.zip(other.checksum);
        let sums = sums.filter(|(one, other)| one.algorithm == other.algorithm);
        Ok(sums.map(|(one, other)| one == other))
    }

    /// Looks for each copy in a listing.
    async fn verify(&self, moved: &[Moved]) -> Result<(), MoveError> {
        let listed = self.list(&self.to, usize::MAX).await?;
        let there: HashMap<&str, &ObjectMeta> =
            listed.iter().map(|object| (object.key.as_str(), &object.meta)).collect();
        let is_there = |copy: &Moved| {
            let found = there.get(copy.to.key());
            found.is_some_and(|found| found.etag == *copy.to.etag() && found.size == copy.size)
        };
        match moved.iter().find(|copy| !is_there(copy)).map(|copy| copy.to.key()) {
            // Somebody else has written there since.
            Some(key) if there.contains_key(key) => Err(MoveError::Taken(key.to_owned())),
            Some(key) => Err(MoveError::Lost(key.to_owned())),
            None => Ok(()),
        }
    }

    /// Deletes these versions. One that was deleted or replaced by somebody else is no failure. Returns those that
    /// are left, and why.
    pub(super) async fn delete(&self, versions: Vec<ObjectId>) -> Vec<(ObjectId, ObjectError)> {
        let deletions = stream::iter(versions).map(|version| async move {
            let deleted = self.store.bucket.delete(&version).await;
            deleted.err().map(|error| (version, error))
        });
        deletions.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
    }
}

/// What is at a key where a copy may be.
enum At {
    Nothing,
    /// The copy.
    Copy(ETag),
    /// An object of the same size. Whether it has the same bytes, the store can't tell.
    Unsure(ETag),
    /// Another object.
    Other,
}
