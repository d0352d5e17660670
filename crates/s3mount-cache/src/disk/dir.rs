//! One cache directory: its paths, its file system, its room, and the time.

use std::sync::Arc;

use s3mount_object::ObjectId;

use crate::disk::check::{self, DiskNote};
use crate::disk::clock::Clock;
use crate::disk::config::DiskConfig;
use crate::disk::error::DiskError;
use crate::disk::evict::room::Room;
use crate::disk::io::Io;
use crate::disk::io::durable::Durable;
use crate::disk::io::health::Health;
use crate::disk::layout::Layout;
use crate::disk::metrics::DiskMetrics;
use crate::disk::object::record::{Name, Record};
use crate::disk::place::{Place, Prepared};

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
    /// Whether the kernel gets only files that were compared with the store's checksum.
    only_compared: bool,
    pub(crate) metrics: Arc<DiskMetrics>,
    /// A note about the directory for the user.
    pub(crate) note: Option<DiskNote>,
    /// Its place among the directories of this mount.
    place: Place,
}

impl Dir {
    /// Opens a directory that was [prepared](check::prepare).
    pub(crate) fn open(
        prepared: Prepared,
        max_bytes: Option<u64>,
        config: &DiskConfig,
        clock: Clock,
        metrics: Arc<DiskMetrics>,
    ) -> Result<Self, DiskError> {
        let Prepared { layout, note, place } = prepared;
        let io = Io::with_clock(&clock);
        let room = Room::open(&layout, max_bytes, clock.clone(), metrics.clone())
            .map_err(|error| DiskError::io("read the usage of", layout.root(), error))?;
        // Another process may have cleared the directory since. From here on it sees that the directory is in use.
        check::prepare_again(&io, &layout)?;
        let durable = Durable::open(&io, &layout, clock.clone())
            .map_err(|error| DiskError::io("read the file `durable` of", layout.root(), error))?;
        let health = Health::new(layout.root().to_owned(), clock.clone());
        Ok(Self {
            layout,
            io,
            clock,
            room,
            durable,
            health,
            source: config.source.clone(),
            only_compared: config.only_compared,
            metrics,
            note,
            place,
        })
    }

    /// Whether the kernel may have files that were not compared with the store's checksum.
    pub(crate) fn passes_uncompared(&self) -> bool {
        !self.only_compared
    }

    /// Whether the directory is still the one that was checked.
    pub(crate) fn is_in_place(&self) -> bool {
        self.room.is_checked() && self.layout.marker().exists() && self.layout.objects().exists()
    }

    /// Recreates the directory if it was deleted, or checks the one that has taken its place.
    pub(crate) fn put_in_place(&self) -> Result<(), DiskError> {
        if self.room.is_checked() {
            check::prepare_again(&self.io, &self.layout)?;
        } else {
            check::prepare_in_place(&self.io, &self.layout)?;
        }
        self.place.keep(&self.io, &self.layout);
        let opened = self.room.open_again().and_then(|()| self.durable.open_again(&self.io, &self.layout));
        opened.map_err(|error| DiskError::io("open the files of", self.layout.root(), error))?;
        Ok(())
    }

    /// A record of a version that is published now. The record has no name, and the version was not compared with the
    /// store's checksum.
    pub(crate) fn record(&self, size: u64, sums: Vec<u64>) -> Record {
        let (boot, published) = (self.clock.boot(), self.clock.now());
        Record { boot, published, size, is_compared: false, name: None, map: None, sums }
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
