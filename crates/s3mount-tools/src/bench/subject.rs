//! The object that a bench reads, and the limits of a measurement.

use std::time::Duration;

use anyhow::{Context, ensure};
use s3mount_object::{ErrorKind, ObjectClient, ObjectId};
use s3mount_settings::resolved::store::Store;
use s3mount_system::threads::cores;
use tokio::runtime::Runtime;

use super::measured::Point;

/// The object that is read, and the limits of each measurement.
pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) object: ObjectId,
    pub(crate) size: u64,
    pub(crate) memory_limit_bytes: u64,
    /// The number of bytes that one measurement reads.
    pub(crate) bytes: u64,
    /// The longest time of one measurement.
    pub(crate) limit: Duration,
    pub(super) runtime: Runtime,
}

impl Bench {
    /// Finds the object `key` in the store.
    pub(crate) fn new(
        store: Store,
        key: &str,
        memory_limit_bytes: u64,
        bytes: u64,
        seconds: u64,
    ) -> anyhow::Result<Self> {
        let runtime = runtime(cores())?;
        // Credentials may be limited to a prefix, so this asks for nothing but the key.
        let (client, _) = runtime.block_on(store.connect(store.crt_config(1)?, key, 1))?;
        let meta = runtime.block_on(client.head_object(key)).map_err(|error| {
            let what = match error.kind() {
                ErrorKind::NotFound => {
                    format!("there is no key {key:?} in bucket {:?}; check its name", store.bucket)
                }
                _ => format!("the store does not tell of the key {key:?} in bucket {:?}", store.bucket),
            };
            anyhow::Error::new(error).context(what)
        })?;
        ensure!(meta.size > 0, "the object {key:?} is empty; name a larger one");
        Ok(Self {
            store,
            object: ObjectId::new(key, meta.etag),
            size: meta.size,
            memory_limit_bytes,
            bytes: bytes.min(meta.size),
            limit: Duration::from_secs(seconds),
            runtime,
        })
    }

    /// Whether all connections can have a part in flight within the memory limit.
    pub(crate) fn fits(&self, point: Point) -> bool {
        point.part_bytes * u64::from(point.connections) <= self.memory_limit_bytes
    }
}

pub(crate) fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start threads")
}
