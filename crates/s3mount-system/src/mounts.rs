//! Reads the machine's mounts from `/proc/thread-self/mountinfo`: a thread may be in a namespace of mounts of its own.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use anyhow::Context as _;
use nix::unistd::{Uid, User, geteuid};
use s3mount_fuse::MountId;

use crate::terminal::{plain, shown};

/// Where the kernel lists the mounts.
const MOUNTINFO: &str = "/proc/thread-self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    /// The kernel's number of the mount. It tells mounts apart that are stacked in one folder.
    pub id: u64,
    /// A number that no other mount ever gets, if it is known.
    pub(crate) unique: Option<u64>,
    /// The number of the mount that its folder lies on.
    pub(crate) parent: u64,
    /// The minor number of its device, by which the kernel names a FUSE connection.
    pub device: u64,
    /// The folder of its file system that it shows: `/`, or another one for a bind mount.
    pub root: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Nobody writes through this mount. Through another one of the same file system, somebody may.
    pub is_read_only: bool,
    /// The type of the mount, such as `fuse.s3mount`.
    pub kind: String,
    /// The source of the mount, such as `s3://bucket/`.
    pub source: String,
    /// The user and the group that have mounted it, if it is one of FUSE.
    pub(crate) owner: Option<(u32, u32)>,
}

impl MountedAt {
    /// The kernel's numbers of the mount.
    pub fn numbers(&self) -> MountId {
        MountId::with_unique(self.id, self.unique)
    }

    /// The user who has mounted it, if it is one of FUSE and he is not this one.
    pub fn other_user(&self) -> Option<String> {
        let uid = self.owner.map(|(uid, _)| Uid::from_raw(uid)).filter(|uid| *uid != geteuid())?;
        let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
        Some(name.map_or_else(|| uid.to_string(), |name| format!("{name} ({uid})")))
    }
}

impl fmt::Display for MountedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ({})", plain(&self.source), shown(&self.dir), plain(&self.kind))
    }
}

/// Checks that the mounts can be read.
///
/// # Errors
/// Says what to do where `/proc` is not mounted, as in a chroot.
pub fn check() -> anyhow::Result<()> {
    File::open(MOUNTINFO).map(drop).context(
        "cannot read /proc/self/mountinfo, by which mounts are found; mount /proc here: mount -t proc proc /proc",
    )
}

/// The path of `dir` as mountinfo has it: absolute and without symbolic links. If `dir` can't be resolved
/// because the daemon of its mount is dead, this resolves only the links before the last name.
pub fn resolve(dir: &Path) -> io::Result<PathBuf> {
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
pub fn mount_at(dir: &Path) -> Option<MountedAt> {
    mounts().into_iter().rfind(|mount| mount.dir == dir)
}

/// The mount with the number `id`, at the path that it has now.
pub fn by_id(id: MountId) -> Option<MountedAt> {
    let found = mounts().into_iter().find(|mount| mount.id == id.number)?;
    // As soon as it is gone, the kernel may give its number, and that of its device, to another.
    (!id.is_gone()).then(|| MountedAt { unique: id.unique(), ..found })
}

/// The mount that holds `dir`: the innermost one whose folder is `dir` or lies above it.
pub fn enclosing(dir: &Path) -> Option<MountedAt> {
    let above = mounts().into_iter().filter(|mount| dir.starts_with(&mount.dir));
    above.max_by_key(|mount| mount.dir.components().count())
}

/// The mounts that lie inside of the mount `id`, and inside of these: they are taken down with it.
pub fn inside(id: u64) -> Vec<MountedAt> {
    let (mut rest, mut ids, mut found) = (mounts(), vec![id], Vec::new());
    // A mount that was moved may come before the one that it lies on.
    loop {
        let next: Vec<_> = rest.extract_if(.., |mount| ids.contains(&mount.parent)).collect();
        if next.is_empty() {
            return found;
        }
        ids.extend(next.iter().map(|mount| mount.id));
        found.extend(next);
    }
}

/// The other mounts of the same file system.
pub fn others_of(mount: &MountedAt) -> Vec<MountedAt> {
    let is_other = |other: &MountedAt| {
        (other.device, &other.kind) == (mount.device, &mount.kind) && other.id != mount.id
    };
    mounts().into_iter().filter(is_other).collect()
}

/// The mount that hides `mount` from who goes along its path: it lies at its folder, or above.
pub fn cover_of(mount: &MountedAt) -> Option<MountedAt> {
    let mounts = mounts();
    let mut under = vec![mount.id, mount.parent];
    while let Some(next) = mounts.iter().find(|above| under.last() == Some(&above.id))
        && !under.contains(&next.parent)
    {
        under.push(next.parent);
    }
    mounts.into_iter().rfind(|other| !under.contains(&other.id) && mount.dir.starts_with(&other.dir))
}

/// All mounts. The names of their folders may be any bytes.
pub fn mounts() -> Vec<MountedAt> {
    let mountinfo = std::fs::read(MOUNTINFO).unwrap_or_default();
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<MountedAt> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    // After a field of its own, which is `-`, the line says what is mounted.
    let [_, kind, source, options @ ..] = fields.get(fields.iter().position(|field| *field == b"-")?..)?
    else {
        return None;
    };
    let path = |at: usize| Some(PathBuf::from(OsString::from_vec(unescape(fields.get(at)?))));
    Some(MountedAt {
        id: number(fields[0])?,
        unique: None,
        parent: number(fields.get(1)?)?,
        device: std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?.1.parse().ok()?,
        root: path(3)?,
        dir: path(4)?,
        is_read_only: fields.get(5)?.split(|byte| *byte == b',').any(|option| option == b"ro"),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: String::from_utf8_lossy(&unescape(source)).into_owned(),
        owner: options.first().and_then(|options| owner(options)),
    })
}

fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The user and the group that the options of a file system of FUSE name.
fn owner(options: &[u8]) -> Option<(u32, u32)> {
    let value = |name: &[u8]| {
        options.split(|byte| *byte == b',').find_map(|option| number(option.strip_prefix(name)?))
    };
    Some((value(b"user_id=")?, value(b"group_id=")?))
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
        let line =
            br"36 35 0:45 /d /mnt/a\040b rw,nosuid - fuse.s3mount s3://b/p\040q/ ro,user_id=0,group_id=7";
        let mount = MountedAt {
            id: 36,
            unique: None,
            parent: 35,
            device: 45,
            root: PathBuf::from("/d"),
            dir: PathBuf::from("/mnt/a b"),
            is_read_only: false,
            kind: "fuse.s3mount".into(),
            source: "s3://b/p q/".into(),
            owner: Some((0, 7)),
        };
        assert_eq!(parse(line), Some(mount));
        let line = b"36 35 0:77 / /mnt ro,nosuid shared:1 - fuse.s3mount s3mount rw,user_id=0";
        assert_eq!(parse(line).map(|mount| (mount.device, mount.is_read_only)), Some((77, true)));
        let line = b"36 35 0:45 / /mnt/\xff rw shared:1 - tmpfs tmpfs rw";
        assert_eq!(
            parse(line).map(|mount| mount.dir.into_os_string().into_vec()),
            Some(b"/mnt/\xff".to_vec())
        );
    }
}
