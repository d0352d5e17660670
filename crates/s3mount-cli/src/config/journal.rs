//! Where the journals of this machine are, and the logs where there is no syslog.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::config::environment::variable;
use crate::flags::journal::JournalArgs;

/// The folder of the journals: that of the flag, or the user's own for state that outlives a process. It lies
/// neither in the folder for written files, which not every mount has, nor in that of a cache, which may be deleted
/// at any time.
pub(crate) fn dir(args: &JournalArgs) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &args.journal {
        return std::path::absolute(dir).with_context(|| format!("cannot find --journal {}", dir.display()));
    }
    state().ok_or_else(|| anyhow!("there is no $HOME; name a folder with --journal DIR"))
}

/// The folder of the logs where there is no syslog, and no flag names one.
pub(crate) fn log_directory() -> anyhow::Result<PathBuf> {
    Ok(state().context("a home folder: there is no $HOME")?.join("log"))
}

/// The user's own folder for state that outlives a process.
fn state() -> Option<PathBuf> {
    if let Some(state) = variable("XDG_STATE_HOME") {
        return Some(Path::new(&state).join("s3mount"));
    }
    if nix::unistd::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/s3mount"));
    }
    Some(Path::new(&variable("HOME")?).join(".local/state/s3mount"))
}
