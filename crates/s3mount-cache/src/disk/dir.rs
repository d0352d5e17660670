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
use crate::disk::record::{Name, Record};
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

    /// A record of a version that is published now. It has no name.
    pub(crate) fn record(&self, size: u64, sums: Vec<u64>) -> Record {
        let (boot, published) = (self.clock.boot(), self.clock.now());
        Record { boot, published, size, name: None, map: None, sums }
    }

    /// The name of a version.
    pub(crate) fn name(&self, object: &ObjectId) -> Name {
        Name {
            source: self.source.clone(),
            key: object.key().to_owned(),
            etag: object.etag().as_str().to_owned(),
        }
    }
}
