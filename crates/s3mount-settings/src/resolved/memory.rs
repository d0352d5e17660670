//! The memory that there is, and the limits and the part size that follow from it.

use anyhow::ensure;
use s3mount_crt::usual_event_loops;
use s3mount_fs::INODE_BYTES;
use s3mount_memory::{group_bytes, machine_bytes};
use s3mount_system::threads::{EventLoops, cores};

use crate::flags::size::Size;

const MIB: u64 = 1 << 20;

/// The smallest memory limit that lets s3mount read fast: a few parts for each of a few streams.
const MIN_LIMIT_BYTES: u64 = 64 * MIB;

/// The memory that the process takes in addition to object data and names. The program, its threads and its
/// connections stay below 64 MiB. The kernel also counts sockets and page tables to the cgroup.
const OVERHEAD_BYTES: u64 = 96 * MIB;

/// The default part size, unless memory is short.
const PART_BYTES: u64 = 8 * MIB;

/// The largest GET that one buffer holds.
const MAX_PART_BYTES: u64 = 64 * MIB;

/// With fewer parts than this in memory, connections are idle. Smaller parts are faster then.
const MIN_PARTS: u64 = 16;

/// The limit on object data: the flag's value, or an eighth of the memory that the machine and the cgroup
/// allow.
pub fn limit(flag: Option<Size>) -> anyhow::Result<u64> {
    if let Some(Size(bytes)) = flag {
        ensure!(
            bytes >= MIN_LIMIT_BYTES,
            "--memory-limit {} is too small: s3mount needs at least {}; try --memory-limit 256MiB",
            Size(bytes),
            Size(MIN_LIMIT_BYTES)
        );
        return Ok(bytes);
    }
    Ok(share(bound()))
}

/// The least that a limit of `limit_bytes` may become: the flag's value, or the limit itself.
pub(crate) fn floor(flag: Option<Size>, limit_bytes: u64) -> anyhow::Result<u64> {
    let Some(floor) = flag else { return Ok(limit_bytes) };
    ensure!(
        floor.0 >= MIN_LIMIT_BYTES,
        "--memory-floor {floor} is too small: s3mount needs at least {}",
        Size(MIN_LIMIT_BYTES)
    );
    ensure!(
        floor.0 <= limit_bytes,
        "--memory-floor {floor} is more than --memory-limit {}; give a smaller floor, or a larger limit",
        Size(limit_bytes)
    );
    Ok(floor.0)
}

/// What so many threads for the kernel's requests take beside what any mount takes, in bytes: with as many for tasks, and
/// with what these have in hand. 64 streams at S3's latency by TLS, with a limit of 256 MiB, take
/// 51 MiB beside it with two threads, 70 with 8 and 84 with 16; beside 40 other busy programs 88 with 16. A WRITE leaves
/// its megabyte in the buffer of the thread that has taken it.
fn thread_bytes(threads: usize, may_write: bool) -> u64 {
    let each = if may_write { 4 * MIB } else { 3 * MIB };
    threads.saturating_sub(4) as u64 * each
}

/// How many threads answer the kernel: the flag's value, or one for each core, and the part of a memory limit of
/// `limit_bytes`, which the flag `limit` gives, that they take. A small limit has fewer by default.
pub(crate) fn threads(
    flag: Option<u16>,
    (limit, limit_bytes): (&str, u64),
    may_write: bool,
) -> anyhow::Result<(usize, u64)> {
    let Some(threads) = flag.map(usize::from) else {
        let fit = |threads: &usize| thread_bytes(*threads, may_write) <= limit_bytes / 4;
        let threads = (2..=cores()).rev().find(fit).unwrap_or(2);
        return Ok((threads, thread_bytes(threads, may_write)));
    };
    let bytes = thread_bytes(threads, may_write);
    ensure!(
        bytes <= limit_bytes / 2,
        "--max-threads {threads} takes {} of {limit} {}, and may take half; give fewer threads, or a larger {limit}",
        Size(bytes),
        Size(limit_bytes)
    );
    Ok((threads, bytes))
}

