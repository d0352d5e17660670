//! Which process a thread belongs to, and its name.

use std::collections::HashMap;
use std::path::Path;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// The processes of threads, remembered: a process may have ended when its calls are shown.
#[derive(Debug, Default)]
pub(crate) struct Processes(HashMap<u32, Process>);

impl Processes {
    /// The process of the thread `tid`, in the pid namespace of the daemon.
    pub(crate) fn of(&mut self, tid: u32) -> Process {
        self.0.entry(tid).or_insert_with(|| look_up(tid)).clone()
    }
}

fn look_up(tid: u32) -> Process {
    if tid == 0 {
        return Process { pid: 0, name: "the kernel, or another container".into() };
    }
    let proc = Path::new("/proc");
    let status = std::fs::read(proc.join(tid.to_string()).join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let pid = group.and_then(|group| group.trim().parse().ok()).unwrap_or(tid);
    // A name may be any bytes.
    let name = std::fs::read(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
    Process { pid, name: if name.is_empty() { "?".into() } else { name } }
}
