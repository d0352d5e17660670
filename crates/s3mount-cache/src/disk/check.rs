//! Whether a directory can be used as a cache.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::disk::error::DiskError;
use crate::disk::io::{Io, make_folder};
use crate::disk::layout::{Layout, MARKER_TEXT, is_marker};

/// The permissions of users other than the owner.
const OTHERS: u32 = 0o077;

/// File systems on another machine or in another process, by the number that statfs(2) gives them.
const DISTANT: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9P"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
];

/// File systems in memory.
const IN_MEMORY: &[(u32, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// A note for the user about a cache directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskNote {
    /// It lies on a file system that is slower than a disk, or that may hang with its server.
    Distant {
        /// The directory.
        path: PathBuf,
        /// The file system.
        name: &'static str,
    },
    /// It lies in memory.
    InMemory {
        /// The directory.
        path: PathBuf,
        /// The file system.
        name: &'static str,
    },
    /// It is the directory of another path, which is used.
    Twice {
        /// The directory.
        path: PathBuf,
        /// The other path.
        other: PathBuf,
    },
    /// This directory can't be used, but others can.
    LeftOut {
        /// Why, and what to do.
        why: String,
    },
}

impl DiskNote {
    /// The note for the user about `dir` before it becomes a cache. Creates nothing there.
    ///
    /// # Errors
    /// When its file system can't be determined.
    pub fn of(dir: &Path) -> Result<Option<Self>, DiskError> {
        kind(dir)
    }
}

impl fmt::Display for DiskNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Distant { path, name } => write!(
                f,
                "--cache {path:?} lies on {name}, not on a local disk: reads from it may be slower than from \
                 the store, and hang with its server; give a directory on a local disk"
            ),
            Self::InMemory { path, name } => write!(
                f,
                "--cache {path:?} lies in memory ({name}): its files count as memory in use, and are lost \
                 when the machine restarts"
            ),
            Self::Twice { path, other } => {
                write!(f, "--cache {path:?} is the same folder as --cache {other:?}; it is used once")
            }
            Self::LeftOut { why } => {
                write!(f, "{why}; until the next mount, the other folders of --cache hold its objects")
            }
        }
    }
}

/// Creates the directory and its contents, or checks the existing ones.
pub(crate) fn prepare(io: &Io, layout: &Layout) -> Result<Option<DiskNote>, DiskError> {
    prepare_as(io, layout, |_| false)
}

/// Like [`prepare`], for a directory that this process has checked before: contents without a marker are left over from
/// the cache, which another process has just cleared.
pub(crate) fn prepare_again(io: &Io, layout: &Layout) -> Result<Option<DiskNote>, DiskError> {
    prepare_as(io, layout, |_| true)
}

/// Like [`prepare`], for a directory in the place of one that this process has used. Housekeepers, which recreate
/// deleted files, may have written their files there already.
pub(crate) fn prepare_in_place(io: &Io, layout: &Layout) -> Result<Option<DiskNote>, DiskError> {
    prepare_as(io, layout, Layout::is_of_housekeepers)
}

/// Without a marker, the directory may hold only files whose names `may_lie` accepts, or exactly a cache whose marker
/// was deleted.
fn prepare_as(
    io: &Io,
    layout: &Layout,
    may_lie: impl Fn(&str) -> bool,
) -> Result<Option<DiskNote>, DiskError> {
    let root = layout.root();
    match make_folder(root) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DiskError::NoParent(root.to_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(DiskError::NotADirectory(root.to_owned()));
        }
        Err(error) => return Err(DiskError::io("create", root, error)),
    }
    let metadata = std::fs::metadata(root).map_err(|error| DiskError::io("look at", root, error))?;
    check_owner(root, &metadata, rustix::process::geteuid().as_raw())?;
    let note = kind(root)?;
    match io.load(&layout.marker()) {
        Ok(text) if text == MARKER_TEXT.as_bytes() => {}
        Ok(text) if is_marker(&text) => {
            let layout = String::from_utf8_lossy(&text).trim().to_owned();
            return Err(DiskError::Layout { path: root.to_owned(), layout });
        }
        Ok(_) => return Err(DiskError::Marker { path: root.to_owned(), marker: layout.marker() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_ours = has_only(root, may_lie).and_then(|is_empty| Ok(is_empty || is_like_cache(layout)?));
            if !is_ours.map_err(|error| DiskError::io("list", root, error))? {
                return Err(DiskError::NotOurs(root.to_owned()));
            }
            let marker = layout.marker();
            io.replace(&marker, MARKER_TEXT.as_bytes())
                .map_err(|error| DiskError::io("create", &marker, error))?;
        }
        Err(error) => return Err(DiskError::io("read", &layout.marker(), error)),
    }
    make_folders(layout).map_err(|error| DiskError::io("create folders in", root, error))?;
    Ok(note)
}

