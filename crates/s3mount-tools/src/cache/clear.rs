//! `s3mount cache clear DIR...`

use std::path::Path;

use s3mount_cache::CacheDir;
use s3mount_system::terminal;
use serde::Serialize;

use super::dirs::Dirs;
use super::shown;

/// What was deleted from a folder, as JSON.
#[derive(Serialize)]
struct Json<'a> {
    dir: &'a Path,
    objects: u64,
    bytes: u64,
    /// Objects that stay because a mount has begun to fill them, and has not let them go.
    being_fetched: u64,
}

/// Empties each folder.
pub(super) fn run(dirs: &Dirs) -> anyhow::Result<()> {
    for dir in dirs.open()? {
        let bar = shown::shards_bar(CacheDir::SHARDS.into());
        let cleared = dir.clear(|cleared| {
            bar.inc(1);
            bar.set_message(shown::sum(cleared.objects, cleared.bytes));
        })?;
        bar.finish_and_clear();
        let (objects, bytes, being_fetched) = (cleared.objects, cleared.bytes, cleared.filling);
        if dirs.json {
            shown::json(&Json { dir: dir.path(), objects, bytes, being_fetched })?;
            continue;
        }
        let rest = match being_fetched {
            0 => String::new(),
            count => format!("; {count} stay because mounts have begun to fill them"),
        };
        terminal::result(&format!("{}: {} deleted{rest}", dir.path().display(), shown::sum(objects, bytes)));
    }
    Ok(())
}
