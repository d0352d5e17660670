//! The contents of one shard: its versions, and leftover files. Blocks.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::disk::layout::{Hash, Layout};

/// The unit of `st_blocks`, whatever the file system's block is.
const STAT_BLOCK_BYTES: u64 = 512;

/// An unfinished file of this age is left over from a killed process.
pub(crate) const UNFINISHED: Duration = Duration::from_secs(3600);

/// The files of one version in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) hash: Hash,
    /// How many bytes of the disk all of its files take.
    pub(crate) disk_bytes: u64,
    /// When the version was used or written last.
    pub(crate) used: Duration,
    /// When the version was written last.
    pub(crate) written: Duration,
    /// The object's size; 0 if only a record of the version is there.
    pub(crate) size: u64,
    /// Whether the whole object is there.
    pub(crate) is_whole: bool,
    /// Whether the file of a partly fetched object is there.
    pub(crate) is_part: bool,
}

/// The contents of a shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) versions: Vec<Held>,
    /// The names of files that are of no use.
    pub(crate) leftovers: Vec<String>,
    /// How many bytes of the disk all files take.
    pub(crate) disk_bytes: u64,
}

/// The kind of a file, as its name says.
enum CacheFileKind {
    Whole,
    Partial,
    /// A record or a map.
    Note,
    /// A file that will be renamed when it is finished.
    Unfinished,
}

/// When a file was used or written last.
pub(crate) fn last_use(metadata: &Metadata) -> Duration {
    let time = |seconds: i64, nanoseconds: i64| {
        Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0))
    };
    let used = time(metadata.atime(), metadata.atime_nsec());
    used.max(time(metadata.mtime(), metadata.mtime_nsec()))
}

/// When a file was written last.
pub(crate) fn last_write(metadata: &Metadata) -> Duration {
    Duration::from_secs(u64::try_from(metadata.mtime()).unwrap_or(0))
}

/// Times of a file that was used at `now`, and not written.
pub(crate) fn used_at(now: Duration) -> Timestamps {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Timestamps {
        last_access: Timespec { tv_sec: seconds, tv_nsec: now.subsec_nanos().into() },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

/// Sets the last use of the file, if there is one, to `now`.
pub(crate) fn set_last_use(path: &Path, now: Duration) -> io::Result<()> {
    set_times(path, &used_at(now))
}

/// Sets the times of the file, if there is one.
pub(crate) fn set_times(path: &Path, times: &Timestamps) -> io::Result<()> {
    match utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How many bytes of the disk a file takes.
pub(crate) fn taken_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks() * STAT_BLOCK_BYTES
}

/// Looks through shard `number` at `now`. A shard that does not exist is empty.
pub(crate) fn shard(layout: &Layout, number: u16, now: Duration) -> io::Result<Shard> {
    let mut found = Shard::default();
    let mut versions: BTreeMap<Hash, Held> = BTreeMap::new();
    let mut unsure = Vec::new();
    let entries = match std::fs::read_dir(layout.shard(number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some((hash, kind)) = parse(&name) else { continue };
        let metadata = match entry.metadata() {
            // The file was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        let disk_bytes = taken_bytes(&metadata);
        let used = last_use(&metadata);
        found.disk_bytes += disk_bytes;
        if matches!(kind, CacheFileKind::Unfinished) {
            if now.saturating_sub(used) > UNFINISHED {
                found.leftovers.push(name);
            }
            continue;
        }
        let held = versions.entry(hash).or_insert(Held {
            hash,
            disk_bytes: 0,
            used: Duration::ZERO,
            written: Duration::ZERO,
            size: 0,
            is_whole: false,
            is_part: false,
        });
        held.disk_bytes += disk_bytes;
        if matches!(kind, CacheFileKind::Note) {
            if now.saturating_sub(used) > UNFINISHED {
                unsure.push((hash, name));
            }
            continue;
        }
        held.is_whole |= matches!(kind, CacheFileKind::Whole);
        held.is_part |= matches!(kind, CacheFileKind::Partial);
        held.size = metadata.len();
        held.used = held.used.max(used);
        held.written = held.written.max(last_write(&metadata));
    }
    versions.retain(|_, held| held.is_whole || held.is_part);
    found
        .leftovers
        .extend(unsure.into_iter().filter(|(hash, _)| !versions.contains_key(hash)).map(|(_, name)| name));
    found.versions = versions.into_values().collect();
    Ok(found)
}

fn parse(name: &str) -> Option<(Hash, CacheFileKind)> {
    let (digits, rest) = name.split_at_checked(64)?;
    let kind = match rest {
        "" => CacheFileKind::Whole,
        ".part" => CacheFileKind::Partial,
        ".record" | ".map" => CacheFileKind::Note,
        rest if rest.ends_with(".new") => CacheFileKind::Unfinished,
        _ => return None,
    };
    Some((Hash::parse(digits)?, kind))
}

/// The result of deleting a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// How many bytes of the disk this process has freed. Another process may delete the same version.
    pub(crate) bytes: u64,
    /// How many files it has deleted.
    pub(crate) files: u64,
    /// Whether a process fills the object. Its files stay.
    pub(crate) is_filling: bool,
}

/// Deletes a version: first the file that readers open, then its record or map.
pub(crate) fn remove(layout: &Layout, hash: &Hash) -> io::Result<Removed> {
    let mut removed = Removed::default();
    removed.remove_file(&layout.whole(hash))?;
    removed.remove_file(&layout.record(hash))?;
    let part = layout.part(hash);
    let _lock = match File::open(&part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        file => {
            let file = file?;
            if file.try_lock().is_err() {
                return Ok(Removed { is_filling: true, ..removed });
            }
            Some(file)
        }
    };
    removed.remove_file(&part)?;
    removed.remove_file(&layout.map(hash))?;
    Ok(removed)
}

impl Removed {
    /// Deletes a file that may be missing, and counts it.
    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let removed = std::fs::symlink_metadata(path)
            .and_then(|metadata| std::fs::remove_file(path).map(|()| taken_bytes(&metadata)));
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(bytes) => {
                self.bytes += bytes;
                self.files += 1;
            }
        }
        Ok(())
    }
}
