//! Whether a directory can be used as a cache.

use std::io;
use std::path::Path;

use crate::disk::error::DiskError;
use crate::disk::io::{Io, make_folder};
use crate::disk::layout::{Layout, MARKER_TEXT};

/// Makes the directory and what lies in it, or checks what is there.
pub(crate) fn prepare(io: &Io, layout: &Layout) -> Result<(), DiskError> {
    let root = layout.root();
    make_folder(root).map_err(|error| DiskError::io("create", root, error))?;
    if !root.is_dir() {
        return Err(DiskError::NotADirectory(root.to_owned()));
    }
    match io.load(&layout.marker()) {
        Ok(text) if text == MARKER_TEXT.as_bytes() => {}
        Ok(text) => {
            let layout = String::from_utf8_lossy(&text).trim().to_owned();
            return Err(DiskError::Layout { path: root.to_owned(), layout });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !is_empty(root).map_err(|error| DiskError::io("list", root, error))? {
                return Err(DiskError::NotOurs(root.to_owned()));
            }
            let marker = layout.marker();
            io.replace(&marker, MARKER_TEXT.as_bytes())
                .map_err(|error| DiskError::io("create", &marker, error))?;
        }
        Err(error) => return Err(DiskError::io("read", &layout.marker(), error)),
    }
    for folder in [layout.objects(), layout.names()] {
        make_folder(&folder).map_err(|error| DiskError::io("create", &folder, error))?;
    }
    Ok(())
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

/// Whether nothing lies in `folder` but what a file system puts there by itself, and the marker file that
/// another process is making now.
fn is_empty(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name != "lost+found" && !name.starts_with("s3mount-cache") {
            return Ok(false);
        }
    }
    Ok(true)
}