/// Creates the folders that every layout has.
pub(crate) fn make_folders(layout: &Layout) -> io::Result<()> {
    make_folder(&layout.objects())?;
    make_folder(&layout.names())
}

/// Users who may write to the directory could plant bytes; users who may read it could see the bucket's bytes.
fn check_owner(root: &Path, metadata: &Metadata, user: u32) -> Result<(), DiskError> {
    let path = root.to_owned();
    if !metadata.is_dir() {
        return Err(DiskError::NotADirectory(path));
    }
    if metadata.uid() != user {
        return Err(DiskError::Owner { path, owner: metadata.uid(), user });
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(DiskError::Open { path, mode: metadata.mode() & 0o777 });
    }
    Ok(())
}

/// The note about the file system, if any.
fn kind(root: &Path) -> Result<Option<DiskNote>, DiskError> {
    let found = rustix::fs::statfs(root).map_err(|error| DiskError::io("look at", root, error.into()))?;
    // The number has 32 bits, whatever its type.
    let found = found.f_type as u32;
    let of = |list: &[(u32, &'static str)]| {
        list.iter().find(|(number, _)| *number == found).map(|(_, name)| *name)
    };
    let path = || root.to_owned();
    let distant = of(DISTANT).map(|name| DiskNote::Distant { path: path(), name });
    Ok(distant.or_else(|| of(IN_MEMORY).map(|name| DiskNote::InMemory { path: path(), name })))
}

/// Writes a small file, reads it and deletes it.
pub(crate) fn probe(io: &Io, layout: &Layout) -> io::Result<()> {
    const TEXT: &[u8] = b"s3mount\n";
    let path = layout.root().join("probe");
    io.replace(&path, TEXT)?;
    let is_right = io.load(&path)? == TEXT;
    io.remove(&path)?;
    if is_right { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether `folder` holds only files that `may_lie` accepts, files that a file system creates by itself, and the marker
/// file that another process is creating now.
fn has_only(folder: &Path, may_lie: impl Fn(&str) -> bool) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name != "lost+found" && !name.starts_with("s3mount-cache") && !may_lie(&name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the directory holds a cache of this layout, and nothing else. A cache always has files of housekeepers.
fn is_like_cache(layout: &Layout) -> io::Result<bool> {
    let has_files = [layout.usage(), layout.limit(), layout.pace()].iter().all(|path| path.is_file());
    let is_ours = |name: &str| {
        Layout::is_of_housekeepers(name)
            || ["v1", "names", "probe"].contains(&name)
            || name.starts_with("probe.")
    };
    let is_shard = |name: &str| name.len() == 3 && u16::from_str_radix(name, 16).is_ok();
    let has_shards = |folder: PathBuf| if folder.exists() { has_only(&folder, is_shard) } else { Ok(true) };
    Ok(has_files
        && has_only(layout.root(), is_ours)?
        && has_shards(layout.objects())?
        && has_shards(layout.names())?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::{DiskNote, check_owner, prepare};
    use crate::disk::io::Io;
    use crate::disk::layout::Layout;

    fn refusal(path: &Path) -> String {
        let error = prepare(&Io::new(), &Layout::new(path)).expect_err("it is refused");
        error.to_string().replace(&path.display().to_string(), "DIR")
    }

    #[test]
    fn a_directory_is_made_with_what_lies_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache");
        for _ in 0..2 {
            prepare(&Io::new(), &Layout::new(&path)).expect("it can be used");
        }
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        assert_eq!(
            fs::read_to_string(path.join("s3mount-cache")).expect("a marker"),
            "s3mount cache, layout 1\n"
        );
        // The root of a file system is as good as empty.
        let fresh = folder.path().join("fresh");
        fs::create_dir_all(fresh.join("lost+found")).expect("made");
        fs::set_permissions(&fresh, Permissions::from_mode(0o700)).expect("changed");
        prepare(&Io::new(), &Layout::new(&fresh)).expect("it can be used");
    }

    #[test]
    fn what_is_no_cache_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache");
        assert_eq!(
            refusal(&path.join("below")).replace("DIR/below", "DIR"),
            "--cache \"DIR\" does not exist, and neither does the directory above it; create that first"
        );
        fs::write(&path, "text").expect("written");
        assert_eq!(
            refusal(&path),
            "--cache \"DIR\" is not a directory; give the path of a directory, or of one that can be created"
        );
        fs::remove_file(&path).expect("deleted");
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, Permissions::from_mode(0o750)).expect("changed");
        assert_eq!(
            refusal(&path),
            "--cache \"DIR\" is open to other users (mode 750), who could read the bucket's data; run \
             `chmod 700 DIR`"
        );
        fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("changed");
        fs::write(path.join("thesis.tex"), "text").expect("written");
        assert_eq!(
            refusal(&path),
            "--cache \"DIR\" is not empty and is not a cache of s3mount; give an empty directory"
        );
        assert!(path.join("thesis.tex").exists() && !path.join("s3mount-cache").exists(), "it is left alone");
        fs::write(path.join("s3mount-cache"), "s3mount cache, layout 7\n").expect("written");
        assert_eq!(
            refusal(&path),
            "--cache \"DIR\" has the layout \"s3mount cache, layout 7\", which this version of s3mount does \
             not know; give another directory, or delete this one"
        );
        let metadata = fs::metadata(&path).expect("it is there");
        let error = check_owner(&path, &metadata, 4711).expect_err("it is refused").to_string();
        assert!(error.ends_with("this process runs as user 4711; give a directory of that user"), "{error}");
    }

    #[test]
    fn a_cache_whose_marker_is_damaged_is_used_again_once_that_is_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache");
        let layout = Layout::new(&path);
        prepare(&Io::new(), &layout).expect("it can be used");
        fs::create_dir(layout.shard(7)).expect("made");
        for file in
            [layout.usage(), layout.limit(), layout.pace(), layout.number(), path.join("durable.9.new")]
        {
            fs::write(file, "").expect("written");
        }
        for damaged in
            ["s3mount bache, layout 1\n", "s3mount cache, layout 1", "s3mount cache, layout q\n", ""]
        {
            fs::write(layout.marker(), damaged).expect("written");
            assert_eq!(
                refusal(&path),
                "--cache \"DIR\" is a cache whose marker file is damaged; delete \"DIR/s3mount-cache\", and it is \
                 used again"
            );
        }
        fs::remove_file(layout.marker()).expect("deleted");
        for other in [path.join("thesis"), layout.objects().join("api"), layout.names().join("0001")] {
            fs::write(&other, "text").expect("written");
            assert!(refusal(&path).contains("is not a cache of s3mount"), "{other:?}");
            fs::remove_file(&other).expect("deleted");
        }
        fs::rename(layout.limit(), path.join("lock")).expect("renamed");
        assert!(refusal(&path).contains("is not a cache of s3mount"), "no mount has ever used it");
        fs::rename(path.join("lock"), layout.limit()).expect("renamed");
        prepare(&Io::new(), &layout).expect("it can be used");
        assert!(layout.marker().exists() && layout.shard(7).exists());
    }

    #[test]
    fn a_directory_in_memory_is_said_to_be_there() {
        let shared = Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(shared).expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("changed");
        let note = prepare(&Io::new(), &Layout::new(folder.path())).expect("it can be used");
        let path: PathBuf = folder.path().to_owned();
        assert_eq!(note, Some(DiskNote::InMemory { path, name: "tmpfs" }));
    }
}
