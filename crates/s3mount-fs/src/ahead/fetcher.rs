//! Prefetches files: those that hints name, and those that the order of opens suggests.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::hints::{Guess, HintSource, HintWriter, Next, Todo};
use super::sequence::SequenceDetector;
use crate::numbers::InodeNo;
use crate::open::open_clock::OpenClock;
use crate::sync::spawn;
use s3mount_names::{File, NameKind};

/// How often to check whether there is memory and a free request for the next hint.
const PAUSE: Duration = Duration::from_millis(2);

/// A hinted file that was opened within the last this many opens counts as already read in this epoch. An earlier open
/// may belong to the epoch before.
const JUST_NOW: u32 = 2048;

/// After this many files that were opened in the order of their names, this many of the next ones are prefetched. Four
/// files in order are rarely a coincidence. At 27 ms a file, 64 files ahead are 2,400 files a second.
const OPENS: (u32, u32) = (4, 64);

/// Prefetches files.
#[derive(Debug)]
pub(crate) struct Fetcher {
    context: Context,
    sequences: SequenceDetector,
}

impl Fetcher {
    /// Follows `hints`, and the order in which files are opened.
    pub(crate) fn new(context: Context) -> Self {
        let sequences = SequenceDetector::new(OPENS.0, OPENS.1);
        Self { context, sequences }
    }

    /// Prefetches the next files of a directory, if its files are opened in the order of their names. Call this when a
    /// file is opened for the first time. For a file that was opened before (`was_opened_before`), call it at the first
    /// READ, because the kernel may have the file's pages.
    pub(crate) fn follow_sequence(self: &Arc<Self>, ino: InodeNo, key: &str, was_opened_before: bool) {
        let Some((parent, prefix, name)) = self.place(ino, key) else { return };
        // What would be guessed there is not wanted, and to find it out takes a lock that all opens share.
        if self.context.hints.is_hinted(&prefix, Instant::now()) {
            return;
        }
        let following =
            |after: &str, count| self.context.namespace.following(&prefix, after, count, NameKind::File);
        self.sequences.on_open(&prefix, &name, following, |ahead| {
            let given_at = self.context.inodes.open_clock();
            let guess = |name| Guess { parent, prefix: prefix.clone(), name, given_at, was_opened_before };
            if let Some(guesser) =
                self.context.hints.guess(&prefix, ahead.into_iter().map(guess), Instant::now())
            {
                spawn(self.context.namespace.requests().runtime(), follow(Arc::downgrade(self), guesser));
            }
        });
    }

    /// Notes that a file is opened that the kernel reads by itself. Prefetches nothing: the next files may be on the
    /// disk, too. The next file that is not there starts the prefetch of those after it.
    pub(crate) fn pass_sequence(&self, ino: InodeNo, key: &str) {
        let Some((_, prefix, name)) = self.place(ino, key) else { return };
        let following =
            |after: &str, count| self.context.namespace.following(&prefix, after, count, NameKind::File);
        self.sequences.pass(&prefix, &name, following);
    }

    /// The directory of a file, the prefix of its keys, and the name of the file.
    fn place(&self, ino: InodeNo, key: &str) -> Option<(InodeNo, Arc<str>, Arc<str>)> {
        let (parent, name) = self.context.inodes.parent_and_name(ino)?;
        let prefix = Arc::from(key.strip_suffix(&*name).unwrap_or(key));
        Some((parent, prefix, name))
    }

    /// Adds the next bytes of one writer of hints.
    pub(crate) fn take_hints(self: &Arc<Self>, writer: &Arc<HintWriter>, data: &[u8]) {
        if self.context.hints.push(writer, data, self.context.inodes.open_clock()) {
            spawn(self.context.namespace.requests().runtime(), follow(Arc::downgrade(self), writer.clone()));
        }
    }