/// What an event loop takes with what it has in hand, beyond the two that any mount has. 64 streams at S3's latency, with a
/// limit of 256 MiB and four threads, took 303 MiB with one loop, 315 with 8 and 342 with 32; by TLS 312, 329 and 369.
const LOOP_BYTES: u64 = 2 * MIB;

/// The event loops of a mount, and the part of a memory limit of `limit_bytes` that they take: as many as suit the machine,
/// and at most half of the threads that the flag gives, as both are for machines whose cores have other work. A small
/// limit has fewer.
pub(crate) fn event_loops(max_threads: Option<u16>, limit_bytes: u64, has_shared: bool) -> (EventLoops, u64) {
    let most = usual_event_loops().min(max_threads.map_or(u16::MAX, |threads| threads / 2));
    fitting_loops(most, limit_bytes, has_shared)
}

fn fitting_loops(most: u16, limit_bytes: u64, has_shared: bool) -> (EventLoops, u64) {
    let bytes = |loops: EventLoops| u64::from(loops.all().saturating_sub(2)) * LOOP_BYTES;
    let mut candidates = (2..=most).rev().map(|source| EventLoops::new(source, has_shared));
    let found = candidates.find(|loops| bytes(*loops) <= limit_bytes / 16);
    let loops = found.unwrap_or_else(|| EventLoops::new(1, has_shared));
    (loops, bytes(loops))
}

/// The default limit on names: 128 MiB, or an eighth of the memory if that is less.
pub(crate) fn names() -> u64 {
    names_of(bound())
}

fn names_of(bound_bytes: u64) -> u64 {
    (bound_bytes / 8).min(128 * MIB)
}

/// The number of inodes that the kernel may know: as many as fit into a sixteenth of the memory.
pub(crate) fn inodes() -> usize {
    usize::try_from(bound() / 16).unwrap_or(usize::MAX) / INODE_BYTES
}

/// The default limit on object data: an eighth of the memory, from 256 MiB to 4 GiB. It is smaller if no more
/// fits beside the names and the rest of the process, because the kernel kills a process that exceeds its
/// cgroup's memory.
fn share(bound_bytes: u64) -> u64 {
    let fitting = bound_bytes.saturating_sub(OVERHEAD_BYTES + names_of(bound_bytes));
    let share = (bound_bytes / 8).clamp(256 * MIB, 4096 * MIB).min(fitting);
    share.max(MIN_LIMIT_BYTES) / MIB * MIB
}

/// The memory that a process takes with `limit_bytes` for object data and `names_bytes` for names, else their default.
pub fn needed(limit_bytes: u64, names_bytes: Option<u64>) -> u64 {
    limit_bytes.saturating_add(OVERHEAD_BYTES).saturating_add(names_bytes.unwrap_or_else(names))
}

/// The memory that the machine and the cgroup allow.
pub fn bound() -> u64 {
    let machine = machine_bytes().unwrap_or(8 << 30);
    group_bytes().map_or(machine, |limit| limit.min(machine))
}

/// The part size, and a warning if the flag's value does not suit the memory.
pub(crate) fn part(flag: Option<Size>, limit_bytes: u64) -> anyhow::Result<(u64, Option<String>)> {
    let fitting = 1 << (limit_bytes / MIN_PARTS).max(MIB).ilog2();
    let Some(size) = flag else {
        return Ok((PART_BYTES.min(fitting), None));
    };
    ensure!(
        (MIB..=MAX_PART_BYTES).contains(&size.0) && size.0.is_multiple_of(MIB),
        "--part-size {size} is not a multiple of 1MiB from 1MiB to {}",
        Size(MAX_PART_BYTES)
    );
    let warning = (size.0.saturating_mul(MIN_PARTS) > limit_bytes).then(|| {
        format!(
            "warning: --part-size {size} leaves room for fewer than {MIN_PARTS} parts in a memory limit of {}; \
             --part-size {} or a larger --memory-limit is faster",
            Size(limit_bytes),
            Size(fitting)
        )
    });
    Ok((size.0, warning))
}

/// The default of the largest window of a stream. A stream that is alone may have most of the memory.
pub fn window(limit_bytes: u64) -> u64 {
    (limit_bytes / 4 * 3).min(512 * MIB)
}

