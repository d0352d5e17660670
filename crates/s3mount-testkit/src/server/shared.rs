//! What all connections of a server share: the server's objects, its counters, and the settings of its
//! answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use s3mount_object::ChecksumAlgorithm;
use tokio::sync::Notify;

use crate::object::Object;
use crate::random::opaque_tag;
use crate::server::fault::Faults;
use crate::server::sessions::{Sessions, is_directory_bucket};
use crate::server::shape::{Copies, Limiter, Shape};
use crate::server::stats::Counters;
use crate::uploads::{Rules, Uploads};

pub(crate) type Keys = BTreeMap<String, Object>;
pub(crate) type Buckets = BTreeMap<String, Keys>;

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) buckets: RwLock<Buckets>,
    pub(crate) counters: Counters,
    pub(crate) faults: Faults,
    pub(crate) shape: Mutex<Shape>,
    pub(crate) limiter: Limiter,
    pub(crate) copies: Copies,
    pub(crate) frozen: AtomicBool,
    /// How often the server was thawed.
    pub(crate) thaws: AtomicU64,
    pub(crate) quit: Notify,
    pub(crate) next_request: AtomicU64,
    pub(crate) region: String,
    pub(crate) strict_region: bool,
    pub(crate) access_key: RwLock<Option<String>>,
    /// The account that each request has to name as the owner of the bucket.
    pub(crate) owner: Option<String>,
    /// Whether each request has to say that its sender pays.
    pub(crate) requester_pays: bool,
    pub(crate) denied: Vec<String>,
    pub(crate) allowed: Option<String>,
    pub(crate) checksum: Option<ChecksumAlgorithm>,
    /// The length of the parts in which objects were uploaded, in bytes.
    pub(crate) upload_part: Option<u64>,
    /// Whether uploads with conditions are refused by 501.
    pub(crate) refuses_conditions: bool,
    /// The uploads in parts that are not complete, by bucket. **Lock order:** before `buckets`.
    pub(crate) uploads: Mutex<BTreeMap<String, Uploads>>,
    pub(crate) rules: Rules,
    /// Whether ETags are random instead of MD5s.
    pub(crate) opaque_etags: bool,
    /// Whether the bytes of uploads are dropped when their checksums are known.
    pub(crate) drops_uploads: bool,
    /// The sessions of directory buckets.
    pub(crate) sessions: Sessions,
    /// The renames that were done, by their tokens: from which key to which. **Lock order:** before
    /// `buckets`.
    pub(crate) renames: Mutex<BTreeMap<String, (String, String)>>,
    /// How many random ETags there are.
    pub(crate) tags: AtomicU64,
}

impl Shared {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Buckets> {
        self.buckets.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Buckets> {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length of the parts in which `object` counts as uploaded, if there were several.
    pub(crate) fn part_len(&self, object: &Object) -> Option<u64> {
        self.upload_part.filter(|len| *len < object.size && object.kept.is_none())
    }

    pub(crate) fn uploads(&self) -> MutexGuard<'_, BTreeMap<String, Uploads>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn renames(&self) -> MutexGuard<'_, BTreeMap<String, (String, String)>> {
        self.renames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the `ETag`s of a bucket are random.
    pub(crate) fn has_opaque_etags(&self, bucket: &str) -> bool {
        self.opaque_etags || is_directory_bucket(bucket)
    }

    /// Whether access to this key is denied to everybody.
    pub(crate) fn denies(&self, key: &str) -> bool {
        self.denied.iter().any(|prefix| key.starts_with(prefix))
    }

    /// A tag that no other bytes have, nor the same bytes a second time. S3 gives such tags to objects that it
    /// encrypts with KMS keys.
    pub(crate) fn opaque_tag(&self) -> String {
        opaque_tag(self.tags.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn shape(&self) -> Shape {
        *self.shape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_shape(&self, shape: Shape) {
        *self.shape.lock().unwrap_or_else(PoisonError::into_inner) = shape;
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
        if !frozen {
            self.thaws.fetch_add(1, Ordering::Relaxed);
        }
    }
}
