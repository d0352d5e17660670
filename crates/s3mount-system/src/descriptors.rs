//! Files that a process has open without knowing: those of the program that started it.

use std::fs;
use std::os::fd::RawFd;

use nix::unistd::close;

/// Closes all files but the standard streams and `kept`.
///
/// Must be called while the process has one thread, and while nothing has opened a file that is used afterwards.
pub fn close_all_but(kept: &[RawFd]) {
    let Ok(files) = fs::read_dir("/proc/self/fd") else { return };
    // The folder's own descriptor is among them. It is closed by then.
    let files: Vec<RawFd> =
        files.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for file in files.into_iter().filter(|file| *file > 2 && !kept.contains(file)) {
        // It fails for the folder. That is no error.
        let _ = close(file);
    }
}
