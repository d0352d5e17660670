//! Finds the reasons why a mount would fail, before anything is started.

use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::Context;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use s3mount_fuse::MountPoint;
use s3mount_settings::resolved::Config;
use s3mount_settings::resolved::shown::Subtree;
use s3mount_settings::resolved::store::check_bundle;
use s3mount_settings::resolved::target::Target;
use s3mount_system::mountable::{check_allowed, check_device, check_dir};
use s3mount_system::mounts::{self, MountedAt, inside};
use s3mount_system::terminal;
use s3mount_system::unmounting::detach;

use super::device;
use super::keeper::Kept;

/// Where the bucket is mounted, as open files.
#[derive(Debug)]
pub(crate) enum Given {
    /// A folder.
    Folder(MountPoint),
    /// The device that another process has mounted.
    Device(OwnedFd),
    /// What the daemon before has left.
    Kept(Kept),
}

impl Given {
    /// Leaves it to a daemon that this process starts: a device that was passed on stays open under its number, for as long
    /// as this process lives.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub(crate) fn leave_to_daemon(self) -> nix::Result<()> {
        if let Self::Device(device) = self {
            fcntl(&device, FcntlArg::F_SETFD(FdFlag::empty()))?;
            let _ = device.into_raw_fd();
        }
        Ok(())
    }
}

/// Checks the folder, the device and the permissions. Unmounts a mount whose daemon is dead.
pub(crate) fn check(config: &Config) -> anyhow::Result<Given> {
    mounts::check()?;
    for Subtree { store, .. } in config.shown.subtrees() {
        store.ca_bundle.as_deref().map_or(Ok(()), check_bundle)?;
    }
    match &config.target {
        Target::Device(number) => device::take(*number).map(Given::Device),
        Target::Dir(dir) => check_mounting(config, dir).map(Given::Folder),
    }
}

/// Checks whether this process can mount at `dir`.
fn check_mounting(config: &Config, dir: &Path) -> anyhow::Result<MountPoint> {
    let point = check_dir(dir, config.nonempty, recover)?;
    check_device(Path::new("/dev/fuse"))?;
    if !nix::unistd::geteuid().is_root() {
        let conf = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
        check_allowed(config.allow_other, config.allow_root, &conf)?;
    }
    Ok(point)
}

/// Unmounts what a killed daemon has left.
fn recover(mount: &MountedAt) -> anyhow::Result<()> {
    let shown = terminal::shown(&mount.dir);
    terminal::notice(&format!(
        "{} at {shown} was left behind by a daemon that is gone; unmounting it",
        terminal::plain(&mount.source)
    ));
    let inner = inside(mount.id);
    detach(mount).with_context(|| {
        format!("cannot unmount what is left at {shown}; ask root to do it, with: umount -l {shown}")
    })?;
    for other in inner {
        terminal::notice(&format!("{other} lay inside of it, and was taken down with it"));
    }
    Ok(())
}
