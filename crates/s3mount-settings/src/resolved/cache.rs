//! The disk cache that the flags ask for.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use nix::sys::statvfs::statvfs;
use s3mount_cache::DiskConfig;

use crate::flags::mount::{MountArgs, Verify};
use crate::flags::size::Size;

/// The share of the memory limit that bytes may take which wait to be written to the disk. With an eighth, a
/// disk of 2 GB/s drops a fifth of what 8 readers of 1.6 GB/s bring in a first epoch, and with a quarter 2 %:
/// bytes come in bursts, and writers get a processor later where none is free.
const QUEUE_SHARE: u64 = 4;

/// The folder, or the one that it would be made in.
pub fn there(dir: &Path) -> &Path {
    let above = || dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if dir.exists() { dir } else { above() }
}

/// How large the disk of the folder is; 0 if nobody knows.
pub fn total_bytes(dir: &Path) -> u64 {
    statvfs(there(dir)).map_or(0, |disk| disk.blocks().saturating_mul(disk.fragment_size()))
}

/// How many of `max_bytes` each of the folders may take: they share them by the sizes of their disks.
pub fn shares(dirs: &[PathBuf], max_bytes: u64) -> Vec<u64> {
    let sizes: Vec<u64> = dirs.iter().map(|dir| total_bytes(dir).max(1)).collect();
    let all: u128 = sizes.iter().copied().map(u128::from).sum();
    sizes.into_iter().map(|size| (u128::from(max_bytes) * u128::from(size) / all) as u64).collect()
}

/// Fails if a folder has no room for a part.
fn check_shares(max: Size, shares: &[(PathBuf, u64)], part_bytes: u64) -> anyhow::Result<()> {
    let Some((dir, share)) = shares.iter().min_by_key(|(_, share)| *share) else { return Ok(()) };
    let (part, advice) = (Size(part_bytes), "leave it out to use all but 5 % of the disk");
    ensure!(
        shares.len() > 1 || *share >= part_bytes,
        "--max-cache-size {max} is too small: it needs at least {part}, for one part; {advice}"
    );
    ensure!(
        *share >= part_bytes,
        "--max-cache-size {max} is too small: by the sizes of the disks, {share} bytes of it are for --cache {}, and \
         each folder needs at least {part}, for one part; {advice}, or that folder",
        dir.display()
    );
    Ok(())
}

/// The settings of the disk cache, if the flags ask for one, for a mount at `mount_dir`. It is unset
/// if this process does not mount. What is kept is filed under `source`.
pub(crate) fn disk(
    args: &MountArgs,
    source: String,
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
        let shares = shares(&dirs, size.0);
        check_shares(size, &dirs.iter().cloned().zip(shares).collect::<Vec<_>>(), part_bytes)?;
    }
    Ok(Some(DiskConfig {
        dirs,
        max_bytes: args.max_cache_size.map(|size| size.0),
        source,
        queue_bytes: memory_limit_bytes / QUEUE_SHARE,
        only_compared: args.verify == Verify::Whole,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{check_shares, shares};
    use crate::flags::size::Size;

    const MIB: u64 = 1 << 20;

    #[test]
    fn each_folder_has_room_for_a_part() {
        let said = |shares: &[(&str, u64)]| {
            let shares: Vec<_> = shares.iter().map(|(dir, share)| (PathBuf::from(dir), *share)).collect();
            check_shares(Size(100 * MIB), &shares, 8 * MIB).err().map(|error| error.to_string())
        };
        assert_eq!(said(&[("/a", 92 * MIB), ("/b", 8 * MIB)]), None);
        assert_eq!(
            said(&[("/a", 93 * MIB), ("/b", 7 * MIB)]).expect("it is too small"),
            "--max-cache-size 100MiB is too small: by the sizes of the disks, 7340032 bytes of it are for --cache /b, \
             and each folder needs at least 8MiB, for one part; leave it out to use all but 5 % of the disk, or that \
             folder"
        );
        assert_eq!(
            said(&[("/a", 7 * MIB)]).expect("it is too small"),
            "--max-cache-size 100MiB is too small: it needs at least 8MiB, for one part; leave it out to use all but \
             5 % of the disk"
        );
    }

    #[test]
    fn folders_share_by_the_sizes_of_their_disks() {
        let folder = tempfile::tempdir().expect("a folder");
        let dirs = ["a", "b"].map(|name| folder.path().join(name));
        assert_eq!(shares(&dirs, 101), [50, 50], "both lie on one disk");
    }
}
