//! The attributes of versions that were asked for.
//!
//! A listing does not bring them, so each version costs a HEAD once. What was found holds for the version: its
//! ETag and the time at which it was written. The time counts because a copy of an object onto itself, by which
//! attributes are changed, keeps the ETag. Two such copies within a second have the same time. So what is found
//! shortly after that time holds for some seconds only, and is then asked for once more.

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

/// How many versions a generation has. The inodes keep what the kernel knows, so only names that were listed and
/// not yet given to the kernel are in need of this.
const GENERATION: usize = 8192;

/// What is found within this time after a version was written may change without a trace: S3's times have whole
/// seconds, and the clocks may differ by some.
const UNSETTLED: Duration = Duration::from_secs(10);

/// What was found of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedAttr {
    pub(crate) attr: StoredAttr,
    /// Until when it holds; unset if it does for ever.
    until: Option<Instant>,
}

impl CachedAttr {
    /// Whether it need not be asked for again.
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

/// Versions by key: those of late, and those before.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Known>,
    old: HashMap<Box<str>, Known>,
}

/// Asks for attributes, and keeps what it has found.
#[derive(Debug)]
pub(crate) struct KnownAttrs {
    bucket: WritableBucket,
    permits: Semaphore,
    generations: Mutex<Generations>,
    mounted_at: SystemTime,
    started: Instant,
}

impl KnownAttrs {
    /// Asks `bucket`, and `limit` is the longest time for an answer.
    pub(crate) fn new(bucket: WritableBucket, limit: Duration, mounted_at: SystemTime) -> Self {
        Self {
            bucket: bucket.with_timeout(limit),
            permits: Semaphore::new(AT_ONCE),
            generations: Mutex::default(),
            mounted_at,
            started: Instant::now(),
        }
    }

    /// The time of day.
    pub(crate) fn now(&self) -> SystemTime {
        self.mounted_at + self.started.elapsed()
    }

    /// What is known of a version.
    pub(crate) fn get(&self, file: &File) -> Option<CachedAttr> {
        let generations = lock(&self.generations);
        let key = file.object.key();
        let known = generations.young.get(key).or_else(|| generations.old.get(key))?;
        let is_same = *known.etag == *file.object.etag().as_str() && known.modified == millis(file.mtime);
        is_same.then_some(known.found)
    }

    /// Notes what a version has.
    pub(crate) fn note(&self, file: &File, attr: StoredAttr) -> CachedAttr {
        let is_settled = self.now().duration_since(file.mtime).is_ok_and(|age| age > UNSETTLED);
        let found = CachedAttr { attr, until: (!is_settled).then(|| Instant::now() + UNSETTLED) };
        self.keep(file, found);
        found
    }

    /// Keeps what was found of a version before.
    pub(crate) fn keep(&self, file: &File, found: CachedAttr) {
        let known = Known { etag: file.object.etag().as_str().into(), modified: millis(file.mtime), found };
        let mut generations = lock(&self.generations);
        if generations.young.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(file.object.key().into(), known);
    }

    /// Asks for what a version has.
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

    /// Asks for what many versions have, several at once. What can't be found out stays unknown.
    pub(crate) async fn ask_all(&self, files: Vec<File>) {
        let asked = stream::iter(files).map(|file| async move {
            if let Err(error) = self.ask(&file).await {
                tracing::debug!(key = file.object.key(), %error, "the attributes are not known");
            }
        });
        asked.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// The bytes of a short object.
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
