//! Runs fusermount, the set-uid helper by which users other than root mount and unmount.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Has fusermount unmount `dir`.
pub(crate) fn fusermount(dir: &Path, flags: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("fusermount3");
    // The message must be in English, because callers look for words in it.
    command.env("LC_ALL", "C").args(flags).arg("--").arg(dir);
    let output = command.output().context("cannot run fusermount3; install fuse3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
