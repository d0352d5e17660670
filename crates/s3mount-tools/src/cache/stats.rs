//! `s3mount cache stats DIR...`

use std::path::Path;

use indicatif::{BinaryBytes, HumanCount};
use s3mount_cache::{CacheDir, Stats};
use s3mount_system::terminal;
use serde::Serialize;

use super::dirs::Dirs;
use super::shown::{self, short};

/// What was counted in one folder.
#[derive(Default)]
struct Counted {
    whole: u64,
    parts: u64,
    listings: u64,
    listing_bytes: u64,
    /// What all of these take.
    disk_bytes: u64,
}

/// The statistics of a folder as JSON.
#[derive(Serialize)]
struct Json<'a> {
    dir: &'a Path,
    whole_objects: u64,
    partial_objects: u64,
    listings: u64,
    listing_bytes: u64,
    /// What objects and listings take.
    disk_bytes: u64,
    counted_bytes: Option<u64>,
    /// `null` where 5 % of the file system stay free.
    max_bytes: Option<u64>,
    free_bytes: u64,
    total_bytes: u64,
    pace_s: Option<f64>,
    idle_s: f64,
    is_used: bool,
}

/// Shows what is cached in each folder.
pub(super) fn run(dirs: &Dirs) -> anyhow::Result<()> {
    for dir in dirs.open()? {
        let counted = count(&dir)?;
        let stats = dir.stats()?;
        if dirs.json {
            shown::json(&Json {
                dir: dir.path(),
                whole_objects: counted.whole,
                partial_objects: counted.parts,
                listings: counted.listings,
                listing_bytes: counted.listing_bytes,
                disk_bytes: counted.disk_bytes,
                counted_bytes: stats.counted_bytes,
                max_bytes: stats.max_bytes,
                free_bytes: stats.free_bytes,
                total_bytes: stats.total_bytes,
                pace_s: stats.reuse_time.map(|time| time.as_secs_f64()),
                idle_s: stats.idle.as_secs_f64(),
                is_used: stats.is_used,
            })?;
        } else {
            terminal::result(&text(dir.path(), &counted, &stats));
        }
    }
    Ok(())
}

fn count(dir: &CacheDir) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    for shard in 0..CacheDir::SHARDS {
        for cached in dir.shard(shard)? {
            counted.whole += u64::from(cached.is_whole);
            counted.parts += u64::from(!cached.is_whole);
            counted.disk_bytes += cached.disk_bytes;
        }
        let listings = dir.listings(shard)?;
        counted.listings += listings.count;
        counted.listing_bytes += listings.bytes;
        counted.disk_bytes += listings.bytes;
    }
    Ok(counted)
}

fn text(dir: &Path, counted: &Counted, stats: &Stats) -> String {
    let limit = match stats.max_bytes {
        Some(bytes) => format!("at most {}", BinaryBytes(bytes)),
        None => "all but 5 % of the file system".to_owned(),
    };
    let reuse = stats.reuse_time.map_or("not known yet".to_owned(), |time| format!("up to {}", short(time)));
    let user = if stats.is_used { "in use by a mount" } else { "not in use" };
    format!(
        "{}: {user}\n  objects           {} whole, {} in part\n  listings          {}, {}\n  \
         taken             {}\n  limit             {limit}\n  free              {} of {}\n  \
         between two uses  {reuse}\n  idle after        {}",
        dir.display(),
        HumanCount(counted.whole),
        HumanCount(counted.parts),
        HumanCount(counted.listings),
        BinaryBytes(counted.listing_bytes),
        BinaryBytes(counted.disk_bytes),
        BinaryBytes(stats.free_bytes),
        BinaryBytes(stats.total_bytes),
        short(stats.idle),
    )
}
