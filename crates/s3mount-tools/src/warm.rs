//! `s3mount warm DIR|LIST`: lists, through a mount, the files that a job will need; and reads them, or has them
//! kept in the disk cache.

mod to_cache;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use s3mount_system::patience::Progress;
use s3mount_system::terminal;

use self::to_cache::MAX_TOLD;

/// The flags of `s3mount warm`.
#[derive(Clone, Debug, clap::Args)]
pub struct WarmArgs {
    /// Folder on a mount, with all that is below it; or a text file that has a path on each line.
    ///
    /// A relative path counts from the folder of the text file. `-` is standard input, whose relative
    /// paths count from the current folder.
    #[arg(value_name = "DIR|LIST")]
    source: PathBuf,

    /// Read the files too, into the kernel's page cache.
    #[arg(long)]
    read: bool,

    /// Fetch the files into the mount's disk cache (--cache).
    ///
    /// What is there already is not fetched again, so a run that was ended can be repeated. It takes
    /// memory and connections that readers can spare.
    #[arg(long, conflicts_with = "read")]
    to_cache: bool,

    /// Folders and files at once.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
}

/// The number of bytes that one read asks for.
const READ_BYTES: usize = 1 << 20;

/// The paths that are still to be visited. The workers that are at work may find more paths.
#[derive(Default)]
struct Work {
    paths: VecDeque<PathBuf>,
    at_work: usize,
}

struct Walk {
    work: Mutex<Work>,
    changed: Condvar,
    read: bool,
    /// The files that were found, with their sizes, if they are to be kept.
    found: Option<Mutex<Vec<(PathBuf, u64)>>>,
    files: AtomicU64,
    folders: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    progress: Progress,
    bar: ProgressBar,
}

/// Walks the tree, reads its files, and reports the totals.
pub fn run(args: &WarmArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template that is right");
    let (progress, bar) = (Progress::default(), ProgressBar::new_spinner().with_style(style));
    let told = bar.clone();
    let watcher = progress.watch(move |text| told.suspend(|| terminal::notice(text)))?;
    progress.ask(&args.source);
    let walk = Walk {
        work: Mutex::new(Work { paths: paths(&args.source)?, at_work: 0 }),
        changed: Condvar::new(),
        read: args.read,
        found: args.to_cache.then(Mutex::default),
        files: AtomicU64::new(0),
        folders: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        progress,
        bar,
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| walk.work());
        }
    });
    drop(watcher);
    walk.bar.finish_and_clear();
    terminal::result(&format!("{} in {:.1} s", walk.sum(), start.elapsed().as_secs_f64()));
    let failures = walk.failures.load(Ordering::Relaxed);
    ensure!(failures == 0, "{failures} of these paths could not be read; the daemon's log may say why");
    match walk.found {
        Some(found) => to_cache::warm(&found.into_inner().unwrap_or_else(PoisonError::into_inner)),
        None => Ok(()),
    }
}

/// The paths to begin with: a folder, or the lines of a file.
fn paths(source: &Path) -> anyhow::Result<VecDeque<PathBuf>> {
    let lines = |from: &mut dyn BufRead, folder: &Path| {
        let lines = from.lines().filter(|line| line.as_ref().map_or(true, |line| !line.is_empty()));
        lines.map(|line| Ok(folder.join(line?))).collect::<std::io::Result<_>>()
    };
    if source == Path::new("-") {
        return lines(&mut std::io::stdin().lock(), Path::new("")).context("cannot read standard input");
    }
    let shown = terminal::shown(source);
    let metadata = source
        .metadata()
        .with_context(|| format!("cannot look at {shown}; give a folder on a mount, or a list of paths"))?;
    if metadata.is_dir() {
        return Ok(VecDeque::from([source.to_owned()]));
    }
    let folder = source.parent().unwrap_or(Path::new(""));
    let file = File::open(source).with_context(|| format!("cannot read {shown}"))?;
    lines(&mut BufReader::new(file), folder).with_context(|| format!("{shown} is not a list of paths"))
}

impl Walk {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits one path after the other, until no path is left and no other worker can find more.
    fn work(&self) {
        let mut buffer = if self.read { vec![0; READ_BYTES] } else { Vec::new() };
        while let Some(path) = self.next() {
            self.progress.ask(&path);
            if let Err(error) = self.visit(&path, &mut buffer)
                && self.failures.fetch_add(1, Ordering::Relaxed) < MAX_TOLD
            {
                self.bar.suspend(|| terminal::notice(&format!("{}: {error}", terminal::shown(&path))));
            }
            self.progress.step();
            self.lock().at_work -= 1;
            self.changed.notify_all();
            self.bar.set_message(self.sum());
        }
    }

    fn next(&self) -> Option<PathBuf> {
        let mut work = self.lock();
        loop {
            // Take the deepest folder first, so that a wide tree need not be held whole in memory.
            if let Some(path) = work.paths.pop_back() {
                work.at_work += 1;
                return Some(path);
            }
            if work.at_work == 0 {
                return None;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn visit(&self, path: &Path, buffer: &mut [u8]) -> std::io::Result<()> {
        let metadata = path.metadata()?;
        if metadata.is_dir() {
            for entry in path.read_dir()? {
                let entry = entry?;
                self.progress.step();
                // The listing of the folder has brought the file's attributes too, so the file needs no
                // visit.
                if entry.file_type()?.is_dir() || self.read {
                    self.lock().paths.push_back(entry.path());
                    self.changed.notify_one();
                } else {
                    self.note(&entry.path(), || Ok(entry.metadata()?.len()))?;
                }
            }
            self.folders.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if self.read {
            let mut file = File::open(path)?;
            loop {
                match file.read(buffer)? {
                    0 => break,
                    read => self.bytes.fetch_add(read as u64, Ordering::Relaxed),
                };
                self.progress.step();
            }
        }
        self.note(path, || Ok(metadata.len()))
    }

    /// Counts a file, and notes it if it is to be kept.
    fn note(&self, path: &Path, size: impl FnOnce() -> std::io::Result<u64>) -> std::io::Result<()> {
        if let Some(found) = &self.found {
            let size = size()?;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), size));
        }
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn sum(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (files, folders) = (HumanCount(get(&self.files)), HumanCount(get(&self.folders)));
        let read =
            if self.read { format!(", {} read", BinaryBytes(get(&self.bytes))) } else { String::new() };
        format!("{files} files in {folders} folders{read}")
    }
}
