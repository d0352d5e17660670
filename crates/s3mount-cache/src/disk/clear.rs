//! Empties a cache directory.

use std::io;
use std::path::Path;

use crate::disk::clock::file_time;
use crate::disk::evict::limit;
use crate::disk::evict::pass::Pass;
use crate::disk::layout::Hash;
use crate::disk::names::listings::{self, UNFINISHED_LISTING};
use crate::disk::place;
use crate::disk::scan;
use crate::disk::walk::{CacheDir, WalkError, failed, missing};

/// The numbers of what [`CacheDir::clear`] deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// How many objects.
    pub objects: u64,
    /// How many bytes of the disk they took.
    pub bytes: u64,
    /// How many objects stay, because mounts are filling them.
    pub filling: u64,
}

impl CacheDir {
    /// Deletes all files that the cache has put into the directory, and nothing else. While mounts use the directory,
    /// it keeps what they need: the marker, the folders, and the objects that they are filling. `on_shard` is called
    /// after each shard.
    ///
    /// # Errors
    /// When something can't be deleted.
    pub fn clear(&self, mut on_shard: impl FnMut(&Cleared)) -> Result<Cleared, WalkError> {
        let layout = &self.layout;
        let mut cleared = Cleared::default();
        for number in 0..Self::SHARDS {
            for version in self.shard(number)? {
                let path = self.file_of(&version);
                let removed = scan::remove(layout, &version.hash);
                let removed = removed.map_err(|error| failed("delete", &path, error))?;
                cleared.objects += u64::from(removed.bytes > 0);
                cleared.bytes += removed.bytes;
                cleared.filling += u64::from(removed.is_filling);
                self.change_counts(|counts| counts.remove(removed.bytes))?;
            }
            on_shard(&cleared);
        }
        for number in 0..Self::SHARDS {
            let listings = self.listings(number)?;
            self.clear_folder(&listings::folder(layout, number), false)?;
            self.change_counts(|counts| counts.replace_listing(listings.bytes, 0))?;
        }
        // A mount may have opened the directory meanwhile.
        let lock = limit::lock_unused(layout).map_err(|error| failed("open", &layout.limit(), error))?;
        if lock.is_some() {
            self.clear_rest()?;
        } else {
            self.count_anew()?;
        }
        Ok(cleared)
    }

    /// Counts the remaining bytes anew, because the old count may be wrong.
    fn count_anew(&self) -> Result<(), WalkError> {
        let Some(before) = self.counts()? else { return Ok(()) };
        let mut pass = Pass::new(before);
        while !pass.is_over() {
            pass.next(&self.layout, file_time())
                .map_err(|error| failed("count the bytes in", self.layout.root(), error))?;
        }
        let corrected = self.usage.change(|counts| pass.correct(counts));
        corrected.map_err(|error| failed("change", &self.layout.usage(), error))
    }

    /// Deletes also the files that mounts need. The caller's lock keeps mounts out meanwhile. The marker is deleted
    /// last: without it, no mount accepts a directory that is not empty.
    pub(super) fn clear_rest(&self) -> Result<(), WalkError> {
        let layout = &self.layout;
        for number in 0..Self::SHARDS {
            self.clear_folder(&layout.shard(number), true)?;
            self.clear_folder(&listings::folder(layout, number), true)?;
        }
        self.remove_folder(&layout.objects())?;
        self.remove_folder(&layout.names())?;
        self.clear_unfinished()?;
        let files = [layout.pace(), layout.ghosts(), layout.durable(), layout.usage(), layout.lock()];
        for path in files {
            self.remove_file(&path)?;
        }
        // The path gives the same number again.
        if place::is_drawn_again(&self.io, layout) {
            self.remove_file(&layout.number())?;
        }
        self.remove_file(&layout.limit())?;
        self.remove_file(&layout.marker())
    }

    fn remove_file(&self, path: &Path) -> Result<(), WalkError> {
        self.io.remove(path).map(drop).map_err(|error| failed("delete", path, error))
    }

    /// Deletes the files in `folder` that the cache has made, and the folder if nothing else is in it. Deletes
    /// unfinished listings only if `total`: then no mount uses the directory.
    fn clear_folder(&self, folder: &Path, total: bool) -> Result<(), WalkError> {
        let listed = std::fs::read_dir(folder).map(Some).or_else(missing);
        let Some(entries) = listed.map_err(|error| failed("list", folder, error))? else { return Ok(()) };
        for entry in entries {
            let entry = entry.map_err(|error| failed("list", folder, error))?;
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.get(..64));
            let is_unfinished = name.to_str().is_some_and(|name| name.starts_with(UNFINISHED_LISTING));
            if (total && is_unfinished) || digits.and_then(Hash::parse).is_some() {
                self.remove_file(&entry.path())?;
            }
        }
        self.remove_folder(folder)
    }

    /// Deletes files in the directory itself that a killed mount left unfinished.
    fn clear_unfinished(&self) -> Result<(), WalkError> {
        let root = self.path();
        for entry in std::fs::read_dir(root).map_err(|error| failed("list", root, error))? {
            let path = entry.map_err(|error| failed("list", root, error))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_ours =
                ["durable.", "s3mount-cache.", "probe."].iter().any(|start| name.starts_with(start));
            if is_ours && name.ends_with(".new") || name == "probe" {
                self.remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Deletes a folder that is empty.
    fn remove_folder(&self, folder: &Path) -> Result<(), WalkError> {
        match std::fs::remove_dir(folder) {
            Ok(()) => Ok(()),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) =>
            {
                Ok(())
            }
            Err(error) => Err(failed("delete", folder, error)),
        }
    }
}
