//! `s3mount cache evict DIR...`

use std::time::Duration;

use anyhow::ensure;
use s3mount_cache::{CacheDir, Cached, Evicted};
use s3mount_settings::flags::age::Age;
use s3mount_settings::flags::size::Size;
use s3mount_system::terminal;
use serde::Serialize;

use super::dirs::Dirs;
use super::shown;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct EvictArgs {
    #[command(flatten)]
    dirs: Dirs,

    /// Only objects that were not used for this time, such as 7d, 12h or 30m.
    #[arg(long, value_name = "TIME")]
    idle: Option<Age>,

    /// Only objects whose key begins so: s3://BUCKET/PREFIX, in any store.
    #[arg(long, value_name = "s3://BUCKET[/PREFIX]")]
    prefix: Option<String>,

    /// Only as many as needed until the cache takes no more than this in all folders together, the
    /// least recently used first.
    #[arg(long, value_name = "SIZE")]
    to_size: Option<Size>,

    /// Say how much would be deleted, and delete nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What was evicted.
#[derive(Default, Serialize)]
struct Total {
    objects: u64,
    bytes: u64,
    /// Objects that stay because a mount has begun to fill them, and has not let them go.
    being_fetched: u64,
}

/// Which objects match.
struct Filter<'a> {
    /// Objects that were used at this time or later stay.
    used_before: Duration,
    bucket: Option<&'a str>,
    prefix: &'a str,
}

impl Filter<'_> {
    fn matches(&self, dir: &CacheDir, cached: &Cached) -> anyhow::Result<bool> {
        if cached.used >= self.used_before {
            return Ok(false);
        }
        let Some(bucket) = self.bucket else { return Ok(true) };
        let about = dir.describe(cached)?;
        Ok(about.is_some_and(|about| shown::bucket(&about) == bucket && about.key.starts_with(self.prefix)))
    }
}

/// Evicts what matches.
pub(super) fn run(args: &EvictArgs) -> anyhow::Result<()> {
    ensure!(
        args.idle.is_some() || args.prefix.is_some() || args.to_size.is_some(),
        "nothing says what to evict; give --idle, --prefix or --to-size, or use s3mount cache clear"
    );
    let (bucket, prefix) = match &args.prefix {
        Some(given) => {
            let path = given.strip_prefix("s3://").unwrap_or_default();
            let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
            ensure!(!bucket.is_empty(), "--prefix {given:?} names no bucket; write s3://BUCKET/PREFIX");
            (Some(bucket), prefix)
        }
        None => (None, ""),
    };
    let used_before = match args.idle {
        Some(Age(idle)) => shown::since(idle),
        None => Duration::MAX,
    };
    let filter = Filter { used_before, bucket, prefix };
    let opened = args.dirs.open()?;
    let bytes = match args.to_size {
        Some(Size(size)) => taken(&opened)?.saturating_sub(size),
        None => u64::MAX,
    };
    let total = evict(&opened, &filter, bytes, args.dry_run)?;
    if args.dirs.json {
        return shown::json(&total);
    }
    let verb = if args.dry_run { "would be evicted" } else { "evicted" };
    let rest = match total.being_fetched {
        0 => String::new(),
        count => format!("; {count} stay because mounts have begun to fill them"),
    };
    terminal::result(&format!("{} {verb}{rest}", shown::sum(total.objects, total.bytes)));
    Ok(())
}

/// How many bytes of the disk all objects take.
fn taken(opened: &[CacheDir]) -> anyhow::Result<u64> {
    let mut taken = 0;
    for dir in opened {
        for shard in 0..CacheDir::SHARDS {
            taken += dir.shard(shard)?.iter().map(|cached| cached.disk_bytes).sum::<u64>();
        }
    }
    Ok(taken)
}

/// Evicts what matches, the least recently used first, until `bytes` are given back.
fn evict(opened: &[CacheDir], filter: &Filter<'_>, bytes: u64, dry_run: bool) -> anyhow::Result<Total> {
    let mut total = Total::default();
    let last = if bytes == u64::MAX { Duration::MAX } else { last_to_go(opened, filter, bytes)? };
    for dir in opened {
        for shard in 0..CacheDir::SHARDS {
            for cached in dir.shard(shard)? {
                if total.bytes >= bytes || cached.used > last || !filter.matches(dir, &cached)? {
                    continue;
                }
                match if dry_run { Evicted::Bytes(cached.disk_bytes) } else { dir.evict(&cached)? } {
                    Evicted::Bytes(0) => {}
                    Evicted::Bytes(bytes) => {
                        total.objects += 1;
                        total.bytes += bytes;
                    }
                    Evicted::Filling => total.being_fetched += 1,
                }
            }
        }
    }
    Ok(total)
}

/// The last use of the last object to evict so that `bytes` are given back. Of each object it remembers only its
/// last use and its bytes: 24 MiB for a million.
fn last_to_go(opened: &[CacheDir], filter: &Filter<'_>, bytes: u64) -> anyhow::Result<Duration> {
    let mut uses = Vec::new();
    for dir in opened {
        for shard in 0..CacheDir::SHARDS {
            for cached in dir.shard(shard)? {
                if filter.matches(dir, &cached)? {
                    uses.push((cached.used, cached.disk_bytes));
                }
            }
        }
    }
    uses.sort_unstable();
    let mut sum = 0;
    let last = uses.into_iter().take_while(|(_, disk_bytes)| {
        let is_needed = sum < bytes;
        sum += disk_bytes;
        is_needed
    });
    Ok(last.last().map_or(Duration::ZERO, |(used, _)| used))
}
