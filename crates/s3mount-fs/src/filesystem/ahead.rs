//! Fetching ahead of the readers: what hints name, and what the order of the opens lets guess.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Filesystem;
use crate::FsError;
use crate::ahead::hints::{Guess, HintWriter, Next, Source, Todo};
use crate::inode::{FileKind, InodeNo, Opens};
use crate::namespace::names::{File, Target};

/// How often it is looked whether there is memory and a request for a hint.
const PAUSE: Duration = Duration::from_millis(2);

/// Of files that were told and opened since, the last so many were the very reading that was told; the
/// others may have been an epoch before.
const JUST_NOW: u32 = 2048;

impl Filesystem {
    /// Has what follows a file fetched ahead, if the files of its directory are opened in their order. One
    /// that was opened before (`is_again`) counts when it is read: the kernel may have its pages.
    pub(super) fn look_ahead(self: &Arc<Self>, ino: InodeNo, key: &str, is_again: bool) {
        let Some((parent, name)) = self.inodes.place(ino) else { return };
        let prefix = Arc::from(key.strip_suffix(&*name).unwrap_or(key));
        let following = |after: &str, count| self.metadata.following(&prefix, after, count, FileKind::File);
        let ahead = self.opens.on_open(&prefix, &name, following).into_iter();
        let told = self.inodes.opens();
        let guesses = ahead.map(|name| Guess { parent, prefix: prefix.clone(), name, told, is_again });
        if let Some(guesser) = self.hints.guess(&prefix, guesses, Instant::now()) {
            self.metadata.runtime.spawn(follow(Arc::downgrade(self), guesser));
        }
    }

    /// Takes a piece of what one writer writes.
    pub(super) fn take_hints(self: &Arc<Self>, writer: &Arc<HintWriter>, data: &[u8]) {
        if self.hints.push(writer, data, self.inodes.opens()) {
            self.metadata.runtime.spawn(follow(Arc::downgrade(self), writer.clone()));
        }
    }

    /// Finds the file that a hint or a guess names.
    async fn look_up(self: Arc<Self>, next: Next) -> Option<Found> {
        let (prefix, name) = match &next {
            Next::Hint(hint) => {
                let (folder, name) = hint.place();
                let prefix = Arc::from(format!("{}{folder}", self.config.prefix));
                self.hints.note_told(&prefix, Instant::now());
                (prefix, name)
            }
            Next::Guess(guess) => (guess.prefix.clone(), &*guess.name),
        };
        match self.find(&prefix, name).await {
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
                let parent = self.inodes.directory(&self.config.prefix, &found.prefix);
                let opened = parent.map_or(Opens::NEVER, |parent| self.inodes.opened(parent, hint.place().1));
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

    pub(super) async fn find(&self, prefix: &Arc<str>, name: &str) -> Result<File, FsError> {
        match self.metadata.get(prefix, name).await?.0 {
            Target::File(file) => Ok(file),
            Target::Directory => Err(FsError::IsDirectory),
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
async fn follow(fs: Weak<Filesystem>, writer: Arc<HintWriter>) {
    let mut look_ups = VecDeque::new();
    loop {
        let Some(fs) = fs.upgrade() else { return };
        while let Some(next) = fs.hints.next(&writer) {
            look_ups.push_back(fs.metadata.runtime.spawn(fs.clone().look_up(next)));
        }
        // A quarter of the memory: streams and readers that wait have the rest.
        let room = fs.prefetcher.budget().limit_bytes() / 4;
        match fs.hints.todo(&writer, room, fs.inodes.opens(), Instant::now()) {
            Todo::Fetch => {
                if let Some(look_up) = look_ups.pop_front()
                    && let Ok(Some(found)) = look_up.await
                {
                    fs.fetch(&writer, found).await;
                }
                fs.hints.followed(&writer);
            }
            Todo::Wait(pause) => {
                drop(fs);
                tokio::time::sleep(pause).await;
            }
            Todo::End => return,
        }
    }
}
