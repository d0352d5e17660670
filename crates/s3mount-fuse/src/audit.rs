//! What an audit log is told: each call that opens a file, changes a name or closes what it has written.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

/// A call of a program, and its result.
#[derive(Clone, Debug)]
pub struct AuditedCall {
    /// What it is: `open`, `create`, `close`, `setattr`, `mkdir`, `symlink`, `rmdir`, `unlink` or `rename`.
    pub call: &'static str,
    /// The user that the kernel names: the one by whose rights files are opened.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The process, or 0 if it is in a container whose processes the daemon can't see.
    pub pid: u32,
    /// The file of its program. Unset where /proc does not show it, and for `close`: a process that runs another program
    /// closes files meanwhile, and who asks for its program waits until they are closed.
    pub program: Option<PathBuf>,
    /// The key. That of a folder has no slash at its end.
    pub key: String,
    /// The key that a rename gives.
    pub to: Option<String>,
    /// What a file is opened for: `read`, `write` or `read-write`.
    pub access: Option<&'static str>,
    /// Whether a daemon before had the request, and may have told of it.
    pub is_repeated: bool,
    /// The errno of the answer, or 0.
    pub errno: i32,
}

/// Takes what was called. It must not block: threads that serve the kernel call it.
pub trait AuditSink: Debug + Send + Sync {
    /// Notes a call.
    fn note(&self, call: AuditedCall);
}

/// The process of a thread.
pub(crate) fn process_of(thread: u32) -> u32 {
    if thread == 0 {
        return 0;
    }
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.unwrap_or(thread)
}

/// The file of a thread's program. It waits while the process replaces its program.
pub fn program_of(thread: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{thread}/exe")).ok()
}

#[cfg(test)]
mod tests {
    use super::{process_of, program_of};

    #[test]
    fn a_thread_belongs_to_a_process_that_runs_a_program() {
        let (process, program) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let thread = nix::unistd::gettid().as_raw().cast_unsigned();
                (process_of(thread), program_of(thread))
            });
            other.join().expect("it ends")
        });
        assert_eq!(process, std::process::id());
        assert_eq!(program, std::env::current_exe().ok());
        assert_eq!((process_of(0), program_of(0)), (0, None));
    }
}
