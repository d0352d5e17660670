//! What /proc says of a process or a thread in its `stat`.

use std::path::Path;

use nix::unistd::Pid;

/// The beginning of a `stat`, behind the name, which may have any characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    state: char,
    pub(crate) parent: u32,
}

impl Stat {
    /// Reads what is below `folder`, such as `/proc/PID`. Unset for a process that is gone.
    pub(crate) fn of(folder: impl AsRef<Path>) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(folder.as_ref().join("stat")).ok()?)
    }

    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        Some(Self { state: words.next()?.parse().ok()?, parent: words.next()?.parse().ok()? })
    }

    /// Whether it has ended, and only its number is left.
    pub(crate) fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether it was stopped, by a signal or by who traces it.
    pub(crate) fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it waits in the kernel, where no signal reaches it.
    pub(crate) fn is_stuck(self) -> bool {
        // An idle one is a thread that waits for its process's core dump.
        matches!(self.state, 'D' | 'I')
    }
}

/// Whether the first thread of a process has ended, or writes its core dump, and all others wait inside the kernel, where
/// no signal reaches them. A dump waits for all threads before anything is written.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let folder = format!("/proc/{pid}");
    if !Stat::of(&folder).is_some_and(Stat::has_ended) && !is_dumping(pid) {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("{folder}/task")) else { return false };
    let states: Vec<_> = threads.flatten().filter_map(|thread| Stat::of(thread.path())).collect();
    states.iter().all(|state| state.has_ended() || state.is_stuck())
        && states.iter().any(|state| state.is_stuck())
}

/// Whether a process was ended by a signal with a core dump: none of its threads runs its program again.
pub(crate) fn is_dumping(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("CoreDumping:").is_some_and(|value| value.trim() == "1"))
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn a_name_may_look_like_a_state() {
        let stat = Stat::parse("12 (a) Z 1 (b) D 7 12 12 0").expect("a process");
        assert_eq!((stat.parent, stat.is_stuck(), stat.has_ended()), (7, true, false));
        assert_eq!(Stat::parse(""), None);
        let this = Stat::of("/proc/self").expect("this process");
        assert_eq!(this.parent, std::os::unix::process::parent_id());
    }
}
