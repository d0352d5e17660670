//! The ranges of a version that the disk cache lacks, in parts that are fetched for the disk alone.

use std::time::Duration;

use s3mount_cache::DiskObject;
use s3mount_object::ByteRange;
use tokio::time::{Instant, sleep};

use crate::PrefetchConfig;
use crate::version::Version;

/// How long to wait for the disk before checking again.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the disk may take to write a fetched part.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// The first part of bytes that the disk lacks. Parts end at multiples of their size, so that the disk's blocks
/// are whole.
pub(crate) fn part_of(config: &PrefetchConfig, version: &Version, missing: ByteRange) -> ByteRange {
    let edge = (missing.start() + 1).next_multiple_of(config.part_bytes);
    version.front(ByteRange::new(missing.start(), missing.end().min(edge)))
}

/// Waits until the disk has all of `range`. Returns false if the disk drops some of it, or takes too long.
pub(crate) async fn was_written(disk: &DiskObject, range: ByteRange) -> bool {
    let deadline = Instant::now() + WRITE_TIME;
    loop {
        if disk.first_missing(range).is_none() {
            return true;
        }
        if disk.is_idle() || !disk.is_writable() || Instant::now() >= deadline {
            return disk.first_missing(range).is_none();
        }
        sleep(PAUSE).await;
    }
}
