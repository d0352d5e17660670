//! What can be known to fail before anything is started.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::config::Config;
use crate::mounts::mount_at;

/// Checks folder, device and permissions; takes away a mount whose daemon is dead.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    check_dir(&config.dir, config.nonempty)?;
    check_device(Path::new("/dev/fuse"))?;
    let is_root = nix::unistd::geteuid().is_root();
    if (config.allow_other || config.allow_root) && !is_root {
        let conf = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
        ensure!(
            conf.lines().any(|line| line.trim() == "user_allow_other"),
            "--allow-other and --allow-root take a line `user_allow_other` in /etc/fuse.conf, which only root can add"
        );
    }
    if let Some(bundle) = &config.ca_bundle {
        File::open(bundle).with_context(|| format!("cannot read the CA bundle {}", bundle.display()))?;
    }
    Ok(())
}

fn check_dir(dir: &Path, nonempty: bool) -> anyhow::Result<()> {
    let shown = dir.display();
    let mut entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32) => {
            recover(dir)?;
            return check_dir(dir, nonempty);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("the folder {shown} does not exist; make it with: mkdir -p {shown}")
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("{shown} is not a folder; give an empty folder to mount at")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read the folder {shown}")),
    };
    if let Some(mount) = mount_at(dir) {
        bail!(
            "{} is mounted at {shown} already ({}); unmount it first, with: s3mount umount {shown}",
            mount.source,
            mount.kind
        );
    }
    ensure!(
        nonempty || entries.next().is_none(),
        "the folder {shown} is not empty; give an empty one, or pass --nonempty to hide what is in it"
    );
    Ok(())
}

/// Takes away what a killed daemon has left.
fn recover(dir: &Path) -> anyhow::Result<()> {
    crate::say(&format!(
        "s3mount: {} was left behind by a daemon that is gone; unmounting it",
        dir.display()
    ));
    let result = match umount2(dir, MntFlags::MNT_DETACH) {
        Err(Errno::EPERM) => crate::umount::fusermount(dir, "-uz"),
        result => result.map_err(Into::into),
    };
    result.with_context(|| format!("cannot unmount what is left at {}", dir.display()))
}

fn check_device(device: &Path) -> anyhow::Result<()> {
    match File::options().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound)
                || error.raw_os_error() == Some(Errno::ENODEV as i32) =>
        {
            bail!(
                "{} does not exist; load FUSE with `modprobe fuse`, or start the container with \
                 `--device /dev/fuse --cap-add SYS_ADMIN`",
                device.display()
            )
        }
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot open {}; a container needs `--device /dev/fuse --cap-add SYS_ADMIN`",
                device.display()
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check_device;

    #[test]
    fn a_missing_device_says_what_to_do() {
        let error = check_device(Path::new("/dev/no-such-fuse")).expect_err("there is none");
        let text = error.to_string();
        assert!(
            text.contains("/dev/no-such-fuse does not exist") && text.contains("modprobe fuse"),
            "{text}"
        );
    }
}
