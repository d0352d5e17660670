//! Files of the driver. Only root may read them, and nobody sees one that is half written.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context;
use tempfile::NamedTempFile;

/// Makes a folder that only its owner may enter, with those above it.
pub(crate) fn private_folder(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make the folder {}", path.display()))
}

/// Writes a file, or replaces it, at once and durably.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("/"));
        // Only its owner may read it.
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
