//! `s3mount warm --to-cache`: has a mount keep files in its disk cache.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};
use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use nix::errno::Errno;

use super::MAX_TOLD;
use crate::system::mounts;
use crate::system::terminal;

/// A file is kept in pieces of this many bytes, each by a write that returns when the piece is on the disk. A
/// write that takes longer than --read-timeout fails.
const PIECE_BYTES: u64 = 256 << 20;

/// Where the daemon takes the paths of files that are to be kept, below the root of its mount.
const KEEP: &str = ".s3mount/keep";

/// Has each of `files`, which have these sizes, kept by the mount that it lies on. `jobs` of them at once.
pub(super) fn keep(mut files: Vec<(PathBuf, u64)>, jobs: u16) -> anyhow::Result<()> {
    let Some((first, _)) = files.first() else { return Ok(()) };
    let root = root(first)?;
    for (path, _) in &mut files {
        *path = mounts::resolve(path)?;
        if let Some(line) = path.to_str().filter(|line| line.contains(['\n', '\t'])) {
            bail!("{line:?} cannot be kept: its name has a newline or a tab");
        }
    }
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let style = "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a template that is right");
    let bar = ProgressBar::new(total).with_style(style);
    let (next, failures, full) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !full.load(Ordering::Relaxed)
                    && let Some((path, size)) = files.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let kept = keep_one(&root, path, *size, &bar);
                    let Err(error) = kept else { continue };
                    full.fetch_or(errno(&error) == Some(Errno::ENOSPC), Ordering::Relaxed);
                    if failures.fetch_add(1, Ordering::Relaxed) < MAX_TOLD {
                        bar.suspend(|| terminal::notice(&format!("{}: {}", path.display(), said(&error))));
                    }
                }
            });
        }
    });
    let kept = bar.position();
    bar.finish_and_clear();
    terminal::result(&format!(
        "{} of {} in {} files are kept",
        BinaryBytes(kept),
        BinaryBytes(total),
        HumanCount(files.len() as u64)
    ));
    let failures = failures.into_inner();
    ensure!(
        !full.into_inner(),
        "the cache is full of files that are used; raise --max-cache-size, or evict some"
    );
    ensure!(failures == 0, "{failures} of these files could not be kept; the daemon's log may say why");
    Ok(())
}

/// The root of the mount that `path` lies on.
fn root(path: &Path) -> anyhow::Result<PathBuf> {
    let resolved = mounts::resolve(path)?;
    let root = resolved.ancestors().find(|dir| dir.join(KEEP).symlink_metadata().is_ok());
    let root = root.with_context(|| {
        format!(
            "{} does not lie on a mount of s3mount that this user owns, so it cannot be kept",
            path.display()
        )
    })?;
    Ok(root.to_owned())
}

fn keep_one(root: &Path, path: &Path, size: u64, bar: &ProgressBar) -> io::Result<()> {
    let name = path.strip_prefix(root).map_err(|_| io::Error::other("it lies on another mount"))?;
    let mut to = File::options().write(true).open(root.join(KEEP))?;
    let mut at = 0;
    while at < size {
        let len = PIECE_BYTES.min(size - at);
        let line = format!("{}\t{at}\t{len}\n", name.display());
        to.write_all(line.as_bytes())?;
        bar.inc(len);
        at += len;
    }
    Ok(())
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// What the daemon means by an error.
fn said(error: &io::Error) -> String {
    match errno(error) {
        Some(Errno::EOPNOTSUPP) => "the mount has no disk cache; mount it with --cache DIR".to_owned(),
        Some(Errno::ENOSPC) => "the cache has no room for it".to_owned(),
        Some(Errno::EROFS) => "the mount was made with --read-only, which refuses this too".to_owned(),
        _ => error.to_string(),
    }
}
