//! The time up to which everything in the directory is on the disk.
//!
//! Published files are not synced one by one. Now and then one syncfs(2) writes all of them, and the file `durable`
//! then records the time up to which that covers them. A file that it covers has survived a power cut, and so has every
//! file that was published since the machine came up: the page cache still has it. All others are compared with their
//! checksums before the kernel may have them.
//!
//! When syncfs fails, some written bytes are lost, and it is unknown which. No process trusts files of this boot that
//! were published and not yet covered. Nor does it trust files published shortly after: they may have been written
//! before.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::blocks;
use crate::disk::clock::{BootId, Clock, SinceBoot};
use crate::disk::io::Io;
use crate::disk::layout::Layout;

const MAGIC: &[u8; 8] = b"s3md\x01\0\0\0";

/// How many spans are kept: one for each boot, and one more for each syncfs that failed.
const MAX_SPANS: usize = 16;

/// A file that is published this long after a failed syncfs was written after it.
const DOUBT: Duration = Duration::from_secs(60);

/// A span of time: every file published after `from`, up to `to`, is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    boot: BootId,
    from: SinceBoot,
    to: SinceBoot,
}

/// The known spans, the last extended one at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Spans(Vec<Span>);

impl Spans {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk()?;
        let spans = body.strip_prefix(MAGIC)?;
        let (spans, rest) = spans.as_chunks::<32>();
        if blocks::sum(body) != u64::from_le_bytes(*sum) || !rest.is_empty() || spans.len() > MAX_SPANS {
            return None;
        }
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes).map(SinceBoot);
        let span = |bytes: &[u8; 32]| {
            let boot = BootId(bytes[..16].try_into().ok()?);
            Some(Span { boot, from: number(&bytes[16..24])?, to: number(&bytes[24..])? })
        };
        spans.iter().map(span).collect::<Option<_>>().map(Self)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for span in &self.0 {
            out.extend_from_slice(&span.boot.0);
            out.extend_from_slice(&span.from.0.to_le_bytes());
            out.extend_from_slice(&span.to.0.to_le_bytes());
        }
        let sum = blocks::sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn cover(&self, boot: BootId, published: SinceBoot) -> bool {
        self.0.iter().any(|span| span.boot == boot && span.from < published && published <= span.to)
    }

    /// Files of `boot` up to this time are trusted only if they are covered; 0 if no syncfs has failed.
    fn failed(&self, boot: BootId) -> SinceBoot {
        self.last(boot).map_or(SinceBoot::default(), |span| span.from)
    }

    fn last(&self, boot: BootId) -> Option<Span> {
        self.0.iter().rev().find(|span| span.boot == boot).copied()
    }

    /// Notes that all files published in `boot` up to `to` are on the disk, unless a syncfs has failed before.
    fn extend(&mut self, boot: BootId, to: SinceBoot) {
        let last = self.last(boot).unwrap_or(Span { boot, from: SinceBoot::default(), to });
        self.0.retain(|span| *span != last);
        self.push(Span { to: to.max(last.to), ..last });
    }

    /// Notes that some files published in `boot` until `now` are lost.
    fn fail(&mut self, boot: BootId, now: SinceBoot) {
        let until = now.after(DOUBT);
        self.push(Span { boot, from: until, to: until });
    }

    fn push(&mut self, span: Span) {
        self.0.push(span);
        let surplus = self.0.len().saturating_sub(MAX_SPANS);
        self.0.drain(..surplus);
    }
}

/// The file `durable` of one cache directory.
#[derive(Debug)]
pub(crate) struct Durable {
    path: PathBuf,
    /// The marker file, which is locked while `durable` is replaced.
    marker: PathBuf,
    /// Open from the beginning, so that syncfs reports every write that has failed since.
    folder: Mutex<File>,
    clock: Clock,
    state: Mutex<SyncState>,
}

#[derive(Debug)]
struct SyncState {
    spans: Spans,
    /// Whether anything was published since the last syncfs.
    has_news: bool,
}

impl Durable {
    pub(crate) fn open(io: &Io, layout: &Layout, clock: Clock) -> io::Result<Self> {
        let (path, marker) = (layout.durable(), layout.marker());
        let folder = Mutex::new(File::open(layout.root())?);
        let spans = load(io, &path)?;
        Ok(Self { path, marker, folder, clock, state: Mutex::new(SyncState { spans, has_news: false }) })
    }

