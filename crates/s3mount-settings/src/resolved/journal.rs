//! Where the journals of this machine are, and the logs where there is no syslog.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use crate::flags::journal::JournalArgs;
use crate::resolved::environment::variable;

/// The folder of the journals: that of the flag, or the user's own for state that outlives a process. It lies
/// neither in the folder for written files, which not every mount has, nor in that of a cache, which may be deleted
/// at any time.
pub fn dir(args: &JournalArgs) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &args.journal {
        return std::path::absolute(dir).with_context(|| format!("cannot find --journal {}", dir.display()));
    }
    state().ok_or_else(|| anyhow!("there is no $HOME; name a folder with --journal DIR"))
}

/// The folder of the logs where there is no syslog, and no flag names one.
pub fn log_directory() -> anyhow::Result<PathBuf> {
    Ok(state().context("a home folder: there is no $HOME")?.join("log"))
}

/// The user's own folder for state that outlives a process.
fn state() -> Option<PathBuf> {
    state_of(variable, nix::unistd::geteuid().is_root())
}

/// A relative path counts as none, as XDG's specification has it: each process would take another folder for it.
fn state_of(variable: impl Fn(&str) -> Option<String>, is_root: bool) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(state) = folder("XDG_STATE_HOME") {
        return Some(state.join("s3mount"));
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/s3mount"));
    }
    Some(folder("HOME")?.join(".local/state/s3mount"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::state_of;

    #[test]
    fn relative_folders_count_as_none() {
        let state = |state: &str, home: &str, is_root| {
            let value = |name: &str| match name {
                "XDG_STATE_HOME" => state.to_owned(),
                _ => home.to_owned(),
            };
            state_of(|name| Some(value(name)), is_root)
        };
        assert_eq!(state("/s", "/h", true), Some(PathBuf::from("/s/s3mount")));
        assert_eq!(state("s", "/h", true), Some(PathBuf::from("/var/lib/s3mount")));
        assert_eq!(state("s", "/h", false), Some(PathBuf::from("/h/.local/state/s3mount")));
        assert_eq!(state("./s", "h", false), None);
    }
}