#[cfg(test)]
mod tests {
    use super::{MIB, fitting_loops, floor, limit, part, share, threads};
    use crate::flags::size::Size;

    #[test]
    fn a_small_limit_names_value_and_remedy() {
        let error = limit(Some(Size(MIB))).expect_err("too small").to_string();
        assert_eq!(
            error,
            "--memory-limit 1MiB is too small: s3mount needs at least 64MiB; try --memory-limit 256MiB"
        );
        assert_eq!(limit(Some(Size(64 * MIB))).ok(), Some(64 * MIB));
    }

    #[test]
    fn a_floor_is_between_the_least_limit_and_the_limit() {
        assert_eq!(floor(None, 256 * MIB).ok(), Some(256 * MIB));
        assert_eq!(floor(Some(Size(64 * MIB)), 256 * MIB).ok(), Some(64 * MIB));
        for (bytes, text) in [(MIB, "at least 64MiB"), (512 * MIB, "more than --memory-limit 256MiB")] {
            let error = floor(Some(Size(bytes)), 256 * MIB).expect_err("out of bounds").to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn threads_take_a_part_of_the_limit() {
        let bytes = |flag, may_write| {
            threads(Some(flag), ("--memory-limit", 512 * MIB), may_write).expect("threads").1 / MIB
        };
        assert_eq!([2, 4, 8, 16, 64].map(|flag| bytes(flag, false)), [0, 0, 12, 36, 180]);
        assert_eq!([2, 4, 8, 16, 64].map(|flag| bytes(flag, true)), [0, 0, 16, 48, 240]);
        let error =
            threads(Some(64), ("--memory-limit", 128 * MIB), false).expect_err("too many").to_string();
        assert!(error.starts_with("--max-threads 64 takes 180MiB of --memory-limit 128MiB"), "{error}");
        let (usual, bytes) = threads(None, ("--memory-limit", 64 * MIB), true).expect("threads");
        assert!(usual >= 2 && bytes <= 16 * MIB);
    }

    #[test]
    fn event_loops_take_a_sixteenth_of_the_limit_at_most() {
        let loops = |most, limit_mib: u64, has_shared| {
            let (loops, bytes) = fitting_loops(most, limit_mib * MIB, has_shared);
            (loops.source, loops.shared, bytes / MIB)
        };
        assert_eq!(loops(0, 64, false), (1, 0, 0));
        assert_eq!(loops(32, 4096, false), (32, 0, 60));
        assert_eq!(loops(32, 4096, true), (32, 16, 92));
        assert_eq!(loops(32, 256, false), (10, 0, 16));
        assert_eq!(loops(32, 256, true), (7, 3, 16));
        assert_eq!(loops(32, 64, true), (3, 1, 4));
    }

    #[test]
    fn the_default_is_an_eighth_within_bounds() {
        assert_eq!(share(512 * MIB), 256 * MIB);
        assert_eq!(share(256 * MIB), 128 * MIB);
        assert_eq!(share(128 * MIB), 64 * MIB);
        assert_eq!(share(16 << 30), 2 << 30);
        assert_eq!(share(1 << 40), 4 << 30);
        assert!((64 * MIB..=4 << 30).contains(&limit(None).expect("a default")));
    }

    #[test]
    fn parts_get_smaller_with_the_memory_unless_given() {
        let default = |limit_mib: u64| part(None, limit_mib * MIB).expect("a default");
        assert_eq!(default(4096), (8 * MIB, None));
        assert_eq!(default(128), (8 * MIB, None));
        assert_eq!(default(100), (4 * MIB, None));
        assert_eq!(default(64), (4 * MIB, None));
        let (bytes, warning) = part(Some(Size(16 * MIB)), 128 * MIB).expect("a part size");
        assert_eq!(bytes, 16 * MIB);
        assert!(warning.is_some_and(|text| text.contains("--part-size 16MiB") && text.contains("8MiB")));
        assert_eq!(part(Some(Size(3 * MIB)), 128 * MIB).ok(), Some((3 * MIB, None)));
        for bytes in [0, MIB / 2, 3 * MIB / 2, 128 * MIB] {
            assert!(part(Some(Size(bytes)), 4096 * MIB).is_err(), "{bytes}");
        }
    }
}
