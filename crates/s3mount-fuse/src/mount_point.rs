//! The folder at which a bucket is mounted, held by descriptors.
//!
//! A path may lead elsewhere later: who owns a folder above the mount can rename it, and put a link in its place. A
//! daemon of root that mounted or unmounted by the path would then cover, or take down, what is there. So the folder
//! and its parent are held from the check of the folder on, and only a known mount is taken down.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// How long another process may have the folder locked. It does so for the moment of mounting. Who locks it for longer
/// is no daemon.
const LOCKED: Duration = Duration::from_secs(3);

/// How often a lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The folder at which a bucket is to be mounted. It stays the same folder when others rename what lies above it.
#[derive(Debug)]
pub struct MountPoint {
    place: Place,
    /// The folder itself, beneath what is mounted there.
    folder: File,
}

/// A name in a folder that is held: where something is mounted.
#[derive(Debug)]
pub struct Place {
    parent: File,
    name: OsString,
}

/// The kernel's numbers of a mount.
#[derive(Clone, Copy, Debug)]
pub struct MountId {
    /// Its number in mountinfo. The kernel gives the number to the next mount once this one is gone.
    pub number: u64,
    /// A number that no other mount ever gets, if it was asked for and the kernel has one (from Linux 6.8 on).
    unique: Option<u64>,
}

impl MountId {
    /// The mount that has this number in mountinfo now.
    pub fn numbered(number: u64) -> Self {
        Self { number, unique: None }
    }

    pub(crate) fn with_unique(number: u64, unique: Option<u64>) -> Self {
        Self { number, unique }
    }

    pub(crate) fn unique(self) -> Option<u64> {
        self.unique
    }

    /// Whether both are one mount, as far as is known.
    fn is(self, other: Self) -> bool {
        let uniques = self.unique.zip(other.unique);
        self.number == other.number && uniques.is_none_or(|(unique, others)| unique == others)
    }
}

/// Opens a folder, or what is mounted there, without asking the daemon of a mount.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY | flags).open(path)
}

/// The path by which this process finds what `file` stands for, whatever its name is by now.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The mount that a file lies on.
fn id_of(file: &File) -> io::Result<MountId> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    let number = number.ok_or_else(|| io::Error::other("the kernel does not tell the number of a mount"))?;
    Ok(MountId { number, unique: unique_of(file) })
}

/// The number of the mount that a file lies on which no other mount ever gets. An older kernel does not know it.
fn unique_of(file: &File) -> Option<u64> {
    let wanted = StatxFlags::from_bits_retain(libc::STATX_MNT_ID_UNIQUE);
    // The daemon of the mount must not be asked: it may be stopped.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, "", flags, wanted).ok()?;
    StatxFlags::from_bits_retain(found.stx_mask).contains(wanted).then_some(found.stx_mnt_id)
}

impl MountPoint {
    /// Holds the folder `dir`. Its last name may be no symbolic link.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(dir: &Path) -> io::Result<Self> {
        let place = Place::open(dir)?;
        let folder = open(&place.root(), libc::O_NOFOLLOW)?;
        Ok(Self { place, folder })
    }

    /// The path of the folder that was opened, for this process alone.
    pub fn folder(&self) -> PathBuf {
        path_of(&self.folder)
    }

    /// The path that the folder has now, for other processes.
    pub(crate) fn shown(&self) -> io::Result<PathBuf> {
        self.place.shown()
    }

    /// Calls `mount`, which mounts at the folder, unless somebody has mounted there since the folder was opened.
    /// Two processes don't do this at the same time. Returns what it returns, and the mount.
    pub(crate) fn mount<T>(
        self,
        mount: impl FnOnce(&Self) -> io::Result<T>,
    ) -> io::Result<(T, Place, MountId)> {
        let _lock = self.lock();
        if !self.place.id()?.is(id_of(&self.folder)?) {
            let text = "another process has mounted there meanwhile";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let mounted = mount(&self)?;
        let id = self.place.id()?;
        Ok((mounted, self.place, id))
    }

    /// Takes down what is mounted at the folder.
    pub(crate) fn undo(&self) {
        // It fails where nothing is mounted.
        let _ = self.place.id().and_then(|id| self.place.detach(id));
    }

    /// Locks the folder while the result lives. Without a lock where none can be had: who may read a folder may lock
    /// it, too, and that must not keep others from mounting.
    fn lock(&self) -> Option<File> {
        let folder = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(self.folder()).ok()?;
        for _ in 0..LOCKED.as_millis() / LOCK_PAUSE.as_millis() {
            match folder.try_lock() {
                Ok(()) => return Some(folder),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(_)) => return None,
            }
        }
        tracing::warn!("somebody else has the folder locked; mounting all the same");
        None
    }
}

