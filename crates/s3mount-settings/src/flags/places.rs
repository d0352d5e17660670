//! Files and folders that a mount can't begin without.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use super::mount::MountArgs;

impl MountArgs {
    /// Checks that the files and folders which the flags name are there. Relative paths begin where the
    /// mount was started, and are not looked at.
    ///
    /// # Errors
    /// Names the flag whose file, or folder, is gone.
    pub fn check_places(&self) -> anyhow::Result<()> {
        let at = |path: &PathBuf| path.is_absolute().then(|| path.clone());
        // That of the socket.
        let folder = |path: PathBuf| path.parent().map(Path::to_owned);
        for (flag, path) in [
            ("--write-spool", self.writing.write_spool.as_ref().and_then(at)),
            ("--write-behind", self.writing.write_behind.as_ref().and_then(at)),
            ("--control-socket", self.control_socket.as_ref().and_then(at).and_then(folder)),
        ] {
            if let Some(path) = path {
                ensure!(path.is_dir(), "{flag}: the folder {} is gone", path.display());
            }
        }
        // Folders that are made where they are missing.
        let made = self.cache.iter().map(|path| ("--cache", path));
        for (flag, path) in made.chain(self.writing.journal.journal.as_ref().map(|path| ("--journal", path)))
        {
            let Some(path) = at(path) else { continue };
            ensure!(path.is_dir() || !path.exists(), "{flag}: {} is no folder any more", path.display());
        }
        if let Some(path) = self.access.ca_bundle.as_ref().and_then(at) {
            ensure!(path.is_file(), "--ca-bundle: the file {} is gone", path.display());
        }
        Ok(())
    }
}
