//! Fetches whole versions into the disk cache before they are read.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use s3mount_cache::DiskObject;
use s3mount_memory::{Buffer, Priority};
use s3mount_object::{ByteRange, ObjectId};
use tokio::time::{Instant, sleep};

use crate::fetch::{Alone, Failure, fetch};
use crate::fill::missing::{part_of, was_written};
use crate::shared::Shared;
use crate::version::Version;
use crate::{Prefetcher, ReadError};

/// The parts of a version that are fetched at once. With the 90 MB/s that S3 gives a connection, eight bring 700 MB/s,
/// and several versions are fetched at once.
const PARTS_AT_ONCE: usize = 8;

/// How long to wait for memory, or for the disk, before checking again.
const PAUSE: Duration = Duration::from_millis(5);

/// How long to wait for a retry that readers can spare, before checking again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How many times to fetch again what the disk dropped.
const ROUNDS: u32 = 3;

/// Why the disk cache does not hold the whole version.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WarmError {
    /// The mount has no disk cache.
    #[error("the mount has no disk cache")]
    NoCache,
    /// The mount's filters leave this object out of the disk cache.
    #[error("--cache-include and --cache-exclude leave the file out of the disk cache")]
    LeftOut,
    /// The cache is full of data in use, or the disk does not work.
    #[error("the disk cache has no room for it, or its disk does not work")]
    NoRoom,
    /// Fetching it failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Prefetcher {
    /// Fetches the bytes that the disk cache lacks of `range` of the version `object`, which is `size` bytes long.
    /// Takes only memory that no reader needs. Resolves when all bytes are written.
    ///
    /// # Errors
    /// When the cache can't hold it, or when it can't be fetched.
    pub async fn warm_cache(&self, object: &ObjectId, size: u64, range: ByteRange) -> Result<(), WarmError> {
        let shared = self.shared();
        let version = Version::new(object.clone(), size, &shared.tiers);
        let has_disk = shared.tiers.disk.is_some();
        let disk =
            version.disk.clone().ok_or(if has_disk { WarmError::LeftOut } else { WarmError::NoCache })?;
        for _ in 0..ROUNDS {
            disk.look().await;
            if disk.first_missing(range).is_some() && !disk.is_writable() {
                // The disk would drop the bytes of a GET.
                return Err(WarmError::NoRoom);
            }
            fetch_missing(shared, &version, &disk, range).await?;
            if was_written(&disk, range).await {
                return Ok(());
            }
        }
        Err(WarmError::NoRoom)
    }
}

/// Fetches the bytes that the disk lacks of `range`, a few parts at a time, and offers each part to the disk.
async fn fetch_missing(
    shared: &Shared,
    version: &Version,
    disk: &DiskObject,
    range: ByteRange,
) -> Result<(), ReadError> {
    let next = |at: u64| {
        let missing = disk.first_missing(ByteRange::new(at, range.end()))?;
        Some(part_of(&shared.config, version, missing))
    };
    let parts = std::iter::successors(next(range.start()), |part| next(part.end()));
    let mut fetched = stream::iter(parts)
        .map(|part| fetch_part(shared, version, disk, part))
        .buffer_unordered(PARTS_AT_ONCE);
    while let Some(result) = fetched.next().await {
        result?;
    }
    Ok(())
}

/// Fetches a part, and offers it to the disk. The time that this may take begins once there is memory for it.
async fn fetch_part(
    shared: &Shared,
    version: &Version,
    disk: &DiskObject,
    part: ByteRange,
) -> Result<(), ReadError> {
    let _share = shared.warm_share(part.len()).await;
    let mut deadline = None;
    loop {
        let Some(buffer) = spare_buffer(shared, disk, part.len()).await else { return Ok(()) };
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + shared.config.read_timeout);
        let wanted = Alone { deadline };
        match fetch(shared, version, part, Some(buffer), &wanted).await {
            Ok(_) => break,
            // Readers needed the memory, or all retries.
            Err(Failure::GivenUp) if may_ask_again(shared, deadline).await => {}
            Err(failure) => return Err(failure.into_error(shared.config.read_timeout)),
        }
    }
    was_written(disk, part).await;
    Ok(())
}

/// A buffer that no reader needs, once there is one, and the disk has room for its bytes. `None` if the disk hangs with the
/// bytes that wait for it. That must not hold up fetches into another disk.
async fn spare_buffer(shared: &Shared, disk: &DiskObject, len: u64) -> Option<Buffer> {
    let bytes = usize::try_from(len).expect("a part fits the address space");
    loop {
        match shared.pool.try_buffer(bytes, Priority::Prefetch) {
            Some(buffer) if disk.has_room_to_write(len) => return Some(buffer),
            _ if !disk.is_writable() => return None,
            _ => sleep(PAUSE).await,
        }
    }
}

/// Waits for a retry that readers can spare. Returns whether there was one before `deadline`.
async fn may_ask_again(shared: &Shared, deadline: Instant) -> bool {
    while Instant::now() + RETRY_PAUSE < deadline {
        sleep(RETRY_PAUSE).await;
        if shared.bucket.budget().take_spare(Instant::now().into_std()) {
            return true;
        }
    }
    false
}