    /// Begins anew with a directory that has replaced the former one.
    pub(crate) fn open_again(&self, io: &Io, layout: &Layout) -> io::Result<()> {
        let (folder, spans) = (File::open(layout.root())?, load(io, &self.path)?);
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder;
        self.lock().spans = spans;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the bytes of a file published at that time are certainly right.
    pub(crate) fn is_trusted(&self, boot: BootId, published: SinceBoot) -> bool {
        let spans = &self.lock().spans;
        spans.cover(boot, published) || (boot == self.clock.boot() && published > spans.failed(boot))
    }

    /// Whether readers certainly get what was written in `boot` from `began` on.
    pub(crate) fn is_intact(&self, boot: BootId, began: SinceBoot) -> bool {
        boot == self.clock.boot() && began > self.lock().spans.failed(boot)
    }

    /// Notes that a file was published.
    pub(crate) fn on_published(&self) {
        self.lock().has_news = true;
    }

    /// Takes over the spans of other processes: their syncfs may have failed.
    pub(crate) fn look(&self, io: &Io) -> io::Result<()> {
        let spans = load(io, &self.path)?;
        self.lock().spans = spans;
        Ok(())
    }

    /// Whether anything was published since the last [`sync`](Self::sync).
    pub(crate) fn has_news(&self) -> bool {
        self.lock().has_news
    }

    /// Writes everything to the disk, and notes that. Returns whether it succeeded.
    pub(crate) fn sync(&self, io: &Io) -> io::Result<bool> {
        let (boot, now) = (self.clock.boot(), self.clock.now());
        self.lock().has_news = false;
        let synced = io.sync(&self.folder.lock().unwrap_or_else(PoisonError::into_inner));
        // Another process may be replacing the file. This process then notes its news the next time.
        let marker = File::open(&self.marker)?;
        if synced.is_ok() && marker.try_lock().is_err() {
            self.lock().has_news = true;
            return Ok(true);
        }
        let mut spans = load(io, &self.path)?;
        match &synced {
            Ok(()) => spans.extend(boot, now),
            Err(error) => {
                tracing::warn!(%error, "sync the disk of the cache; what was added to it is checked before it is used");
                spans.fail(boot, self.clock.now());
            }
        }
        self.lock().spans = spans.clone();
        io.replace(&self.path, &spans.encode())?;
        Ok(synced.is_ok())
    }
}

/// The spans in the file at `path`. A damaged file has none.
fn load(io: &Io, path: &std::path::Path) -> io::Result<Spans> {
    match io.load(path) {
        Ok(bytes) => Ok(Spans::decode(&bytes).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Spans::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::{Durable, Spans};
    use crate::disk::clock::{BootId, Clock, SinceBoot};
    use crate::disk::io::Io;
    use crate::disk::io::faults::Op;
    use crate::disk::layout::Layout;

    proptest! {
        /// Compares with a model: each boot has a list of files, and each file is on the disk, lost, or neither.
        #[test]
        fn only_what_was_synced_is_covered(steps in proptest::collection::vec((0u8..3, 0u8..3), 0..60)) {
            let (mut spans, mut files) = (Spans::default(), Vec::new());
            for (now, (boot, step)) in (1u64..).zip(steps) {
                let (boot, now) = (BootId([boot; 16]), SinceBoot(now));
                match step {
                    0 => files.push((boot, now, None)),
                    1 => spans.extend(boot, now),
                    _ => spans.fail(boot, now),
                }
                for (other, _, is_right) in &mut files {
                    if *other == boot && is_right.is_none() && step > 0 {
                        *is_right = Some(step == 1);
                    }
                }
            }
            let spans = Spans::decode(&spans.encode()).expect("as it was written");
            for (boot, published, is_right) in files {
                prop_assert!(!spans.cover(boot, published) || is_right == Some(true));
            }
        }
    }

    #[test]
    fn a_damaged_file_covers_nothing() {
        let mut spans = Spans::default();
        spans.extend(BootId([1; 16]), SinceBoot(9));
        let bytes = spans.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!((Spans::decode(&damaged), Spans::decode(&bytes[..at])), (None, None), "{at}");
        }
    }

    #[test]
    fn trust_ends_with_the_boot_and_with_a_sync_that_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let (io, layout) = (Io::new(), Layout::new(folder.path()));
        std::fs::write(layout.marker(), "").expect("written");
        let at = |seconds: u64| SinceBoot(seconds * 1_000_000_000);
        let now = Arc::new(AtomicU64::new(at(100).0));
        let clock = |boot| Clock::manual(boot, now.clone());
        let open = |boot| Durable::open(&io, &layout, clock(boot)).expect("opened");
        let (durable, other, boot) = (open(1), open(1), clock(1).boot());
        assert!(durable.is_trusted(boot, at(50)) && !open(2).is_trusted(boot, at(50)));
        assert!(durable.sync(&io).expect("synced"));
        assert!(open(2).is_trusted(boot, at(100)) && !open(2).is_trusted(boot, at(101)));
        now.store(at(200).0, Ordering::Relaxed);
        io.faults.set(|op| if op == Op::Sync { Err(rustix::io::Errno::IO.into()) } else { Ok(()) });
        assert!(!durable.sync(&io).expect("noted"));
        io.faults.clear();
        for durable in [&durable, &open(1)] {
            assert!(durable.is_trusted(boot, at(100)) && !durable.is_trusted(boot, at(150)));
            assert!(!durable.is_trusted(boot, at(230)), "it may have been written before");
            assert!(durable.is_trusted(boot, at(261)), "later files are not among the lost");
            assert!(durable.is_intact(boot, at(261)) && !durable.is_intact(boot, at(150)));
        }
        assert!(other.is_trusted(boot, at(150)), "it only reads");
        other.look(&io).expect("read");
        assert!(!other.is_trusted(boot, at(150)) && other.is_trusted(boot, at(100)));
        now.store(at(300).0, Ordering::Relaxed);
        assert!(durable.sync(&io).expect("synced"));
        assert!(!open(2).is_trusted(boot, at(150)) && open(2).is_trusted(boot, at(300)));
        assert!(!open(2).is_intact(boot, at(300)));
    }
}
