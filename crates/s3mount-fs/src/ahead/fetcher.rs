//! Fetching ahead of the readers: what hints name, and what the order of the opens lets guess.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_prefetch::Prefetcher;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::hints::{Guess, HintWriter, Hints, Next, Source, Todo};
use super::sequence::Order;
use crate::attr::FileKind;
use crate::inode::InodeTable;
use crate::namespace::Namespace;
use crate::namespace::names::File;
use crate::numbers::InodeNo;
use crate::open_clock::OpenClock;
use crate::sync::spawn;

/// How often it is looked whether there is memory and a request for a hint.
const PAUSE: Duration = Duration::from_millis(2);

/// Of files that were told and opened since, the last so many were the very reading that was told; the
/// others may have been an epoch before.
const JUST_NOW: u32 = 2048;

/// Files that have to be opened in their order before the next ones are fetched ahead (four by chance
/// are rare), and how many are: at 27 ms a file, that is 2,400 files a second.
const OPENS: (u32, u32) = (4, 64);

/// Fetches files ahead of their readers.
#[derive(Debug)]
pub(crate) struct Fetcher {
    namespace: Arc<Namespace>,
    inodes: Arc<InodeTable>,
    prefetcher: Prefetcher,
    runtime: Handle,
    hints: Arc<Hints>,
    opens: Order,
}

impl Fetcher {
    /// Follows `hints`, and the order in which files are opened.
    pub(crate) fn new(
        namespace: Arc<Namespace>,
        inodes: Arc<InodeTable>,
        prefetcher: Prefetcher,
        hints: Arc<Hints>,
    ) -> Self {
        let runtime = namespace.requests().runtime().clone();
        Self { namespace, inodes, prefetcher, runtime, hints, opens: Order::new(OPENS.0, OPENS.1) }
    }

    /// Has what follows a file fetched ahead, if the files of its directory are opened in their order. One
    /// that was opened before (`is_again`) counts when it is read: the kernel may have its pages.
    pub(crate) fn look_ahead(self: &Arc<Self>, ino: InodeNo, key: &str, is_again: bool) {
        let Some((parent, name)) = self.inodes.place(ino) else { return };
        let prefix = Arc::from(key.strip_suffix(&*name).unwrap_or(key));
        let following = |after: &str, count| self.namespace.following(&prefix, after, count, FileKind::File);
        let ahead = self.opens.on_open(&prefix, &name, following).into_iter();
        let told = self.inodes.opens();
        let guesses = ahead.map(|name| Guess { parent, prefix: prefix.clone(), name, told, is_again });
        if let Some(guesser) = self.hints.guess(&prefix, guesses, Instant::now()) {
            spawn(&self.runtime, follow(Arc::downgrade(self), guesser));
        }
    }

    /// Takes a piece of what one writer writes.
    pub(crate) fn take_hints(self: &Arc<Self>, writer: &Arc<HintWriter>, data: &[u8]) {
        if self.hints.push(writer, data, self.inodes.opens()) {
            spawn(&self.runtime, follow(Arc::downgrade(self), writer.clone()));
        }
    }

    /// Finds the file that a hint or a guess names.
    async fn look_up(self: Arc<Self>, next: Next) -> Option<Found> {
        let (prefix, name) = match &next {
            Next::Hint(hint) => {
                let (folder, name) = hint.place();
                let prefix = Arc::from(format!("{}{folder}", self.namespace.root()));
                self.hints.note_told(&prefix, Instant::now());
                (prefix, name)
            }
            Next::Guess(guess) => (guess.prefix.clone(), &*guess.name),
        };
        match self.namespace.find_file(&prefix, name).await {
            Ok(file) => Some(Found { file, prefix, next }),
            Err(error) => {
                if matches!(next, Next::Hint(_)) {
                    self.hints.refuse();
                }
                tracing::debug!(?next, %error, "a hint leads nowhere");
                None
            }
        }
    }

    /// Whether a file is to be fetched: not if its reader was here meanwhile, or may have it from the
    /// kernel.
    fn is_wanted(&self, found: &Found) -> bool {
        match &found.next {
            Next::Hint(hint) if hint.range.is_none() => {
                let parent = self.inodes.directory(self.namespace.root(), &found.prefix);
                let opened =
                    parent.map_or(OpenClock::NEVER, |parent| self.inodes.opened(parent, hint.place().1));
                let was_just_opened =
                    opened.since(hint.told) > 0 && self.inodes.opens().since(opened) < JUST_NOW;
                !(was_just_opened || opened.was_ever() && self.hints.are_cached())
            }
            Next::Hint(_) => true,
            Next::Guess(guess) => {
                let opened = self.inodes.opened(guess.parent, &guess.name);
                let is_cached = opened.was_ever() && (!guess.is_again || self.hints.are_cached());
                opened.since(guess.told) == 0 && !is_cached
            }
        }
    }

    async fn fetch(&self, writer: &HintWriter, found: Found) {
        let (range, source) = match &found.next {
            Next::Hint(hint) => (hint.range, hint.source()),
            Next::Guess(_) => (None, Source::Guess),
        };
        let reader = self.prefetcher.open(&found.file.object, found.file.size);
        // That all GETs are taken passes. Memory may be short because of hints that nobody follows.
        let range = loop {
            // Its reader may have come meanwhile.
            if !self.is_wanted(&found) {
                return;
            }
            if let Some(range) = reader.fetch_ahead(range) {
                break range;
            }
            self.hints.look(writer, self.inodes.opens(), Instant::now());
            tokio::time::sleep(PAUSE).await;
        };
        if range.len() > 0 {
            self.hints.keep(writer, reader, range, source, self.inodes.opens());
        }
    }
}

/// The file that a hint or a guess names.
struct Found {
    file: File,
    prefix: Arc<str>,
    next: Next,
}

/// Fetches what a writer's hints name, in their order, as far ahead as there is room.
async fn follow(fetcher: Weak<Fetcher>, writer: Arc<HintWriter>) {
    let mut look_ups = VecDeque::new();
    loop {
        let Some(fetcher) = fetcher.upgrade() else { return };
        while let Some(next) = fetcher.hints.next(&writer) {
            look_ups.push_back(spawn(&fetcher.runtime, fetcher.clone().look_up(next)));
        }
        // A quarter of the memory: streams and readers that wait have the rest.
        let room = fetcher.prefetcher.budget().limit_bytes() / 4;
        match fetcher.hints.todo(&writer, room, fetcher.inodes.opens(), Instant::now()) {
            Todo::Fetch => {
                if let Some(look_up) = look_ups.pop_front()
                    && let Ok(Some(found)) = look_up.await
                {
                    fetcher.fetch(&writer, found).await;
                }
                fetcher.hints.followed(&writer);
            }
            Todo::Wait(pause) => {
                drop(fetcher);
                tokio::time::sleep(pause).await;
            }
            Todo::End => return,
        }
    }
}
