//! A log in a file, which has a bound.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;

/// The length of a file in bytes. A log has two files at most: the one that is written, and the one before.
const MOST_BYTES: u64 = 16 << 20;

/// How many names are tried for a new log: one for each daemon that may begin in the same second.
const MOST_TURNS: u32 = 1000;

/// The end of the name of the file before.
const BEFORE: &str = ".1";

/// A log. Its file is locked while it is written.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// The most that `len` may be.
    most: u64,
    /// The one who wrote before had the lock.
    is_others: bool,
}

/// Who may write to a file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// One process.
    One,
    /// Another one is about to end, and writes its last lines.
    Successor,
}

/// Opens a new file. Other users may write to a folder such as /tmp, so this opens no file and no link of theirs.
fn create(path: &Path) -> io::Result<File> {
    let file = File::options().create_new(true).append(true).mode(0o640).open(path)?;
    // Without a lock, the file may be deleted when there are many.
    let _ = file.try_lock();
    Ok(file)
}

impl LogFile {
    /// Begins a log in a folder, which is made if it is missing.
    pub(super) fn begin(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let pid = std::process::id();
        // Daemons of two pid namespaces may have one number, and begin in one second.
        let name = |turn: u32| {
            directory.join(match turn {
                0 => format!("s3mount-{now}-{pid}.log"),
                _ => format!("s3mount-{now}-{pid}-{turn}.log"),
            })
        };
        let mut turn = 0;
        loop {
            let path = name(turn);
            match create(&path) {
                Ok(file) => return Ok(Self { path, file, len: 0, most: MOST_BYTES, is_others: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && turn < MOST_TURNS => turn += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Goes on with a file of at most `most` bytes, or makes it. A pipe is refused: who opens or writes one waits for its
    /// reader. So is a file that another process writes, if `by` says so: each of two would move the lines of the other away
    /// when it is full.
    ///
    /// # Errors
    /// Those of the file; `WouldBlock` for one that another process writes.
    pub(crate) fn open(path: &Path, most: u64, by: Writers) -> io::Result<Self> {
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let mut options = File::options();
        let file = options.create(true).read(true).append(true).mode(0o640).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() && !found.file_type().is_char_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        // A device keeps no lines. Some file systems have no locks.
        let lock = if found.is_file() { file.try_lock() } else { Ok(()) };
        let is_others = matches!(lock, Err(TryLockError::WouldBlock));
        if is_others && by == Writers::One {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = found.len();
        let mut log = Self { path: path.to_owned(), file, len, most, is_others };
        // Whoever wrote before may have been killed, or the disk was full.
        let mut last = [b'\n'];
        if found.is_file() && len > 0 {
            log.file.read_exact_at(&mut last, len - 1)?;
        }
        if last != [b'\n'] {
            log.add(b"\n")?;
        }
        Ok(log)
    }

    /// Begins a new file if somebody has moved this one away. Takes the lock when the one who wrote before has ended.
    pub(crate) fn follow(&mut self) {
        self.is_others = self.is_others && self.file.try_lock().is_err();
        let is_this = |found: Metadata, own: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        let is_there = match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(own)) => is_this(found, own),
            (Err(error), Ok(_)) => error.kind() != io::ErrorKind::NotFound,
            (_, Err(_)) => true,
        };
        if !is_there && let Ok(next) = Self::open(&self.path, self.most, Writers::One) {
            *self = next;
        }
    }

    /// The file that is written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Those of the disk: the line is lost, and no part of it is in the file.
    pub(crate) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        if self.len + line.len() as u64 > self.most {
            self.turn();
        }
        let mut written = 0;
        while written < line.len() {
            match self.file.write(&line[written..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if written > 0 {
                        let len = self.file.metadata()?.len();
                        self.file.set_len(len.saturating_sub(written as u64))?;
                    }
                    return Err(error);
                }
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
            }
        }
        self.len += line.len() as u64;
        Ok(())
    }

    /// Begins a new file, and keeps the one that is full in the place of the one before.
    fn turn(&mut self) {
        let mut before = self.path.clone().into_os_string();
        before.push(BEFORE);
        let next = fs::rename(&self.path, before).and_then(|()| create(&self.path));
        // Without a new file, the old one is emptied.
        match next {
            Ok(file) => self.file = file,
            Err(_) => drop(self.file.set_len(0)),
        }
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use s3mount_system::logs::{MOST_FILES, tidy};

    use super::{LogFile, MOST_BYTES};

    #[test]
    fn logs_that_begin_in_one_second_have_names_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let logs: Vec<_> = (0..5).map(|_| LogFile::begin(folder.path()).expect("a log")).collect();
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), logs.len());
    }

    #[test]
    fn a_log_has_two_files_at_most() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = LogFile::begin(&folder.path().join("log")).expect("a log");
        let line = vec![b'x'; 1 << 20];
        for _ in 0..50 {
            log.add(&line).expect("room");
        }
        let lengths: Vec<_> = fs::read_dir(folder.path().join("log"))
            .expect("a folder")
            .map(|entry| entry.expect("a file").metadata().expect("its length").len())
            .collect();
        assert_eq!(lengths.len(), 2);
        assert!(lengths.iter().all(|len| *len <= MOST_BYTES) && lengths.contains(&MOST_BYTES), "{lengths:?}");
        assert_eq!(fs::metadata(log.path()).expect("a file").len(), 2 << 20);
    }

    #[test]
    fn old_logs_go_and_those_that_are_written_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = LogFile::begin(folder.path()).expect("a log");
        for number in 0..2 * MOST_FILES {
            fs::write(folder.path().join(format!("s3mount-1-{number}.log")), "").expect("a file");
        }
        fs::write(folder.path().join("notes"), "").expect("a file of the user");
        tidy(folder.path());
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert!((MOST_FILES + 1..=MOST_FILES + 2).contains(&left), "{left}");
        assert!(log.path().exists() && folder.path().join("notes").exists());
    }
}
