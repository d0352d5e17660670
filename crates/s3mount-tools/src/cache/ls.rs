//! `s3mount cache ls DIR...`

use indicatif::BinaryBytes;
use s3mount_cache::{CacheDir, Cached, Described};
use s3mount_system::terminal;

use super::dirs::Dirs;
use super::shown::{self, Object, short, since};

/// Lists what is cached, shard by shard, so that a list of a million objects needs no memory.
pub(super) fn run(dirs: &Dirs) -> anyhow::Result<()> {
    let opened = dirs.open()?;
    if !dirs.json {
        terminal::result(&line(["SIZE", "STATE", "USED", "AGE", "ETAG", "OBJECT"]));
    }
    for dir in &opened {
        for shard in 0..CacheDir::SHARDS {
            for cached in dir.shard(shard)? {
                let about = dir.describe(&cached)?;
                let file = dir.file_of(&cached);
                if dirs.json {
                    shown::json(&Object::new(dir.path(), &file, &cached, about.as_ref()))?;
                } else {
                    terminal::result(&text(&cached, about.as_ref()));
                }
            }
        }
    }
    Ok(())
}

fn text(cached: &Cached, about: Option<&Described>) -> String {
    let object = about.map_or_else(|| "(of no known object)".to_owned(), shown::object);
    let state = match about {
        _ if cached.is_whole => "whole".to_owned(),
        Some(about) => format!("{} %", about.held_bytes * 100 / cached.size.max(1)),
        None => "?".to_owned(),
    };
    line([
        &BinaryBytes(cached.size).to_string(),
        &state,
        &short(since(cached.used)),
        &short(since(cached.written)),
        about.map_or("?", |about| about.etag.as_str()),
        &terminal::plain(&object),
    ])
}

fn line([size, state, used, age, etag, object]: [&str; 6]) -> String {
    format!("{size:>10}  {state:>5}  {used:>5}  {age:>5}  {etag:34}  {object}")
}
