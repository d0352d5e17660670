//! READs that fill the kernel's page cache: those of random maps are answered by the piece.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3mount_object::{ByteRange, extension};

use super::{Filesystem, OpenObject};
use crate::FsError;
use crate::inode::InodeNo;
use crate::page_cache::map_reads::{Answer, may_be_read_around};
use crate::page_cache::map_table::{Kind, Watched};

impl Filesystem {
    /// Says how much the kernel reads ahead, and around a fault, of files on this mount, in bytes.
    pub fn set_readahead(&self, bytes: u64) {
        self.maps.set_readahead(bytes);
    }

    /// Reads as [`read`](Self::read) does, for a READ by which the kernel fills its page cache: one that
    /// reads ahead of its caller, or around a fault, may be answered with [`FsError::Refused`]. The kernel
    /// then asks for the pages that are wanted, and its caller never hears of it.
    pub fn fill<R>(self: &Arc<Self>, handle: u64, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let Some(open) = self.object(handle) else { return self.read(handle, offset, len, reply) };
        self.on_auto_fill(&open, offset, len);
        let answer = self.sort(&open, ByteRange::new(offset, offset.saturating_add(len as u64)));
        match answer {
            Answer::Refuse => reply(Err(FsError::Refused)),
            Answer::Serve | Answer::Apart => {
                self.read_object(&open, offset, len, answer == Answer::Apart, reply);
            }
        }
    }

    /// What to do with a READ. A hit of a stream takes no lock here.
    fn sort(&self, open: &OpenObject, read: ByteRange) -> Answer {
        let readahead_bytes = self.maps.readahead_bytes();
        if readahead_bytes == 0 {
            return Answer::Serve;
        }
        let goes_on = open.last_end.swap(read.end(), Ordering::Relaxed) == read.start();
        let size = open.reader.size();
        if open.watched.get().is_none_or(|file| file.is_only_watching()) {
            if goes_on && !open.has_gone_on.load(Ordering::Relaxed) {
                open.has_gone_on.store(true, Ordering::Relaxed);
            }
            if goes_on || !may_be_read_around(read, readahead_bytes, size) || !self.maps.is_worth_it(size) {
                return Answer::Serve;
            }
        }
        let Some(file) = self.watched(open) else { return Answer::Serve };
        let was_stream = open.has_gone_on.swap(false, Ordering::Relaxed);
        let decision = self.maps.on_read(&file, read, was_stream, || open.reader.is_streamed(read));
        tracing::trace!(%read, len = read.len(), ?decision, "sorted");
        if let Some(range) = decision.drop {
            // One that finds no room is dropped later, or never: its reader is slow then, and right.
            let _ = self.refused_pages.0.try_send((open.ino, range));
        }
        if let Some(change) = decision.change {
            tracing::debug!(object = ?open.reader.object(), ?change, "how a file is read through maps");
        }
        decision.answer
    }

    fn watched(&self, open: &OpenObject) -> Option<Arc<Watched>> {
        if let Some(file) = open.watched.get() {
            return Some(file.clone());
        }
        let file = self.maps.watch(open.ino, open.reader.size(), self.kind(open.ino)?);
        Some(open.watched.get_or_init(|| file).clone())
    }

    /// The folder of a file, and its extension.
    pub(super) fn kind(&self, ino: InodeNo) -> Option<Kind> {
        let (parent, name) = self.inodes.place(ino)?;
        Some((parent, extension(&name).into()))
    }

    /// Waits until pages that were refused are in somebody's way: an inode and its bytes, which the kernel
    /// is to drop from its page cache. For one caller at a time.
    pub async fn refused_pages(&self) -> (InodeNo, ByteRange) {
        let mut pages = self.refused_pages.1.lock().await;
        match pages.recv().await {
            Some(refused) => refused,
            // The sender is ours.
            None => std::future::pending().await,
        }
    }
}
