//! One cache directory: its paths, its file system, its room, and the time.

use std::sync::Arc;

use s3mount_object::ObjectId;

use crate::disk::check::{self, DiskNote};
use crate::disk::clock::Clock;
use crate::disk::durable::Durable;
use crate::disk::error::DiskError;
use crate::disk::health::Health;
use crate::disk::io::Io;
use crate::disk::layout::Layout;
use crate::disk::metrics::DiskMetrics;
use crate::disk::record::Record;
use crate::disk::room::Room;

/// One cache directory.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) layout: Layout,
    pub(crate) io: Io,
    pub(crate) clock: Clock,
    pub(crate) room: Room,
    pub(crate) durable: Durable,
    pub(crate) health: Health,
    pub(crate) source: String,
    pub(crate) metrics: Arc<DiskMetrics>,
    /// What the user should know of it.
    pub(crate) note: Option<DiskNote>,
}

impl Dir {
    /// Makes the directory if need be, and checks what is there.
    pub(crate) fn open(
        layout: Layout,
        max_bytes: Option<u64>,
        source: &str,
        clock: Clock,
        metrics: Arc<DiskMetrics>,
    ) -> Result<Self, DiskError> {
        let io = Io::new();
        let note = check::prepare(&io, &layout)?;
        let room = Room::open(&layout, max_bytes, metrics.clone())
            .map_err(|error| DiskError::io("read how much is used of", layout.root(), error))?;
        let durable = Durable::open(&io, &layout, clock.clone())
            .map_err(|error| DiskError::io("read what is durable in", layout.root(), error))?;
        let health = Health::new(layout.root().to_owned(), clock.clone());
        Ok(Self { layout, io, clock, room, durable, health, source: source.to_owned(), metrics, note })
    }

    /// A record of `object` that is published now.
    pub(crate) fn record(&self, object: &ObjectId, size: u64, sums: Vec<u64>) -> Record {
        Record {
            boot: self.clock.boot(),
            published: self.clock.now(),
            size,
            source: self.source.clone(),
            key: object.key().to_owned(),
            etag: object.etag().as_str().to_owned(),
            map: None,
            sums,
        }
    }

    /// Whether `record` is one of `object`.
    pub(crate) fn is_record_of(&self, record: &Record, object: &ObjectId, size: u64) -> bool {
        record.size == size
            && record.source == self.source
            && record.key == object.key()
            && record.etag == object.etag().as_str()
    }
}
