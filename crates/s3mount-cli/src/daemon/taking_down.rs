//! Takes down the mount of this daemon, wherever it is by then, and tells what goes with it and what is left.

use anyhow::{Context, bail};
use s3mount_fuse::{Mount, Place};
use s3mount_system::mounts::{MountedAt, by_id, cover_of, inside, others_of};
use s3mount_system::terminal::shown;

/// Takes `mount` down, also while it is in use. `began` is where it was mounted, if that is known. Returns whether it
/// was still mounted. A mount that another process has mounted is left to it.
///
/// # Errors
/// Says where the mount is left, and what removes it.
pub(super) fn take_down(mount: &Mount, began: Option<&MountedAt>) -> anyhow::Result<bool> {
    let Some(began) = began else { return mount.unmount().context("cannot unmount") };
    let lay_inside = inside(began.id);
    if !matches!(mount.unmount(), Ok(true)) && !take_down_elsewhere(mount, began)? {
        return Ok(false);
    }
    for other in lay_inside {
        tracing::warn!("{other} lay inside of the mount, and was taken down with it");
    }
    for other in others_of(began) {
        let dir = shown(&other.dir);
        tracing::warn!(
            "{other} shows the same bucket and ends, too; take it down with: s3mount umount {dir}"
        );
    }
    Ok(true)
}

/// Takes down a mount that somebody has moved. Returns whether it was still mounted.
fn take_down_elsewhere(mount: &Mount, began: &MountedAt) -> anyhow::Result<bool> {
    let is_same = |now: &MountedAt| (now.device, &now.kind) == (began.device, &began.kind);
    let Some(now) = by_id(began.numbers()).filter(is_same) else { return Ok(false) };
    let dir = shown(&now.dir);
    let top = Place::open(&now.dir).and_then(|place| place.id());
    if top.is_ok_and(|top| top.number == now.id) {
        let was_there = mount.unmount_at(&now.dir).with_context(|| format!("cannot unmount {dir}"))?;
        if was_there && now.dir != began.dir {
            tracing::warn!("the mount was moved to {dir}, and was taken down there");
        }
        return Ok(was_there);
    }
    match cover_of(&now) {
        Some(cover) => bail!(
            "the mount is left at {dir}, and answers ENOTCONN from now on, because {cover} hides it; take both down \
             with: umount {}; s3mount umount {dir}",
            shown(&cover.dir)
        ),
        None => bail!(
            "the mount is left at {dir}, and answers ENOTCONN from now on, because nothing leads there; take it down \
             with: s3mount umount {dir}"
        ),
    }
}
