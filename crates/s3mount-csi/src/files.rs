//! Files of the driver. Only root may read them, and nobody sees one that is half written.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context;
use nix::fcntl::OFlag;
use tempfile::{NamedTempFile, TempDir};

/// What the names of files and folders begin with that are removed as soon as they are done with, and how long those are.
const TEMPORARY: (&str, usize) = (".tmp", 10);

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

/// What is in a file. `None` if something else is there: a folder, or a pipe, which nobody may write to.
///
/// # Errors
/// Those of the file system.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Makes a folder in `dir` that only its owner may enter, and that is removed with what is returned.
pub(crate) fn temporary_folder(dir: &Path) -> io::Result<TempDir> {
    let (prefix, len) = TEMPORARY;
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).rand_bytes(len - prefix.len()).permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(dir)
}

/// Removes what a process that was killed has left in `dir` of temporary files and folders.
pub(crate) fn sweep(dir: &Path) {
    let (prefix, len) = TEMPORARY;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.len() != len || !name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let path = entry.path();
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %path.display(), "cannot remove what a driver before this one has left");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::{read, sweep, temporary_folder};

    #[test]
    fn only_files_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "text").expect("written");
        mkfifo(&path("pipe"), Mode::S_IRWXU).expect("a pipe");
        assert_eq!(read(&path("file")).expect("a file").as_deref(), Some(&b"text"[..]));
        assert_eq!(read(&path("pipe")).expect("no file"), None);
        assert_eq!(read(dir.path()).expect("no file"), None);
        assert!(read(&path("none")).is_err());
    }

    #[test]
    fn what_a_killed_driver_has_left_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let left = temporary_folder(dir.path()).expect("a folder").keep();
        assert_eq!(left.metadata().expect("a folder").permissions().mode() & 0o777, 0o700);
        fs::write(left.join("credentials"), "keys").expect("written");
        fs::write(dir.path().join(".tmpAbCdE1"), "keys").expect("written");
        fs::write(dir.path().join("mount.json"), "{}").expect("written");
        sweep(dir.path());
        let names: Vec<_> = fs::read_dir(dir.path()).expect("a folder").flatten().collect();
        assert_eq!(names.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), ["mount.json"]);
    }
}
