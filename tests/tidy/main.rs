//! What `docs/ARCHITECTURE.md` says of the code's structure, and `docs/SEMANTICS.md` of its tests, compared
//! with the files.

mod documents;
mod door;
mod edges;
mod modules;
mod names;
mod promises;
mod source;
mod wrappers;

use std::path::{Path, PathBuf};

/// All files below `folder` whose names end in `.extension`, in the order of their paths.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}
