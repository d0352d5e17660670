//! Room for threads. A daemon that can start only some of its threads waits for the others, or dies in odd ways, so it
//! finds out before it mounts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use anyhow::bail;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Threads of a mount besides those that `--max-threads` counts, and those of event loops: notices to the kernel,
/// signals, and tasks that wait for a disk. A mount without a cache has 11 to 13 in all on two cores.
const OTHERS: usize = 16;

/// What a thread takes of a limit of memory, in bytes: its stack, the stack of its signal handlers, and guard pages.
const THREAD_BYTES: u64 = (2 << 20) + (64 << 10);

/// How many event loops the clients of a mount have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLoops {
    /// Those of the source's client.
    pub source: u16,
    /// Those of the shared tier's. 0 where there is none.
    pub shared: u16,
}

impl EventLoops {
    /// `source` loops for the source, and half as many for a shared tier.
    pub fn new(source: u16, has_shared: bool) -> Self {
        Self { source, shared: if has_shared { (source / 2).max(1) } else { 0 } }
    }

    /// How many there are together.
    pub fn all(self) -> u16 {
        self.source + self.shared
    }
}

/// How many processors there are, from 2 to 16: so many threads does a mount or a copy have by default.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(4, usize::from).clamp(2, 16)
}

/// Starts as many threads as a mount with so many threads for the kernel's requests, and as many for its tasks, may
/// have, and ends them again.
///
/// A limit of memory is compared with what their stacks take before any is started: a thread that gets its stack, and
/// none for its signal handlers, aborts the process.
///
/// # Errors
/// Says which limits to look at if they can't be started.
pub fn check(max_threads: usize, event_loops: EventLoops) -> anyhow::Result<()> {
    // Each loop has a thread beside it that hands bodies over.
    let wanted = 2 * max_threads + 2 * usize::from(event_loops.all()) + OTHERS;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (resource, field, option) in
        [(Resource::RLIMIT_DATA, "VmData", "-d"), (Resource::RLIMIT_AS, "VmSize", "-v")]
    {
        let (limit, _) = getrlimit(resource)?;
        let used = kibibytes(&status, field) << 10;
        let needed = used + wanted as u64 * THREAD_BYTES;
        if limit != RLIM_INFINITY && limit < needed {
            bail!(
                "a limit of memory (ulimit {option}) of {} KiB leaves no room for the stacks of the {wanted} threads of \
                 a mount; raise it to {} KiB or more, or give a smaller --max-threads (now {max_threads})",
                limit >> 10,
                needed >> 10
            );
        }
    }
    let (started, result) = start(wanted);
    let Err(error) = result else { return Ok(()) };
    bail!(
        "only {started} of the {wanted} threads of a mount can be started ({error}); raise the limit of processes of \
         this user (ulimit -u, TasksMax= of systemd) or that of the container (pids.max, --pids-limit), or give a \
         smaller --max-threads (now {max_threads})"
    )
}

/// The number of KiB in a field of `/proc/self/status`, 0 where it has none.
fn kibibytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// Has so many threads at once, if it can. Returns how many it had.
fn start(wanted: usize) -> (usize, io::Result<()>) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let mut threads: Vec<JoinHandle<()>> = Vec::with_capacity(wanted);
    let mut result = Ok(());
    while threads.len() < wanted && result.is_ok() {
        let gate = gate.clone();
        match Builder::new().spawn(move || drop(gate.lock())) {
            Ok(thread) => threads.push(thread),
            Err(error) => result = Err(error),
        }
    }
    drop(closed);
    let started = threads.len();
    for thread in threads {
        // None of them can panic.
        drop(thread.join());
    }
    (started, result)
}

#[cfg(test)]
mod tests {
    use super::{EventLoops, check, kibibytes, start};

    #[test]
    fn threads_that_can_be_started_are_enough() {
        check(4, EventLoops::new(2, true)).expect("room for thirty threads");
        let (started, result) = start(3);
        assert_eq!((started, result.is_ok()), (3, true));
    }

    #[test]
    fn a_field_of_the_status_is_read_in_kibibytes() {
        let status =
            std::fs::read_to_string("/proc/self/status").expect("the kernel's status of this process");
        assert!(kibibytes(&status, "VmData") > 100, "{status}");
        assert_eq!(kibibytes("VmSize:\t   12 kB\nVmData:\t 1 kB\n", "VmSize"), 12);
        assert_eq!(kibibytes("VmSize:\t   12 kB\n", "VmData"), 0);
    }
}
