//! The attributes of versions, from HEADs.
//!
//! A listing does not contain them, so each version costs one HEAD. The answer is valid for the version: its ETag and
//! the time at which it was written. The time counts because attributes are changed by a copy of an object onto itself,
//! which keeps the ETag. Two such copies within a second have the same time. So an answer from shortly after that time
//! is valid for some seconds only, and is then asked for once more.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream;
use s3mount_bucket::WritableBucket;
use s3mount_object::{ByteRange, ErrorKind, ObjectError};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::stored::StoredAttr;
use crate::FsError;
use crate::sync::{Mutex, lock};
use s3mount_names::File;
use s3mount_names::time::millis;

/// How many HEADs are in flight at once. S3 answers a HEAD in some 30 ms, so this is 2,000 a second.
const AT_ONCE: usize = 64;

/// How many versions a generation has. The inodes keep the attributes that the kernel knows, so only names that were
/// listed and not yet given to the kernel need this.
const GENERATION: usize = 8192;

/// An answer within this time after a version was written may become wrong unnoticed: S3's times have whole seconds,
/// and the clocks may differ by some.
const UNSETTLED: Duration = Duration::from_secs(10);

/// The attributes of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedAttr {
    pub(crate) attr: StoredAttr,
    /// Until when they are valid; unset if for ever.
    until: Option<Instant>,
}

impl CachedAttr {
    /// Whether they are still valid.
    pub(crate) fn holds(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

#[derive(Debug)]
struct Known {
    etag: Box<str>,
    /// Milliseconds since 1970.
    modified: i64,
    found: CachedAttr,
}

/// Versions by key: the recent generation, and the one before.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Known>,
    old: HashMap<Box<str>, Known>,
}

/// Asks for attributes, and caches them.
#[derive(Debug)]
pub(crate) struct KnownAttrs {
    bucket: WritableBucket,
    permits: Semaphore,
    generations: Mutex<Generations>,
    started_at: SystemTime,
    started: Instant,
}

impl KnownAttrs {
    /// Asks `bucket`, and waits at most `limit` for an answer.
    pub(crate) fn new(bucket: WritableBucket, limit: Duration, started_at: SystemTime) -> Self {
        Self {
            bucket: bucket.with_timeout(limit),
            permits: Semaphore::new(AT_ONCE),
            generations: Mutex::default(),
            started_at,
            started: Instant::now(),
        }
    }

    /// The time of day.
    pub(crate) fn now(&self) -> SystemTime {
        self.started_at + self.started.elapsed()
    }

    /// The known attributes of a version.
    pub(crate) fn get(&self, file: &File) -> Option<CachedAttr> {
        let generations = lock(&self.generations);
        let key = file.object.key();
        let known = generations.young.get(key).or_else(|| generations.old.get(key))?;
        let is_same = *known.etag == *file.object.etag().as_str() && known.modified == millis(file.mtime);
        is_same.then_some(known.found)
    }

    /// Notes the attributes of a version.
    pub(crate) fn note(&self, file: &File, attr: StoredAttr) -> CachedAttr {
        let is_settled = self.now().duration_since(file.mtime).is_ok_and(|age| age > UNSETTLED);
        let found = CachedAttr { attr, until: (!is_settled).then(|| Instant::now() + UNSETTLED) };
        self.keep(file, found);
        found
    }

    /// Keeps attributes of a version that were found before.
    pub(crate) fn keep(&self, file: &File, found: CachedAttr) {
        let known = Known { etag: file.object.etag().as_str().into(), modified: millis(file.mtime), found };
        let mut generations = lock(&self.generations);
        if generations.young.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(file.object.key().into(), known);
    }

    /// Asks for the attributes of a version.
    ///
    /// # Errors
    /// Those of the store. `Outdated` if another version is there.
    pub(crate) async fn ask(&self, file: &File) -> Result<(), FsError> {
        let key = file.object.key();
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let described = self.bucket.describe(key).await.map_err(not_found)?;
        if described.meta.etag != *file.object.etag() {
            return Err(FsError::Outdated);
        }
        self.note(file, StoredAttr::of(&described.object.metadata));
        Ok(())
    }

    /// Asks for the attributes of many versions, several at once. Those of failed requests stay unknown.
    pub(crate) async fn ask_all(&self, files: Vec<File>) {
        let asked = stream::iter(files).map(|file| async move {
            if let Err(error) = self.ask(&file).await {
                tracing::debug!(key = file.object.key(), %error, "the attributes are not known");
            }
        });
        asked.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Reads a short object.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn read(&self, file: &File) -> Result<Vec<u8>, FsError> {
        let len = usize::try_from(file.size).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(Vec::new());
        }
        let range = ByteRange::new(0, file.size);
        let got = self.bucket.get(&file.object, range, || std::future::ready(Ok(vec![0; len]))).await;
        Ok(got.map_err(not_found)?.to_vec())
    }
}

fn not_found(error: ObjectError) -> FsError {
    if *error.kind() == ErrorKind::NotFound { FsError::NotFound } else { error.into() }
}
