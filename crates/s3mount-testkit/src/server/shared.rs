//! What all connections of a server share: the server's objects, its counters, and the settings of its
//! answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use s3mount_object::ChecksumAlgorithm;
use tokio::sync::Notify;

use crate::object::Object;
use crate::server::fault::Faults;
use crate::server::shape::{Limiter, Shape};
use crate::server::stats::Counters;

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
    pub(crate) frozen: AtomicBool,
    /// How often the server was thawed.
    pub(crate) thaws: AtomicU64,
    pub(crate) quit: Notify,
    pub(crate) next_request: AtomicU64,
    pub(crate) region: String,
    pub(crate) strict_region: bool,
    pub(crate) access_key: RwLock<Option<String>>,
    pub(crate) denied: Vec<String>,
    pub(crate) allowed: Option<String>,
    pub(crate) checksum: Option<ChecksumAlgorithm>,
    /// The length of the parts in which objects were uploaded, in bytes.
    pub(crate) upload_part: Option<u64>,
    /// Whether uploads with conditions are refused by 501.
    pub(crate) refuses_conditions: bool,
}

impl Shared {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Buckets> {
        self.buckets.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Buckets> {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length of the parts in which `object` was uploaded, if there were several.
    pub(crate) fn part_len(&self, object: &Object) -> Option<u64> {
        self.upload_part.filter(|len| *len < object.size)
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
