//! Whether a file is open or mapped: by any process, or by the kernel for readers of a mount.
//!
//! The kernel gives a write lease, fcntl(2), only to a process that alone has the file open. A map counts as an open
//! file, even after its descriptor was closed. So processes need not tell each other which files they have open, nor
//! ask the kernel for the readers of files that the daemon has passed to it.

#![expect(unsafe_code, reason = "leases are given by fcntl(2) alone")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The command that chooses the signal, which libc does not name.
const F_SETSIG: libc::c_int = 10;

/// Whether another process has the file open or mapped. On a file system without leases, always false.
pub(crate) fn is_open_elsewhere(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    // A process that opens the file while we have the lease waits until we give it back, and we get a signal. The
    // signal chosen here is ignored by default; the usual one ends the process.
    if control(&file, F_SETSIG, libc::SIGURG).is_err() {
        return Ok(false);
    }
    match control(&file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            // A process that was just forked has the descriptor, too, until it runs another program.
            control(&file, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) => Ok(error.kind() == io::ErrorKind::WouldBlock),
    }
}

fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is, and these commands take a number.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::is_open_elsewhere;

    #[test]
    fn who_has_a_file_open_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        assert!(!is_open_elsewhere(&path).expect("no file"));
        std::fs::write(&path, "text").expect("a file");
        assert!(!is_open_elsewhere(&path).expect("a file"));
        for options in [File::options().read(true), File::options().write(true)] {
            let open = options.open(&path).expect("a file");
            assert!(is_open_elsewhere(&path).expect("a file"));
            drop(open);
            assert!(!is_open_elsewhere(&path).expect("a file"));
        }
    }
}
