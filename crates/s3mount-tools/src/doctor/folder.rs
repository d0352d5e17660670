//! Checks of the folder to mount at.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::bail;
use s3mount_system::mountable::check_dir;
use s3mount_system::mounts::{MountedAt, mount_at, resolve};

use super::finding::Finding;

const NAME: &str = "folder";

/// The time that a file system may take to answer. One whose server or daemon hangs never does.
const LIMIT: Duration = Duration::from_secs(5);

/// Looks at the folder. A thread does it, because a mount whose daemon hangs does not answer.
pub(crate) fn check(dir: &Path, nonempty: bool) -> Finding {
    let (send, receive) = mpsc::channel();
    let named = dir.to_owned();
    std::thread::spawn(move || {
        // Nobody receives it after the time limit.
        let _ = send.send(look(&named, nonempty));
    });
    receive.recv_timeout(LIMIT).unwrap_or_else(|_| {
        let shown = dir.display();
        Finding::fail(
            NAME,
            format!("{shown} does not answer within {LIMIT:?}: the daemon or the server behind it hangs"),
            format!("umount -l {shown}"),
        )
    })
}

fn look(dir: &Path, nonempty: bool) -> Finding {
    let Ok(dir) = resolve(dir) else {
        return Finding::fail(NAME, format!("cannot find {}", dir.display()), "");
    };
    let shown = dir.display();
    if let Some(mount) = mount_at(&dir).filter(|mount| mount.kind == "fuse.s3mount")
        && std::fs::read_dir(&dir).is_ok()
    {
        return Finding::ok(NAME, format!("{} is mounted at {shown}, and answers", mount.source));
    }
    let dead = |mount: &MountedAt| {
        bail!(
            "the daemon of the mount at {} is gone; s3mount umount {0}, or mount there again",
            mount.dir.display()
        )
    };
    match check_dir(&dir, nonempty, dead) {
        Ok(_) => Finding::ok(NAME, format!("{shown} can be mounted at")),
        Err(error) => Finding::fail(NAME, format!("{error:#}"), ""),
    }
}
