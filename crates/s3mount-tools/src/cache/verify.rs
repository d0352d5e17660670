//! `s3mount cache verify DIR...`

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::ensure;
use indicatif::ProgressBar;
use s3mount_cache::{CacheDir, Cached, Evicted, Verdict};
use s3mount_system::terminal;
use serde::Serialize;

use super::dirs::Dirs;
use super::shown;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    dirs: Dirs,

    /// Say what is wrong, and delete nothing.
    #[arg(long)]
    dry_run: bool,

    /// Objects at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
}

/// An object that is wrong, as JSON.
#[derive(Serialize)]
struct Wrong<'a> {
    wrong: &'a str,
    is_deleted: bool,
    #[serde(flatten)]
    object: shown::Object<'a>,
}

/// The totals as JSON.
#[derive(Serialize)]
struct Total {
    objects: u64,
    bytes: u64,
    wrong: u64,
    deleted: u64,
}

/// What the workers share.
struct Work<'a> {
    opened: &'a [CacheDir],
    args: &'a VerifyArgs,
    /// The next shard of all folders.
    next: AtomicUsize,
    objects: AtomicU64,
    bytes: AtomicU64,
    wrong: AtomicU64,
    deleted: AtomicU64,
    bar: ProgressBar,
}

/// Reads everything, and tells and deletes what is wrong.
pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let opened = args.dirs.open()?;
    let mut disk_bytes = 0;
    for dir in &opened {
        for shard in 0..CacheDir::SHARDS {
            disk_bytes += dir.shard(shard)?.iter().map(|cached| cached.disk_bytes).sum::<u64>();
        }
    }
    let work = Work {
        opened: &opened,
        args,
        next: AtomicUsize::new(0),
        objects: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        deleted: AtomicU64::new(0),
        bar: shown::bytes_bar(disk_bytes),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(|| work.run())).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    work.bar.finish_and_clear();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let total = Total {
        objects: get(&work.objects),
        bytes: get(&work.bytes),
        wrong: get(&work.wrong),
        deleted: get(&work.deleted),
    };
    if args.dirs.json {
        shown::json(&total)?;
    } else {
        terminal::result(&format!("{} compared", shown::sum(total.objects, total.bytes)));
    }
    let remedy = if args.dry_run {
        "run the command without --dry-run to delete them"
    } else {
        "mounts fetch again what is deleted"
    };
    ensure!(total.wrong == 0, "{} of these are wrong, {} deleted; {remedy}", total.wrong, total.deleted);
    Ok(())
}

impl Work<'_> {
    fn run(&self) -> anyhow::Result<()> {
        let shards = usize::from(CacheDir::SHARDS);
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(dir) = self.opened.get(next / shards) else { return Ok(()) };
            for cached in dir.shard((next % shards) as u16)? {
                self.verify(dir, &cached)?;
            }
        }
    }

    fn verify(&self, dir: &CacheDir, cached: &Cached) -> anyhow::Result<()> {
        let verdict = dir.verify(cached, |bytes| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.bar.inc(bytes);
        })?;
        match verdict {
            Verdict::Gone | Verdict::Unknown => return Ok(()),
            Verdict::Right => {}
            Verdict::Wrong(why) => self.on_wrong(dir, cached, why)?,
        }
        self.objects.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn on_wrong(&self, dir: &CacheDir, cached: &Cached, why: &str) -> anyhow::Result<()> {
        let (about, file) = (dir.describe(cached)?, dir.file_of(cached));
        let is_deleted = !self.args.dry_run && matches!(dir.evict(cached)?, Evicted::Bytes(_));
        self.wrong.fetch_add(1, Ordering::Relaxed);
        self.deleted.fetch_add(u64::from(is_deleted), Ordering::Relaxed);
        if self.args.dirs.json {
            let object = shown::Object::new(dir.path(), &file, cached, about.as_ref());
            return self.bar.suspend(|| shown::json(&Wrong { wrong: why, is_deleted, object }));
        }
        let name = about.as_ref().map_or_else(|| "an object that is not known".to_owned(), shown::object);
        let end = if is_deleted { "; deleted" } else { "" };
        let name = terminal::plain(&name);
        self.bar.suspend(|| terminal::result(&format!("{name}: {why}, in {}{end}", file.display())));
        Ok(())
    }
}
