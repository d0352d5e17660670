//! The limit of CPU time (`ulimit -t`). It is meant for programs that end, and a mount lives for as long as its jobs.

use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. The kernel kills who reaches that one, so the log says when.
pub fn make_room() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_CPU) else { return };
    if soft != hard {
        match setrlimit(Resource::RLIMIT_CPU, hard, hard) {
            Ok(()) => tracing::info!(
                soft_seconds = soft,
                "the soft limit of CPU time (ulimit -t) is raised to the hard one"
            ),
            Err(error) => tracing::warn!(%error, "cannot raise the limit of CPU time (ulimit -t)"),
        }
    }
    if hard != RLIM_INFINITY {
        tracing::warn!(
            seconds = hard,
            "the kernel kills this daemon when it has used so much CPU time (ulimit -H -t); start it without the limit"
        );
    }
}
