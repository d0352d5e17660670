//! Checks of a folder for the disk cache. Nothing is made there.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use s3mount_cache::DiskNote;
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::cache::{shares, there};

use super::finding::Finding;

const NAME: &str = "cache";

/// With less room than this a cache keeps next to nothing.
const LEAST_BYTES: u64 = 1 << 30;

/// The share of a disk that the cache leaves free by itself.
const RESERVE: u64 = 20;

/// Looks at the folders of a cache of at most `max_bytes`, which they share by the sizes of their disks.
pub(crate) fn check_all(dirs: &[PathBuf], max_bytes: Option<u64>) -> Vec<Finding> {
    let shares = max_bytes.map(|max| shares(dirs, max));
    let share = |at: usize| shares.as_ref().and_then(|shares| shares.get(at).copied());
    dirs.iter().enumerate().map(|(at, dir)| check(dir, share(at))).collect()
}

/// Looks at the folder `dir`, which may take at most `max_bytes`.
fn check(dir: &Path, max_bytes: Option<u64>) -> Finding {
    let shown = dir.display();
    let fail = |why: String, remedy: &str| Finding::fail(NAME, why, remedy);
    match std::fs::metadata(dir) {
        Ok(metadata) if !metadata.is_dir() => {
            return fail(format!("{shown} is not a folder"), "name another with --cache");
        }
        Ok(metadata) if metadata.uid() != nix::unistd::geteuid().as_raw() => {
            return fail(
                format!("{shown} belongs to the user {}", metadata.uid()),
                "name a folder of yours with --cache",
            );
        }
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            return fail(format!("others have access to {shown}"), &format!("chmod 700 {shown}"));
        }
        Ok(_) | Err(_) => {}
    }
    let there = there(dir);
    if access(there, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        return fail(
            format!("{} is missing, or can't be written to", there.display()),
            "make the folder on a local disk, or name another with --cache",
        );
    }
    let note = match DiskNote::of(there) {
        Ok(note) => note,
        Err(error) => return fail(format!("{error}"), ""),
    };
    let Ok(disk) = statvfs(there) else {
        return fail(format!("the disk of {shown} does not say how much room it has"), "");
    };
    let size = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
    let free = size(disk.blocks_available());
    let room = free.saturating_sub(size(disk.blocks()) / RESERVE);
    let free_shown = Size(free >> 20 << 20);
    if room < LEAST_BYTES.min(max_bytes.unwrap_or(u64::MAX)) {
        return Finding::warn(
            NAME,
            format!("{free_shown} are free on the disk of {shown}, of which 5 % of the disk stay free"),
            "make room, or name a folder on another disk",
        );
    }
    if let Some(note) = note {
        return Finding::warn(NAME, note.to_string(), "");
    }
    match max_bytes.filter(|max| *max > room) {
        Some(max) => Finding::warn(
            NAME,
            format!(
                "{free_shown} are free on the disk of {shown}, and it may take {} of --max-cache-size",
                Size(max)
            ),
            "the cache is no larger than the disk has room, besides 5 %",
        ),
        None => Finding::ok(NAME, format!("{shown}: {free_shown} are free")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use s3mount_settings::resolved::cache::total_bytes;

    use super::super::finding::CheckStatus;
    use super::{check, check_all};

    #[test]
    fn folders_that_can_be_no_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |dir: &Path| {
            let finding = check(dir, None);
            assert_eq!(finding.state, CheckStatus::Fail, "{finding:?}");
            finding.line()
        };
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        assert!(said(folder.path()).contains("; chmod 700 "));
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert!(said(&file).contains("is not a folder"));
        assert!(said(&folder.path().join("no/such")).contains("is missing, or can't be written to"));
        assert_ne!(check(&folder.path().join("new"), Some(1 << 20)).state, CheckStatus::Fail);
    }

    #[test]
    fn folders_share_what_a_cache_may_take() {
        let folder = tempfile::tempdir().expect("a folder");
        let dirs = ["a", "b", "c"].map(|name| folder.path().join(name));
        let disk = total_bytes(folder.path());
        let said = check_all(&dirs, Some(30 * disk)).into_iter().map(|finding| finding.said);
        let share = format!("it may take {} of", super::Size(10 * disk));
        assert!(said.clone().all(|said| said.contains(&share)), "{:?}", said.collect::<Vec<_>>());
    }

    #[test]
    fn a_cache_that_is_larger_than_its_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let finding = check(&folder.path().join("new"), Some(u64::MAX / 2));
        assert_eq!(finding.state, CheckStatus::Warn, "{finding:?}");
        let memory = check(Path::new("/dev/shm/s3mount-doctor"), Some(1));
        assert!(memory.state == CheckStatus::Warn && memory.said.contains("lies in memory"), "{memory:?}");
    }
}
