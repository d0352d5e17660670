//! The writer: it makes drafts, and has what they share.

use std::sync::Arc;
use std::time::SystemTime;

use s3mount_memory::BufferPool;
use s3mount_object::{ObjectId, ObjectWriter};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::{Draft, Properties, WriteConfig};

/// Makes drafts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer(Arc<Shared>);

/// What all drafts share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Arc<dyn ObjectWriter>,
    pub(crate) config: WriteConfig,
    started: Instant,
}

impl Shared {
    /// The time of day.
    pub(crate) fn now(&self) -> SystemTime {
        self.config.started_at + self.started.elapsed()
    }
}

impl Writer {
    /// A writer to the bucket of `client`. Buffers come from `pool`. Parts are uploaded by tasks on `runtime`,
    /// which must have time enabled.
    pub fn new(
        client: Arc<dyn ObjectWriter>,
        pool: BufferPool,
        config: WriteConfig,
        runtime: &Handle,
    ) -> Self {
        let _ = (pool, runtime);
        Self(Arc::new(Shared { client, config, started: Instant::now() }))
    }

    /// A new, empty file for `key`.
    pub fn create(&self, key: &str, properties: Properties) -> Arc<Draft> {
        Draft::new(self.0.clone(), key, properties, None)
    }

    /// A draft whose bytes are, to begin with, those of a version of `size` bytes. Nothing is fetched before
    /// it is needed.
    pub fn edit(&self, version: &ObjectId, size: u64, properties: Properties) -> Arc<Draft> {
        Draft::new(self.0.clone(), version.key(), properties, Some((version.clone(), size)))
    }
}
