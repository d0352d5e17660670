//! Makes room for open files: each connection is one, and so is each file that programs read from the disk cache.

use anyhow::ensure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Room for the files that the daemon has open besides connections to the store. These are less than 100
/// files, and one for each client of the control socket.
const OTHERS: u64 = 256;

/// The most files that are asked for. Containers often allow a billion, and programs that the daemon starts for
/// credentials inherit the limit: some of them close each number below it when they start.
const MOST: u64 = 1 << 20;

/// The fewest files with which a mount works: some 25 of its own, one for each thread that asks the kernel, connections.
const FEWEST: u64 = 64;

/// Raises the limit on open files as far as this user may, so that the files of the disk cache can be open, too.
/// Returns how many connections fit: fewer if the limit can't be raised enough.
///
/// # Errors
/// Says what to do where the limit leaves no room for a mount.
pub fn make_room(connections: u32) -> anyhow::Result<u32> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(connections) };
    ensure!(
        hard >= FEWEST,
        "only {hard} files may be open at a time (ulimit -n), and a mount needs {FEWEST}, and 1024 to be fast; raise the \
         limit where s3mount is started: ulimit -n, limits.conf, LimitNOFILE= of systemd, or --ulimit nofile= of Docker"
    );
    let (wanted, allowed) = plan(soft, hard, connections);
    if wanted != soft
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::warn!(%error, "cannot raise the limit on open files");
        return Ok(plan(soft, soft, connections).1);
    }
    if allowed < connections {
        tracing::warn!(
            open_files = hard,
            connections = allowed,
            "the limit on open files leaves fewer connections"
        );
    }
    Ok(allowed)
}

/// How many files this process may have open.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Raises the limit as far as [`make_room`] does. Where it can't be raised, it stays.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let (wanted, _) = plan(soft, hard, 0);
        if wanted != soft {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
        }
    }
}

/// The soft limit to set, and the number of connections that fit into it.
pub fn plan(soft: u64, hard: u64, connections: u32) -> (u64, u32) {
    let limit = soft.max(hard.min(MOST));
    // If the limit is very low, connections get half of it.
    let room = limit.saturating_sub(OTHERS).max(limit / 2).max(1);
    (limit, connections.min(u32::try_from(room).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::plan;

    #[test]
    fn connections_and_the_rest_fit() {
        assert_eq!(plan(1024, 4096, 512), (4096, 512));
        assert_eq!(plan(2048, 1 << 30, 1024), (1 << 20, 1024));
        assert_eq!(plan(u64::MAX, u64::MAX, 512), (u64::MAX, 512));
        assert_eq!(plan(256, 600, 512), (600, 344));
        assert_eq!(plan(64, 64, 512), (64, 32));
    }
}
