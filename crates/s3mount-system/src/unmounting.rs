//! Unmounts: by the kernel for root, and by fusermount, the set-uid helper, for other users.

use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nix::unistd::geteuid;
use s3mount_fuse::{MountId, Place};

use crate::mounts::MountedAt;

/// Takes a mount out of the tree, also while it is in use. Another mount that is in its place by now stays.
pub fn detach(mount: &MountedAt) -> anyhow::Result<()> {
    take_down(mount, |place, id| place.detach(id).map(drop), &["-u", "-z"])
}

/// Takes a mount down, unless it is in use. Another mount that is in its place by now stays.
pub fn unmount(mount: &MountedAt) -> anyhow::Result<()> {
    take_down(mount, Place::unmount, &["-u"])
}

fn take_down(
    mount: &MountedAt,
    how: impl FnOnce(&Place, MountId) -> io::Result<()>,
    flags: &[&str],
) -> anyhow::Result<()> {
    let place = Place::open(&mount.dir)?;
    let result = match how(&place, mount.numbers()) {
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => fusermount(&mount.dir, flags),
        result => result.map_err(Into::into),
    };
    result.map_err(|error| match mount.other_user() {
        Some(user) if !geteuid().is_root() => {
            error.context(format!("{user} has mounted it; run this as that user, or as root"))
        }
        _ => error,
    })
}

/// Has fusermount unmount `dir`. For users other than root it unmounts their own mounts of FUSE alone.
fn fusermount(dir: &Path, flags: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("fusermount3");
    // The message must be in English, because callers look for words in it.
    command.env("LC_ALL", "C").args(flags).arg("--").arg(dir);
    let output = command.output().context("cannot run fusermount3; install fuse3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
