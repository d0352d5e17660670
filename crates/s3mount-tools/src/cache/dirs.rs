//! The folders that a command works on.

use std::path::PathBuf;

use anyhow::ensure;
use s3mount_cache::CacheDir;
use s3mount_system::probe::check_within;

/// The folders to work on, and how to tell the result.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Dirs {
    /// Folder that mounts are given with --cache; several, if they are given several.
    #[arg(value_name = "DIR", required = true)]
    pub(super) dirs: Vec<PathBuf>,

    /// Write the result as JSON, one object on each line.
    #[arg(long)]
    pub(super) json: bool,
}

impl Dirs {
    /// Opens the folders.
    pub(super) fn open(&self) -> anyhow::Result<Vec<CacheDir>> {
        let real = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let all: Vec<PathBuf> = self.dirs.iter().map(real).collect();
        for (index, dir) in self.dirs.iter().enumerate() {
            let shown = dir.display();
            ensure!(!all[..index].contains(&all[index]), "{shown} is given twice; name each folder once");
        }
        let open = |dir: &PathBuf| {
            check_within(dir)?;
            Ok(CacheDir::open(dir)?)
        };
        self.dirs.iter().map(open).collect()
    }
}