impl Place {
    /// Holds the place of `dir`, whatever is mounted there. It does not keep that in use.
    ///
    /// # Errors
    /// Those of open(2), of the folder above.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the root can't be mounted at"));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        Ok(Self { parent: open(parent, 0)?, name: name.to_owned() })
    }

    /// The numbers of the device that is there now, as `0:42`.
    pub(crate) fn device(&self) -> io::Result<String> {
        // The daemon of the mount must not be asked: that is this process, and it may not answer yet.
        let found = statx(CWD, self.root(), AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
        Ok(format!("{}:{}", found.stx_dev_major, found.stx_dev_minor))
    }

    /// The path of what is there now, for this process alone.
    pub(crate) fn root(&self) -> PathBuf {
        path_of(&self.parent).join(&self.name)
    }

    /// The path that the place has now, for other processes.
    pub(crate) fn shown(&self) -> io::Result<PathBuf> {
        Ok(path_of(&self.parent).read_link()?.join(&self.name))
    }

    /// What is there now, and the mount that it lies on.
    fn top(&self) -> io::Result<(File, MountId)> {
        let top = open(&self.root(), libc::O_NOFOLLOW)?;
        let id = id_of(&top)?;
        Ok((top, id))
    }

    /// The mount that is there now, or that the folder lies on.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn id(&self) -> io::Result<MountId> {
        self.top().map(|(_, id)| id)
    }

    /// Takes this mount out of the tree, also while it is in use. Another mount that is there stays. Returns whether
    /// this mount was there.
    ///
    /// # Errors
    /// Those of umount2(2). `EPERM` says that only fusermount may do it.
    pub fn detach(&self, id: MountId) -> io::Result<bool> {
        let (top, there) = self.top()?;
        if !there.is(id) {
            return Ok(false);
        }
        // This descriptor stands for the mount itself, so no name leads elsewhere. It would keep the mount in use.
        umount2(&path_of(&top), MntFlags::MNT_DETACH)?;
        Ok(true)
    }

    /// Takes this mount down, unless it is in use. Another mount that is there stays.
    ///
    /// # Errors
    /// Those of umount2(2), and `EINVAL` for another mount. `EPERM` says that only fusermount may do it.
    pub fn unmount(&self, id: MountId) -> io::Result<()> {
        if !self.id()?.is(id) {
            return Err(Errno::EINVAL.into());
        }
        // UMOUNT_NOFOLLOW: nobody can rename a folder that is mounted at, but a link could be put in its place once it
        // is not.
        let flags = MntFlags::from_bits_retain(libc::UMOUNT_NOFOLLOW);
        Ok(umount2(&self.root(), flags)?)
    }
}

/// Aborts the connection of this mount, which is at `root`, and leaves the mount where it is.
///
/// # Errors
/// Those of umount2(2). A mount that is gone is no error.
pub fn abort(root: &Path, id: MountId) -> io::Result<()> {
    let root = open(root, libc::O_NOFOLLOW)?;
    if !id_of(&root)?.is(id) {
        return Ok(());
    }
    // This aborts first, and then finds the mount in use: by this file.
    match umount2(&path_of(&root), MntFlags::MNT_FORCE) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::MountPoint;

    #[test]
    fn a_folder_stays_the_same_when_its_path_leads_elsewhere() {
        let home = std::env::temp_dir().join(format!("s3mount-mount-point-{}", std::process::id()));
        fs::create_dir_all(home.join("x/mnt/mine")).expect("a folder");
        fs::create_dir_all(home.join("victim")).expect("a folder");
        let point = MountPoint::open(&home.join("x/mnt")).expect("a folder");
        fs::rename(home.join("x"), home.join("y")).expect("a new name");
        fs::create_dir(home.join("x")).expect("another folder");
        symlink(home.join("victim"), home.join("x/mnt")).expect("a link");
        let names = |path: &std::path::Path| fs::read_dir(path).expect("a folder").count();
        assert_eq!(
            (names(&point.folder()), names(&point.place.root()), names(&home.join("x/mnt"))),
            (1, 1, 0)
        );
        assert_eq!(point.shown().expect("a path"), home.join("y/mnt"));
        MountPoint::open(&home.join("x/mnt")).expect_err("a link");
        fs::remove_dir_all(&home).expect("an end");
    }
}
