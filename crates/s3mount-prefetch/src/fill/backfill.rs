//! Backfill: fetches the bytes that the disk cache lacks of versions that are read more than once, while the mount is
//! otherwise idle.
//!
//! When the disk can't keep up, it drops bytes that readers bring. The next reading brings them again, but while a few
//! bytes of a version are missing, the kernel can't read it without the daemon. So when a version is closed that was
//! partly on the disk before it was opened, its missing ranges are fetched once.
//!
//! **Never at a reader's cost.** One GET is in flight at a time. It is sent when no other GET is in flight, no read
//! waits for memory, and no bytes wait to be written. It takes memory that no reader needs. When a reader needs it
//! after all, the GET is cancelled. After each write the disk rests nine times as long as the write took.
//!
//! **Never for nothing.** At least half of the version must be on the disk, so backfilling fetches no more than readers
//! have wanted. It asks the cache for room first. It fetches each byte at most once: a version has one turn among ten
//! thousand, and its readers fetch what the disk then does not keep.

use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_cache::DiskObject;
use s3mount_memory::Priority;
use s3mount_object::{ByteRange, ObjectId};
use tokio::time::{Instant, sleep};

use crate::fetch::{Alone, fetch};
use crate::fill::missing::{part_of, was_written};
use crate::shared::Shared;
use crate::sync::Ordering;
use crate::version::Version;

/// How often to check for a version with missing ranges.
const TICK: Duration = Duration::from_secs(1);

/// How often to check whether the mount is idle.
const POLL: Duration = Duration::from_millis(20);

/// After a write, the disk is left to readers for this many times the write's duration. The kernel reads passed-through
/// files by itself, so the daemon does not know how busy the disk is.
const REST: u32 = 9;

/// Fetches missing ranges until the mount ends.
pub(crate) async fn backfill(shared: Weak<Shared>) {
    while shared.strong_count() > 0 {
        sleep(TICK).await;
        let next = || shared.upgrade()?.backfill_queue.next();
        while let Some((object, size)) = next() {
            let was_fetched = fill(&shared, &object, size).await;
            if !was_fetched && let Some(shared) = shared.upgrade() {
                shared.backfill_queue.forget(&object);
            }
        }
    }
}

/// Fetches the missing ranges of one version, if the disk has at least half of it. Returns whether it fetched anything.
async fn fill(shared: &Weak<Shared>, object: &ObjectId, size: u64) -> bool {
    let mut at = 0;
    while let Some(shared) = when_quiet(shared).await {
        let version = Version::new(object.clone(), size, &shared.tiers);
        let Some(disk) = &version.disk else { break };
        disk.look().await;
        let is_chosen = at > 0 || held_bytes(disk, size) >= size / 2;
        let missing = disk.first_missing(ByteRange::new(at, size)).filter(|_| is_chosen);
        let Some(part) = missing.map(|missing| part_of(&shared.config, &version, missing)) else { break };
        if !disk.makes_room(part.len()).await {
            break;
        }
        match fetch_part(&shared, &version, part).await {
            Fetched::Done => at = part.end(),
            Fetched::GaveWay => continue,
            Fetched::Failed => break,
        }
        let began = Instant::now();
        was_written(disk, part).await;
        let rest = began.elapsed() * REST;
        drop((version, shared));
        sleep(rest).await;
    }
    at > 0
}

/// Waits until no other GET is in flight. `None` when the mount has ended.
async fn when_quiet(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    loop {
        let shared = shared.upgrade()?;
        let is_quiet = shared.request_permits.is_idle()
            && shared.ahead.running() == 0
            && shared.pool.wanted_bytes() == 0
            && shared.tiers.are_idle();
        if is_quiet {
            return Some(shared);
        }
        drop(shared);
        sleep(POLL).await;
    }
}

/// The bytes of the version that are on the disk.
fn held_bytes(disk: &DiskObject, size: u64) -> u64 {
    let (mut at, mut held) = (0, 0);
    while at < size {
        let run = disk.run(at);
        let end = run.end.clamp(at + 1, size);
        held += if run.is_here { end - at } else { 0 };
        at = end;
    }
    held
}

/// How the GET of a part ended.
enum Fetched {
    /// Its bytes are offered to the disk.
    Done,
    /// It was not sent, or it was cancelled, because readers need the memory.
    GaveWay,
    Failed,
}

async fn fetch_part(shared: &Shared, version: &Version, part: ByteRange) -> Fetched {
    let len = usize::try_from(part.len()).expect("a part fits the address space");
    let Some(buffer) = shared.pool.try_buffer(len, Priority::Prefetch) else {
        sleep(POLL).await;
        return Fetched::GaveWay;
    };
    let queue = &shared.backfill_queue;
    let needed = queue.needed.notified();
    queue.in_flight.store(part.len(), Ordering::Relaxed);
    let deadline = Instant::now() + shared.config.read_timeout;
    let wanted = Alone { deadline };
    let result = tokio::select! {
        result = fetch(shared, version, part, Some(buffer), &wanted) => result,
        () = needed => return Fetched::GaveWay,
    };
    queue.in_flight.store(0, Ordering::Relaxed);
    match result {
        Ok(_) => {
            shared.metrics.refilled_bytes.add(part.len());
            Fetched::Done
        }
        Err(_) => Fetched::Failed,
    }
}

#[cfg(test)]
#[path = "backfill_tests.rs"]
mod tests;
