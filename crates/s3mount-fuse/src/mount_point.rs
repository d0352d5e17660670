//! The folder at which a bucket is mounted, held by descriptors.
//!
//! A path may lead elsewhere later: who owns a folder above the mount can rename it, and put a link in its place. A
//! daemon of root that mounted or unmounted by the path would then cover, or take down, what is there. So the folder
//! and its parent are held from the check of the folder on, and only a known mount is taken down.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::num::ParseIntError;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// How long another process may have the folder locked. It does so for the moment of mounting. Who locks it for longer
/// is no daemon.
const LOCKED: Duration = Duration::from_secs(3);

/// How often a lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Folder of the kernel's list of FUSE connections, where somebody has mounted it.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The number of statmount(2) on all machines, from Linux 6.8 on.
const STATMOUNT: libc::c_long = 457;

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

    /// The mount of these two numbers.
    pub fn with_unique(number: u64, unique: Option<u64>) -> Self {
        Self { number, unique }
    }

    /// The number that no other mount ever gets.
    pub fn unique(self) -> Option<u64> {
        self.unique
    }

    /// Whether the mount is known to be gone. Then another one may have its number, and that of its device.
    pub fn is_gone(self) -> bool {
        self.unique.is_some_and(|unique| is_in_tree(unique) == Some(false))
    }

    /// Whether both are one mount, as far as is known.
    fn is(self, other: Self) -> bool {
        let uniques = self.unique.zip(other.unique);
        self.number == other.number && uniques.is_none_or(|(unique, others)| unique == others)
    }
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unique {
            Some(unique) => write!(f, "{}/{unique}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

impl FromStr for MountId {
    type Err = ParseIntError;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (number, unique) =
            text.split_once('/').map_or((text, None), |(number, unique)| (number, Some(unique)));
        Ok(Self { number: number.parse()?, unique: unique.map(str::parse).transpose()? })
    }
}

/// Whether the mount with this unique number is in the tree. `None` if the kernel does not tell.
#[expect(unsafe_code, reason = "no crate has this system call")]
fn is_in_tree(unique: u64) -> Option<bool> {
    /// The first version of `struct mnt_id_req`.
    #[repr(C)]
    struct Request {
        size: u32,
        spare: u32,
        mount: u64,
        wanted: u64,
    }
    let request = Request { size: 24, spare: 0, mount: unique, wanted: 0 };
    let mut answer = [0_u64; 128];
    // SAFETY: the kernel reads the request, and writes no more than the answer has room for.
    let result =
        unsafe { libc::syscall(STATMOUNT, &raw const request, answer.as_mut_ptr(), size_of_val(&answer), 0) };
    match Errno::result(result) {
        Ok(_) => Some(true),
        Err(Errno::ENOENT) => Some(false),
        Err(_) => None,
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
    // While it is open, no other mount gets its numbers.
    let root = open(root, libc::O_NOFOLLOW)?;
    if !id_of(&root)?.is(id) {
        return Ok(());
    }
    // Who has mounted it may do this, also without privileges.
    let found = statx(&root, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    if std::fs::write(Path::new(CONNECTIONS).join(found.stx_dev_minor.to_string()).join("abort"), "1").is_ok()
    {
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

    use super::{MountId, MountPoint, Place};

    #[test]
    fn a_mount_is_gone_once_another_could_have_its_number() {
        let there = Place::open(std::path::Path::new("/proc")).and_then(|place| place.id()).expect("a mount");
        assert!(!there.is_gone(), "{there}");
        assert_eq!(there.to_string().parse::<MountId>().expect("numbers").unique(), there.unique());
        // No mount has had these numbers yet.
        let other = MountId::with_unique(there.number, there.unique().map(|unique| unique + (1 << 40)));
        assert_eq!(other.is_gone(), there.unique().is_some());
        assert!(!MountId::numbered(there.number).is_gone());
    }

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
