//! The folders at which pods find their volumes (their targets). Each is a bind mount of a mount of this driver.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use s3mount_system::mounts::{self, MountedAt};

use super::refusal::Refusal;

/// The kind of s3mount's mounts.
pub(super) const KIND: &str = "fuse.s3mount";

/// What is mounted at `path` last, if anything is. The path may lead over symbolic links, but for its last name: nobody may
/// answer there.
pub(super) fn mount_at(path: &Path) -> anyhow::Result<Option<MountedAt>> {
    mounts::check()?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    Ok(folder.canonicalize().ok().and_then(|folder| mounts::mount_at(&folder.join(name))))
}

pub(super) fn detach(folder: &Path) -> anyhow::Result<()> {
    umount2(folder, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
        .with_context(|| format!("cannot unmount {}", folder.display()))
}

/// Checks that a volume can be shown at `target`, and be taken away again. A mount that a driver has left there, and no
/// record knows, is taken away.
///
/// # Errors
/// [`Refusal::UnfitTarget`] says what is there.
pub(super) fn prepare(target: &Path) -> anyhow::Result<()> {
    while let Some(there) = mount_at(target)? {
        check_kind(&there, target)?;
        detach(target)?;
    }
    check_folder(target)
}

/// Checks that a mount is one of s3mount's.
fn check_kind(there: &MountedAt, target: &Path) -> anyhow::Result<()> {
    let target = target.display();
    ensure!(
        there.kind == KIND,
        Refusal::UnfitTarget(format!("something else ({}) is mounted at {target}; unmount it", there.kind))
    );
    Ok(())
}

/// Checks that `target` is an empty folder, or nothing. Files would be hidden, and the folder could not be removed later.
fn check_folder(target: &Path) -> anyhow::Result<()> {
    let shown = target.display();
    let is = match target.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => format!("can't be used: {error}"),
        Ok(found) if found.is_symlink() => "is a symbolic link, and no folder; remove it".to_owned(),
        Ok(found) if !found.is_dir() => "is a file, and no folder; remove it".to_owned(),
        Ok(_) => match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                "is a folder with something in it, and the volume would hide that; empty it".to_owned()
            }
            Err(error) => format!("can't be used: {error}"),
        },
    };
    Err(Refusal::UnfitTarget(format!("the target {shown} {is}")).into())
}

/// Has `target` show what is mounted at `folder`. Whoever only reads it has the mount itself read-only, or this view of it.
///
/// # Errors
/// [`Refusal::UnfitTarget`], and those of mounting.
pub(super) fn bind(folder: &Path, target: &Path, is_read_only: bool) -> anyhow::Result<()> {
    let wanted = mount_at(folder)?.ok_or_else(|| anyhow!("the mount was taken down meanwhile"))?;
    let is_read_only = is_read_only || wanted.is_read_only;
    while let Some(there) = mount_at(target)? {
        if (there.device, &there.kind, there.is_read_only) == (wanted.device, &wanted.kind, is_read_only) {
            return Ok(());
        }
        // A mount whose daemons are gone for good, or one that a driver did not finish.
        check_kind(&there, target)?;
        detach(target)?;
    }
    check_folder(target)?;
    fs::create_dir_all(target).with_context(|| format!("cannot make the folder {}", target.display()))?;
    let failed = || format!("cannot show the volume at {}", target.display());
    let none: Option<&str> = None;
    mount(Some(folder), target, none, MsFlags::MS_BIND, none).with_context(failed)?;
    if is_read_only {
        // A remount takes what the mount had before only if it is named again.
        let kept = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept;
        mount(none, target, none, flags, none).with_context(failed)?;
    }
    Ok(())
}

/// Takes away what s3mount has mounted at `target`. What others have mounted there stays.
///
/// # Errors
/// [`Refusal::UnfitTarget`] if that lies on a volume.
pub(super) fn unbind(target: &Path) -> anyhow::Result<()> {
    while let Some(there) = mount_at(target)? {
        if mounts::mounts().iter().any(|mount| mount.dir == there.dir && mount.kind == KIND) {
            check_kind(&there, target)?;
            detach(target)?;
            continue;
        }
        let (kind, target) = (&there.kind, target.display());
        tracing::warn!(kind, %target, "what is mounted here is no volume of this driver: it stays");
        break;
    }
    Ok(())
}

/// Removes the folder of a volume that was taken away. What can't be the folder that this driver has made stays: the
/// volume is gone, and nobody would be helped by a call that fails for ever.
///
/// # Errors
/// Those of the file system.
pub(super) fn remove_folder(target: &Path) -> anyhow::Result<()> {
    let Err(error) = fs::remove_dir(target) else { return Ok(()) };
    let is_not_ours = match error.kind() {
        ErrorKind::NotFound => return Ok(()),
        ErrorKind::NotADirectory | ErrorKind::DirectoryNotEmpty => true,
        _ => mount_at(target)?.is_some(),
    };
    let shown = target.display();
    if is_not_ours {
        tracing::warn!(%error, target = %shown, "the volume is gone, and what is at its place stays");
        return Ok(());
    }
    Err(error).with_context(|| format!("cannot remove the folder {shown}"))
}
