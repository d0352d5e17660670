//! Fetching ahead of the readers: what hints name, and what the order of the opens lets guess.

use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Filesystem;
use crate::FsError;
use crate::hint_window::Source;
use crate::hints::{Guess, Hint, Line, Next};
use crate::inode::{FileKind, InodeNo, Opens};
use crate::names::{File, Target};

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
        if self.hints.guess(guesses, Instant::now()) {
            self.metadata.runtime.spawn(fetch_hints(Arc::downgrade(self)));
        }
    }

    /// Takes a piece of what one writer writes.
    pub(super) fn take_hints(self: &Arc<Self>, line: &std::sync::Mutex<Line>, data: &[u8]) {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        let is_needed = self.hints.push(&mut line, data, self.inodes.opens());
        if is_needed {
            self.metadata.runtime.spawn(fetch_hints(Arc::downgrade(self)));
        }
    }

    /// Starts to fetch what a hint names, unless its reader was here just now, or has it from the
    /// kernel.
    async fn follow(&self, hint: &Hint) -> Result<(), FsError> {
        let (folder, name) = hint.path.rsplit_once('/').unwrap_or(("", &hint.path));
        let slash = if folder.is_empty() { "" } else { "/" };
        let prefix = Arc::from(format!("{}{folder}{slash}", self.config.prefix));
        let file = self.find(&prefix, name).await?;
        if hint.range.is_none() {
            let parent = self.inodes.directory(&self.config.prefix, &prefix);
            let opened = parent.map_or(Opens::NEVER, |parent| self.inodes.opened(parent, name));
            let was_just_opened = opened.since(hint.told) > 0 && self.inodes.opens().since(opened) < JUST_NOW;
            if was_just_opened || opened.was_ever() && self.hints.are_cached() {
                return Ok(());
            }
        }
        self.fetch(&file, hint.range, hint.source()).await;
        Ok(())
    }

    /// Starts to fetch what a guess names, unless it was opened meanwhile, or the kernel may have it.
    async fn follow_guess(&self, guess: &Guess) -> Result<(), FsError> {
        let Guess { parent, prefix, name, told, is_again } = guess;
        let file = self.find(prefix, name).await?;
        let opened = self.inodes.opened(*parent, name);
        let is_cached = opened.was_ever() && (!is_again || self.hints.are_cached());
        if opened.since(*told) == 0 && !is_cached {
            self.fetch(&file, None, Source::Guess).await;
        }
        Ok(())
    }

    pub(super) async fn find(&self, prefix: &Arc<str>, name: &str) -> Result<File, FsError> {
        match self.metadata.get(prefix, name).await?.0 {
            Target::File(file) => Ok(file),
            Target::Directory => Err(FsError::IsDirectory),
        }
    }

    async fn fetch(&self, file: &File, range: Option<(u64, u64)>, source: Source) {
        let reader = self.prefetcher.open(&file.object, file.size);
        // That all GETs are taken passes. Memory may be short because of hints that nobody follows.
        let range = loop {
            if let Some(range) = reader.fetch_ahead(range) {
                break range;
            }
            self.hints.look(self.inodes.opens(), Instant::now());
            tokio::time::sleep(PAUSE).await;
        };
        if range.len() > 0 {
            self.hints.keep(reader, range, source, self.inodes.opens());
        }
    }
}

/// Fetches what hints name, in their order, as far ahead as there is room.
async fn fetch_hints(fs: Weak<Filesystem>) {
    loop {
        let Some(fs) = fs.upgrade() else { return };
        // A quarter of the memory: streams and readers that wait have the rest.
        let room = fs.prefetcher.budget().limit_bytes() / 4;
        match fs.hints.next(room, fs.inodes.opens(), Instant::now()) {
            Next::Hint(hint) => {
                if let Err(error) = fs.follow(&hint).await {
                    fs.hints.refuse();
                    tracing::debug!(path = &*hint.path, %error, "a hint leads nowhere");
                }
            }
            Next::Guess(guess) => {
                if let Err(error) = fs.follow_guess(&guess).await {
                    tracing::debug!(name = &*guess.name, %error, "a guess leads nowhere");
                }
            }
            Next::Later(pause) => {
                drop(fs);
                tokio::time::sleep(pause).await;
            }
            Next::Done => return,
        }
    }
}
