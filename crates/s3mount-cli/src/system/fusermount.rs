//! The set-uid helper by which users other than root mount and unmount.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Has the set-uid helper of FUSE unmount for us.
pub(crate) fn fusermount(dir: &Path, flags: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("fusermount3");
    // Its words are read below.
    command.env("LC_ALL", "C").args(flags).arg("--").arg(dir);
    let output = command.output().context("cannot run fusermount3; install fuse3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
