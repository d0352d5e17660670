//! Where the journals of this machine are.

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
    if let Some(state) = variable("XDG_STATE_HOME") {
        return Ok(Path::new(&state).join("s3mount"));
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/s3mount"));
    }
    let home =
        variable("HOME").ok_or_else(|| anyhow!("there is no $HOME; name a folder with --journal DIR"))?;
    Ok(Path::new(&home).join(".local/state/s3mount"))
}
