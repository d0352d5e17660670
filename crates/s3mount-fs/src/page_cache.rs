//! The files' use of the kernel's page cache.
//!
//! - [`direct`]: the policy that decides which large files are opened around the page cache, and
//!   [`direct_io`], which follows it;
//! - [`map_reads`]: the policy that recognises random reads of maps by the pattern of the kernel's READs;
//! - [`map_table`]: the files that are read at random through maps, and their kinds;
//! - [`fills`]: sorts the READs that fill the page cache, and refuses some.

pub(crate) mod direct;
pub(crate) mod direct_io;
pub(crate) mod fills;
pub(crate) mod kind;
pub(crate) mod map_reads;
pub(crate) mod map_table;

use std::sync::Arc;

use s3mount_names::File;
use s3mount_object::ByteRange;
use s3mount_prefetch::ObjectReader;

use self::direct::Counts;
use self::direct_io::{DirectIo, OpenLarge};
use self::fills::{Fills, OpenFills};
use self::map_reads::Answer;
use self::map_table::MapTable;
use crate::numbers::InodeNo;
use crate::tree::inode::InodeTable;

/// The use of the kernel's page cache by the files of a mount.
#[derive(Debug)]
pub(crate) struct PageCache {
    direct_io: DirectIo,
    fills: Fills,
}

/// The use of the page cache by an open file.
#[derive(Debug)]
pub(crate) struct OpenPages {
    /// Set for a large file if `--direct-io auto` is on.
    large: Option<OpenLarge>,
    fills: OpenFills,
}

impl OpenPages {
    /// Whether `--direct-io auto` bypasses the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.large.as_ref().is_some_and(OpenLarge::is_direct)
    }

    /// Whether the file is read at random through maps.
    pub(crate) fn is_random(&self) -> bool {
        self.fills.is_random()
    }
}

impl PageCache {
    pub(crate) fn new(direct_io: DirectIo, inodes: Arc<InodeTable>) -> Self {
        Self { direct_io, fills: Fills::new(inodes) }
    }

    /// Notes that the process `pid` opens a file. If the mode is `decided`, `--direct-io auto` has no say.
    pub(crate) fn on_open(&self, ino: InodeNo, file: &File, pid: u32, decided: bool) -> OpenPages {
        let large = if decided { None } else { self.direct_io.on_open(ino, file, pid) };
        OpenPages { large, fills: self.fills.on_open(ino, file.size) }
    }

    /// Notes a READ of `len` bytes.
    pub(crate) fn on_read(&self, open: &OpenPages, reader: &ObjectReader, len: usize) {
        if let Some(large) = &open.large {
            self.direct_io.on_read(large, reader, len);
        }
    }

    /// Decides whether to serve a READ by which the kernel fills its page cache.
    pub(crate) fn on_fill(&self, open: &OpenPages, reader: &ObjectReader, offset: u64, len: usize) -> Answer {
        if let Some(large) = &open.large {
            self.direct_io.on_fill(large, reader, offset, len, self.maps().readahead_bytes());
        }
        let range = ByteRange::new(offset, offset.saturating_add(len as u64));
        self.fills.sort(&open.fills, reader, range)
    }

    /// Notes that a file is closed.
    pub(crate) fn on_close(&self, open: &OpenPages, size: u64) {
        if let Some(large) = &open.large {
            self.direct_io.on_close(large, size);
        }
    }

    /// Opens all files through the page cache from now on, except those that the settings name.
    pub(crate) fn keep(&self) {
        self.direct_io.keep_page_cache();
    }

    /// Waits until refused pages slow a reader down. Only one caller may wait at a time.
    pub(crate) async fn refused_pages(&self) -> (InodeNo, ByteRange) {
        self.fills.refused_pages().await
    }

    /// The files that are read at random through maps.
    pub(crate) fn maps(&self) -> &MapTable {
        self.fills.maps()
    }

    /// The decisions of `--direct-io auto`.
    pub(crate) fn counts(&self) -> Counts {
        self.direct_io.counts()
    }
}
