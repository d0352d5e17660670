//! Whether this process can mount at a folder: the folder itself, FUSE's device, and what other users may see. A mount
//! asks before it starts anything, and `s3mount doctor` asks alike.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use nix::errno::Errno;
use s3mount_fuse::MountPoint;

use crate::mounts::{MountedAt, mount_at};
use crate::probe::{Life, probe};
use crate::terminal;

/// The options that a container needs for FUSE.
const CONTAINER: &str = "`--device /dev/fuse --cap-add SYS_ADMIN`";

/// A user other than root may open a mount to other users only if fuse.conf allows it.
pub fn check_allowed(allow_other: bool, allow_root: bool, fuse_conf: &str) -> anyhow::Result<()> {
    let flag = match (allow_other, allow_root) {
        (true, _) => "--allow-other",
        (_, true) => "--allow-root",
        _ => return Ok(()),
    };
    ensure!(
        fuse_conf.lines().any(|line| line.trim() == "user_allow_other"),
        "{flag} needs the line `user_allow_other` in /etc/fuse.conf; ask root to add it, or leave {flag} out"
    );
    Ok(())
}

/// Checks that the folder can be mounted at, and holds it from then on. `dead` is called for a mount whose daemon is
/// gone; if it succeeds, the folder is looked at again.
pub fn check_dir(
    dir: &Path,
    nonempty: bool,
    dead: impl Fn(&MountedAt) -> anyhow::Result<()>,
) -> anyhow::Result<MountPoint> {
    let shown = terminal::shown(dir);
    // The daemon of a mount may hang, so the folder is opened only when nothing is mounted there.
    if let Some(mount) = mount_at(dir) {
        // Its mount keeps the daemon, which has a session of its own, from walking to the folder.
        ensure!(
            mount.kind != "autofs",
            "an automounter waits at {shown}, and s3mount can't mount there; leave x-systemd.automount out of the line in \
             /etc/fstab"
        );
        let is_fuse = mount.kind.starts_with("fuse");
        let life = if is_fuse { probe(&mount) } else { Life::Alive };
        if life == Life::Gone {
            // Each call unmounts one dead mount, so the recursion ends.
            dead(&mount)?;
            return check_dir(dir, nonempty, dead);
        }
        let umount = if mount.kind == "fuse.s3mount" { "s3mount umount" } else { "umount" };
        let by = mount.other_user().map_or_else(String::new, |user| format!(", by {user}"));
        let (source, kind) = (terminal::plain(&mount.source), terminal::plain(&mount.kind));
        if life == Life::Silent {
            bail!(
                "{source} is mounted at {shown} already ({kind}{by}), and its daemon does not answer: it is stopped, or \
                 it hangs; end it, or unmount it with: {umount} --lazy {shown}"
            );
        }
        bail!(
            "{source} is mounted at {shown} already ({kind}{by}); unmount it first, with: {umount} {shown}"
        );
    }
    let point = MountPoint::open(dir);
    let entries = point.and_then(|point| Ok((std::fs::read_dir(point.folder())?, point)));
    let (mut entries, point) = match entries {
        Ok(opened) => opened,
        Err(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32) => {
            bail!(
                "{shown} lies in a mount whose daemon is gone; unmount that first, with: s3mount umount FOLDER"
            )
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("the folder {shown} does not exist; make it with: mkdir -p {shown}")
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("{shown} is not a folder; give an empty folder to mount at")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read the folder {shown}")),
    };
    ensure!(
        nonempty || entries.next().is_none(),
        "the folder {shown} is not empty; give an empty one, or mount with -o nonempty to hide what is in it"
    );
    Ok(point)
}

/// Checks that FUSE's `device` can be opened.
///
/// # Errors
/// Why it can't be, and what to do.
pub fn check_device(device: &Path) -> anyhow::Result<()> {
    let opened = File::options().read(true).write(true).open(device);
    opened.map(drop).map_err(|error| unusable(device, error))
}

/// What to do where opening FUSE's `device` has failed so.
fn unusable(device: &Path, error: io::Error) -> anyhow::Error {
    let shown = device.display();
    let errno = error.raw_os_error().map(Errno::from_raw);
    match errno {
        Some(Errno::ENOENT | Errno::ENODEV) => anyhow!(
            "{shown} does not exist; load FUSE with `modprobe fuse`, or start the container with {CONTAINER}"
        ),
        // A control group that forbids the device says EPERM.
        Some(Errno::EACCES) if let Some(mode) = closed(device) => anyhow!(
            "{shown} is there, but its mode {mode:o} keeps this user from opening it; have root run `chmod 666 {shown}`, \
             which is the mode that udev gives it, or mount as root"
        ),
        _ => anyhow::Error::new(error).context(format!("cannot open {shown}; a container needs {CONTAINER}")),
    }
}

/// The mode of a file that not everybody may read and write.
fn closed(file: &Path) -> Option<u32> {
    let mode = file.metadata().ok()?.permissions().mode() & 0o777;
    (mode & 0o666 != 0o666).then_some(mode)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Error;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use nix::errno::Errno;

    use super::{check_allowed, check_device, unusable};

    #[test]
    fn others_are_let_in_where_fuse_conf_says_so() {
        let error = check_allowed(true, false, "# user_allow_other\n").expect_err("a comment").to_string();
        assert!(error.starts_with("--allow-other needs the line `user_allow_other`"), "{error}");
        assert!(check_allowed(false, true, "").is_err());
        assert!(check_allowed(true, false, "mount_max = 9\n user_allow_other\n").is_ok());
        assert!(check_allowed(false, false, "").is_ok());
    }

    #[test]
    fn a_missing_device_says_what_to_do() {
        let error = check_device(Path::new("/dev/no-such-fuse")).expect_err("there is none");
        let text = error.to_string();
        assert!(
            text.contains("/dev/no-such-fuse does not exist") && text.contains("modprobe fuse"),
            "{text}"
        );
    }

    #[test]
    fn a_device_that_is_closed_by_its_mode_is_not_said_to_be_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = folder.path().join("fuse");
        std::fs::write(&device, "").expect("a file");
        let set = |mode| std::fs::set_permissions(&device, Permissions::from_mode(mode)).expect("a mode");
        set(0o600);
        let denied = |errno| unusable(&device, Error::from_raw_os_error(errno as i32)).to_string();
        let text = denied(Errno::EACCES);
        assert!(text.contains("its mode 600") && text.contains("chmod 666"), "{text}");
        assert!(!text.contains("container"), "{text}");
        // A container's control group forbids it, whatever the mode says.
        assert!(denied(Errno::EPERM).contains("--cap-add SYS_ADMIN"));
        set(0o666);
        assert!(denied(Errno::EACCES).contains("--cap-add SYS_ADMIN"));
    }
}