    /// Finds the file that a hint or a guess names.
    async fn look_up(self: Arc<Self>, next: Next) -> Option<FetchTarget> {
        let (prefix, name) = match &next {
            Next::Hint(hint) => {
                let (folder, name) = hint.folder_and_name();
                let prefix = Arc::from(format!("{}{folder}", self.context.namespace.root()));
                self.context.hints.note_hinted_folder(&prefix, Instant::now());
                (prefix, name)
            }
            Next::Guess(guess) => (guess.prefix.clone(), &*guess.name),
        };
        match self.context.namespace.find_file(&prefix, name).await {
            Ok(file) => Some(FetchTarget { file, prefix, next }),
            Err(error) => {
                if matches!(next, Next::Hint(_)) {
                    self.context.hints.refuse();
                }
                tracing::debug!(?next, %error, "a hint leads nowhere");
                None
            }
        }
    }

    /// Whether to fetch a file: not if its reader has opened it meanwhile, or may have it in the kernel's page cache.
    fn is_wanted(&self, found: &FetchTarget) -> bool {
        match &found.next {
            Next::Hint(hint) if hint.range.is_none() => {
                let parent = self.context.inodes.directory(self.context.namespace.root(), &found.prefix);
                let opened = parent.map_or(OpenClock::NEVER, |parent| {
                    self.context.inodes.opened(parent, hint.folder_and_name().1)
                });
                let was_just_opened = opened.since(hint.given_at) > 0
                    && self.context.inodes.open_clock().since(opened) < JUST_NOW;
                !(was_just_opened || opened.was_ever() && self.context.hints.are_cached())
            }
            Next::Hint(_) => true,
            Next::Guess(guess) => {
                let opened = self.context.inodes.opened(guess.parent, &guess.name);
                let is_cached =
                    opened.was_ever() && (!guess.was_opened_before || self.context.hints.are_cached());
                opened.since(guess.given_at) == 0 && !is_cached
            }
        }
    }

    async fn fetch(&self, writer: &HintWriter, found: FetchTarget) {
        let (range, source) = match &found.next {
            Next::Hint(hint) => (hint.range, hint.source()),
            Next::Guess(_) => (None, HintSource::Guess),
        };
        let reader = self.context.prefetcher.open(&found.file.object, found.file.size);
        if self.context.passthrough.serves(&reader, source == HintSource::Guess).await {
            if source == HintSource::File && self.is_wanted(&found) {
                self.context.hints.keep_whole(writer, reader, self.context.inodes.open_clock());
            }
            return;
        }
        // GETs become free after a while. Unread hints may keep memory short, so the window is checked each time.
        let range = loop {
            // The reader may have opened the file meanwhile.
            if !self.is_wanted(&found) {
                return;
            }
            if let Some(range) = reader.fetch_ahead(range) {
                break range;
            }
            self.context.hints.look(writer, self.context.inodes.open_clock(), Instant::now());
            tokio::time::sleep(PAUSE).await;
        };
        if range.len() > 0 {
            self.context.hints.keep(writer, reader, range, source, self.context.inodes.open_clock());
        }
    }
}

/// The file that a hint or a guess names.
struct FetchTarget {
    file: File,
    prefix: Arc<str>,
    next: Next,
}

/// Fetches the files and ranges of a writer's hints, in their order, as far ahead as there is room.
async fn follow(fetcher: Weak<Fetcher>, writer: Arc<HintWriter>) {
    let mut look_ups = VecDeque::new();
    loop {
        let Some(fetcher) = fetcher.upgrade() else { return };
        while let Some(next) = fetcher.context.hints.next(&writer) {
            look_ups.push_back(spawn(
                fetcher.context.namespace.requests().runtime(),
                fetcher.clone().look_up(next),
            ));
        }
        // Hints may use a quarter of the memory. The rest is for streams, and for readers that wait.
        let room = fetcher.context.prefetcher.budget().limit_bytes() / 4;
        match fetcher.context.hints.todo(&writer, room, fetcher.context.inodes.open_clock(), Instant::now()) {
            Todo::Fetch => {
                if let Some(look_up) = look_ups.pop_front()
                    && let Ok(Some(found)) = look_up.await
                {
                    fetcher.fetch(&writer, found).await;
                }
                fetcher.context.hints.followed(&writer);
            }
            Todo::Wait(pause) => {
                drop(fetcher);
                tokio::time::sleep(pause).await;
            }
            Todo::End => return,
        }
    }
}
