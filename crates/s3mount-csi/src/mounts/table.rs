//! What is mounted, as this thread sees it: it may be in another namespace of mounts than the rest of its process.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// One mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The number of the device, `major:minor`.
    pub(crate) device: (u64, u64),
    pub(crate) is_read_only: bool,
    /// It is one of s3mount's.
    pub(crate) is_ours: bool,
}

/// What is mounted at `path` last, if anything is. The path may lead over symbolic links, but for its last name.
pub(crate) fn mount_at(path: &Path) -> anyhow::Result<Option<Mounted>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    // The name itself must not be followed: nobody may answer there.
    let Ok(folder) = folder.canonicalize() else { return Ok(None) };
    let path = folder.join(name);
    let table = fs::read("/proc/thread-self/mountinfo").context("cannot see what is mounted")?;
    Ok(table.split(|byte| *byte == b'\n').rev().find_map(|line| parse(line, &path)))
}

/// The mount of a line of the table, if it is at `path`.
fn parse(line: &[u8], path: &Path) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let dir = fields.nth(1)?;
    if unescape(dir) != path {
        return None;
    }
    let options = fields.next()?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mounted {
        device: (device.0.parse().ok()?, device.1.parse().ok()?),
        is_read_only: options.split(|byte| *byte == b',').any(|option| option == b"ro"),
        is_ours: kind == b"fuse.s3mount",
    })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Whether a process serves the mount at `folder`, or keeps it, or publishes what was written there: it names the folder
/// among its arguments.
pub(crate) fn has_daemon(folder: &Path) -> anyhow::Result<bool> {
    let processes = fs::read_dir("/proc").context("cannot see the processes")?.flatten();
    let serves = |process: fs::DirEntry| {
        let Ok(line) = fs::read(process.path().join("cmdline")) else { return false };
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"s3mount"))
            && words.any(|word| word == folder.as_os_str().as_bytes())
    };
    Ok(processes.into_iter().any(serves))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mounted, parse};

    #[test]
    fn a_line_of_the_table_is_read() {
        let line =
            b"36 35 0:77 / /var/lib/a\\040b/mount ro,nosuid shared:1 - fuse.s3mount s3mount rw,user_id=0";
        let mounted = Mounted { device: (0, 77), is_read_only: true, is_ours: true };
        assert_eq!(parse(line, Path::new("/var/lib/a b/mount")), Some(mounted));
        assert_eq!(parse(line, Path::new("/var/lib/a")), None);
    }
}
