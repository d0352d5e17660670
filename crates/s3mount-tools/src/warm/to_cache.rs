//! `s3mount warm --to-cache`: has a mount keep files in its disk cache.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use nix::errno::Errno;
use s3mount_system::mounts;
use s3mount_system::patience::Progress;
use s3mount_system::terminal;

/// The largest number of failures that are reported one by one.
pub(super) const MAX_TOLD: u64 = 10;

/// A file is kept in pieces of this many bytes. Each is kept by a write that returns when it is on the disk. A
/// write that takes longer than --read-timeout fails.
const PIECE_BYTES: u64 = 64 << 20;

/// How many bytes one write has kept. The kernel hands the daemon one write at a time, which keeps as many files
/// at once as it can.
const BATCH_BYTES: u64 = 256 << 20;

/// The most lines of one write. The kernel cuts a write of more than 1 MiB.
const BATCH_LINES: usize = 512;

/// Where the daemon takes the paths of files that are to be kept, below the root of its mount.
const KEEP: &str = ".s3mount/keep";

/// What one line asks for: a piece of a file.
struct Piece<'a> {
    path: &'a Path,
    at: u64,
    len: u64,
}

/// Has each of `files`, which have these sizes, kept by the mount that they lie on.
pub(super) fn warm(files: &[(PathBuf, u64)]) -> anyhow::Result<()> {
    let Some((first, _)) = files.first() else { return Ok(()) };
    let root = root(first)?;
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let style = "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a template that is right");
    let (progress, bar) = (Progress::default(), ProgressBar::new(total).with_style(style));
    let told = bar.clone();
    let watcher = progress.watch(move |text| told.suspend(|| terminal::notice(text)))?;
    let (left_out, left_out_bytes) = (BTreeSet::new(), 0);
    let mut warmer = CacheWarmer { root, progress, bar, failures: 0, left_out, left_out_bytes };
    let pieces = files.iter().flat_map(|(path, size)| {
        let starts = (0..*size).step_by(PIECE_BYTES as usize);
        starts.map(move |at| Piece { path, at, len: PIECE_BYTES.min(size - at) })
    });
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for piece in pieces {
        bytes += piece.len;
        batch.push(piece);
        if bytes >= BATCH_BYTES || batch.len() == BATCH_LINES {
            warmer.warm(&batch)?;
            (batch, bytes) = (Vec::new(), 0);
        }
    }
    warmer.warm(&batch)?;
    drop(watcher);
    let kept = warmer.bar.position() - warmer.left_out_bytes;
    warmer.bar.finish_and_clear();
    terminal::result(&format!(
        "{} of {} in {} files are kept",
        BinaryBytes(kept),
        BinaryBytes(total),
        HumanCount(files.len() as u64)
    ));
    if !warmer.left_out.is_empty() {
        terminal::notice(&format!(
            "{} files are left out by --cache-include and --cache-exclude of the mount",
            HumanCount(warmer.left_out.len() as u64)
        ));
    }
    let failures = warmer.failures;
    ensure!(failures == 0, "{failures} of these files could not be kept; the daemon's log may say why");
    Ok(())
}

/// Has pieces kept, and counts those that can't be.
struct CacheWarmer {
    root: PathBuf,
    progress: Progress,
    bar: ProgressBar,
    failures: u64,
    /// The files that the patterns of the mount leave out of its cache, and how many bytes these have.
    left_out: BTreeSet<PathBuf>,
    left_out_bytes: u64,
}

impl CacheWarmer {
    /// Has pieces kept with one write; if that fails, one by one.
    fn warm(&mut self, batch: &[Piece<'_>]) -> anyhow::Result<()> {
        if self.write(batch).is_ok() {
            return Ok(());
        }
        for piece in batch {
            let Err(error) = self.write(std::slice::from_ref(piece)) else { continue };
            let path = terminal::shown(piece.path);
            match errno(&error) {
                Some(Errno::ENOSPC) => {
                    bail!(
                        "the cache has no room for {path}; raise --max-cache-size, or run s3mount cache evict"
                    )
                }
                Some(Errno::EOPNOTSUPP) => bail!("the mount has no disk cache; mount it with --cache DIR"),
                Some(Errno::EROFS) => bail!("the mount was made with --read-only, which refuses this too"),
                Some(Errno::EPERM) => {
                    self.left_out.insert(piece.path.to_owned());
                    self.bar.inc(piece.len);
                    self.left_out_bytes += piece.len;
                    continue;
                }
                _ => {}
            }
            self.failures += 1;
            if self.failures <= MAX_TOLD {
                self.bar.suspend(|| terminal::notice(&format!("{path}: {error}")));
            }
        }
        Ok(())
    }

    fn write(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        let mut lines = Vec::new();
        for Piece { path, at, len } in pieces {
            self.progress.ask(path);
            let path = mounts::resolve(path)?;
            let name =
                path.strip_prefix(&self.root).map_err(|_| io::Error::other("it lies on another mount"))?;
            let name = name.as_os_str().as_bytes();
            if name.iter().any(|byte| b"\t\n".contains(byte)) {
                return Err(io::Error::other("a name with a tab or a newline can't be kept so"));
            }
            lines.extend_from_slice(name);
            lines.extend_from_slice(format!("\t{at}\t{len}\n").as_bytes());
        }
        File::options().write(true).open(self.root.join(KEEP))?.write_all(&lines)?;
        self.progress.step();
        self.bar.inc(pieces.iter().map(|piece| piece.len).sum());
        Ok(())
    }
}

/// The root of the mount that `path` lies on.
fn root(path: &Path) -> anyhow::Result<PathBuf> {
    let resolved = mounts::resolve(path)?;
    let root = resolved.ancestors().find(|dir| dir.join(KEEP).symlink_metadata().is_ok());
    let root = root.with_context(|| {
        format!(
            "{} does not lie on a mount of s3mount that this user owns, so it cannot be kept",
            terminal::shown(path)
        )
    })?;
    Ok(root.to_owned())
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}
