//! The disk cache that the flags ask for.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use s3mount_cache::DiskConfig;

use super::store::Store;
use crate::flags::mount::{MountArgs, Verify};
use crate::flags::size::Size;

/// The share of the memory limit that bytes may take which wait to be written to the disk. With an eighth, a
/// disk of 2 GB/s drops a fifth of what 8 readers of 1.6 GB/s bring in a first epoch, and with a quarter 2 %:
/// bytes come in bursts, and writers get a processor later where none is free.
const QUEUE_SHARE: u64 = 4;

/// The settings of the disk cache, if the flags ask for one, for a mount at `mount_dir`. It is unset
/// if this process does not mount.
pub(crate) fn disk(
    args: &MountArgs,
    store: &Store,
    mount_dir: Option<&Path>,
    memory_limit_bytes: u64,
    part_bytes: u64,
) -> anyhow::Result<Option<DiskConfig>> {
    if args.cache.is_empty() {
        return Ok(None);
    }
    let dirs: Vec<PathBuf> = args.cache.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
    for (index, dir) in dirs.iter().enumerate() {
        let shown = dir.display();
        ensure!(!dirs[..index].contains(dir), "--cache {shown} is given twice; name each folder once");
        ensure!(
            mount_dir.is_none_or(|mount| !dir.starts_with(mount)),
            "--cache {shown} lies inside of the mount at {}; name a folder outside of it",
            mount_dir.unwrap_or(Path::new("")).display()
        );
    }
    if let Some(size) = args.max_cache_size {
        let least = part_bytes * dirs.len() as u64;
        ensure!(
            size.0 >= least,
            "--max-cache-size {size} is too small: it needs at least {}, one part for each folder; leave it out \
             to use all but 5 % of the disk",
            Size(least)
        );
    }
    Ok(Some(DiskConfig {
        dirs,
        max_bytes: args.max_cache_size.map(|size| size.0),
        source: store.identity(),
        queue_bytes: memory_limit_bytes / QUEUE_SHARE,
        only_compared: args.verify == Verify::Whole,
    }))
}
