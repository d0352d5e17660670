//! Reads the machine's mounts from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountedAt {
    /// The kernel's number of the mount. It tells mounts apart that are stacked in one folder.
    pub(crate) id: u64,
    /// The minor number of its device, by which the kernel names a FUSE connection.
    pub(crate) device: u64,
    pub(crate) dir: PathBuf,
    /// The type of the mount, such as `fuse.s3mount`.
    pub(crate) kind: String,
    /// The source of the mount, such as `s3://bucket/`.
    pub(crate) source: String,
}

/// The path of `dir` as mountinfo has it: absolute and without symbolic links. If `dir` can't be resolved
/// because the daemon of its mount is dead, this resolves only the links before the last name.
pub(crate) fn resolve(dir: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = dir.canonicalize() {
        return Ok(path);
    }
    let dir = std::path::absolute(dir)?;
    let parent = dir.parent().and_then(|parent| parent.canonicalize().ok());
    Ok(match (parent, dir.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => dir,
    })
}

/// The topmost mount at `dir` itself.
pub(crate) fn mount_at(dir: &Path) -> Option<MountedAt> {
    mounts().into_iter().rfind(|mount| mount.dir == dir)
}

/// The mount with the number `id`, at the path that it has now.
pub(crate) fn by_id(id: u64) -> Option<MountedAt> {
    mounts().into_iter().find(|mount| mount.id == id)
}

/// The mount that holds `dir`: the innermost one whose folder is `dir` or lies above it.
pub(crate) fn enclosing(dir: &Path) -> Option<MountedAt> {
    let above = mounts().into_iter().filter(|mount| dir.starts_with(&mount.dir));
    above.max_by_key(|mount| mount.dir.components().count())
}

/// All mounts. The names of their folders may be any bytes.
fn mounts() -> Vec<MountedAt> {
    let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<MountedAt> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    // After a field of its own, which is `-`, the line says what is mounted.
    let [_, kind, source, ..] = fields.get(fields.iter().position(|field| *field == b"-")?..)? else {
        return None;
    };
    Some(MountedAt {
        id: std::str::from_utf8(fields[0]).ok()?.parse().ok()?,
        device: std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?.1.parse().ok()?,
        dir: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: String::from_utf8_lossy(&unescape(source)).into_owned(),
    })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = || u8::from_str_radix(std::str::from_utf8(tail.get(..3)?).ok()?, 8).ok();
        match (first, octal()) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::PathBuf;

    use super::{MountedAt, parse, resolve, unescape};

    #[test]
    fn folders_are_resolved_also_where_the_last_name_is_missing() {
        assert_eq!(resolve("/proc/self/../meminfo".as_ref()).ok(), Some(PathBuf::from("/proc/meminfo")));
        assert_eq!(resolve("/usr/./no-such".as_ref()).ok(), Some(PathBuf::from("/usr/no-such")));
        assert_eq!(resolve("/no/such".as_ref()).ok(), Some(PathBuf::from("/no/such")));
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescape(br"a\134b\9\04"), br"a\b\9\04");
    }

    #[test]
    fn reads_a_line_with_escapes() {
        let line = br"36 35 0:45 / /mnt/a\040b rw,nosuid - fuse.s3mount s3://b/p\040q/ ro,user_id=0";
        let mount = MountedAt {
            id: 36,
            device: 45,
            dir: PathBuf::from("/mnt/a b"),
            kind: "fuse.s3mount".into(),
            source: "s3://b/p q/".into(),
        };
        assert_eq!(parse(line), Some(mount));
        let line = b"36 35 0:45 / /mnt/\xff rw shared:1 - tmpfs tmpfs rw";
        assert_eq!(
            parse(line).map(|mount| mount.dir.into_os_string().into_vec()),
            Some(b"/mnt/\xff".to_vec())
        );
    }
}
