//! Folders with the logs of many daemons.

use std::fs::{self, File};
use std::path::Path;

/// The most files in a folder that is tidied.
pub const MOST_FILES: usize = 64;

/// Deletes the oldest logs in a folder where there are many, except those that are being written.
pub fn tidy(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let logs =
        entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"s3mount-"));
    let mut logs: Vec<_> =
        logs.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    logs.sort();
    let spare = logs.len().saturating_sub(MOST_FILES);
    for (_, path) in &logs[..spare] {
        if File::open(path).is_ok_and(|file| file.try_lock().is_ok()) {
            // It fails for one that another daemon has just deleted.
            let _ = fs::remove_file(path);
        }
    }
}
