//! Where a bucket is mounted.

use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use s3mount_system::mounts;
use s3mount_system::probe::check_above;

/// The folder of the descriptors that a process was started with.
const DESCRIPTORS: &str = "/dev/fd/";

/// The first descriptor that is not one of the standard streams.
const FIRST: RawFd = 3;

/// Where a bucket is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A folder, as mountinfo has it: an absolute path without symbolic links, as long as the links can be
    /// resolved.
    Dir(PathBuf),
    /// The number of a descriptor: an open `/dev/fuse` that the program which starts s3mount has mounted.
    Device(RawFd),
}

impl Target {
    /// Reads `DIR` or `/dev/fd/N`.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let Some(number) = path.to_str().and_then(|path| path.strip_prefix(DESCRIPTORS)) else {
            check_above(path)?;
            let dir = mounts::resolve(path).with_context(|| format!("cannot find the folder {shown}"))?;
            return Ok(Self::Dir(dir));
        };
        let device = number.parse().ok().filter(|number| *number >= FIRST);
        let why = || {
            format!("{shown} does not name a descriptor of FUSE; write /dev/fd/N, where N is {FIRST} or more")
        };
        Ok(Self::Device(device.with_context(why)?))
    }

    /// The folder, if this process mounts by itself.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Dir(dir) => Some(dir),
            Self::Device(_) => None,
        }
    }

    /// The descriptor, if another process has mounted.
    pub fn device(&self) -> Option<RawFd> {
        match self {
            Self::Dir(_) => None,
            Self::Device(number) => Some(*number),
        }
    }

    /// Checks that no flag asks for what only the program can do that has mounted a descriptor. `flags` has the
    /// names of these flags, and whether they were given.
    pub(crate) fn check_flags(&self, flags: &[(&str, bool)]) -> anyhow::Result<()> {
        let Self::Device(_) = self else { return Ok(()) };
        let given = flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag);
        ensure!(
            given.is_none(),
            "{} has no effect on {self}, which is mounted already; leave it out, and have the program that mounts \
             do it",
            given.unwrap_or_default()
        );
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(dir) => write!(f, "{}", dir.display()),
            Self::Device(number) => write!(f, "{DESCRIPTORS}{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Target;

    fn target(path: &str) -> anyhow::Result<Target> {
        Target::new(Path::new(path))
    }

    #[test]
    fn a_folder_or_a_descriptor() {
        assert_eq!(target("/usr/./no-such").ok(), Some(Target::Dir(PathBuf::from("/usr/no-such"))));
        assert_eq!(target("/dev/fd/12").ok(), Some(Target::Device(12)));
        for path in ["/dev/fd/", "/dev/fd/x", "/dev/fd/-4", "/dev/fd/0", "/dev/fd/2", "/dev/fd/99999999999"] {
            let error = target(path).expect_err(path).to_string();
            assert!(
                error.starts_with(&format!("{path} does not name a descriptor of FUSE; write")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_mount_decides_is_refused_for_a_descriptor() {
        let flags = [("--noexec", false), ("--nonempty", true)];
        let error = target("/dev/fd/3").and_then(|target| target.check_flags(&flags)).expect_err("a flag");
        assert!(error.to_string().starts_with("--nonempty has no effect on /dev/fd/3, which"), "{error}");
        assert!(target("/usr").and_then(|target| target.check_flags(&flags)).is_ok());
    }
}
