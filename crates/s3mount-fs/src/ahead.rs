//! Predicts which files and directories are read next, from hints and from the order of opens.
//!
//! - [`hints`]: the hints of programs, and the hinted ranges that are in memory or being fetched;
//! - [`sequence`]: files, or directories, that are opened in the order of their names;
//! - [`successors`]: the large file that is opened next;
//! - [`fetcher`]: prefetching files;
//! - [`seams`]: joining a large file to the one before it.

mod context;
pub(crate) mod fetcher;
pub(crate) mod hints;
pub(crate) mod seams;
pub(crate) mod sequence;
pub(crate) mod successors;

use std::sync::Arc;

use s3mount_prefetch::{ObjectReader, Prefetcher};

use self::context::Context;
use self::fetcher::Fetcher;
use self::hints::HintWriter;
use self::seams::Seams;
use crate::names::Namespace;
use crate::numbers::InodeNo;
use crate::open::passthrough::Passthrough;
use crate::tree::inode::InodeTable;

/// Prefetches the files that are read next, and the beginnings of large ones.
#[derive(Debug)]
pub(crate) struct Ahead {
    context: Context,
    fetcher: Arc<Fetcher>,
    seams: Arc<Seams>,
}

impl Ahead {
    pub(crate) fn new(namespace: &Arc<Namespace>, inodes: &Arc<InodeTable>, prefetcher: &Prefetcher) -> Self {
        let context = Context {
            namespace: namespace.clone(),
            inodes: inodes.clone(),
            prefetcher: prefetcher.clone(),
            hints: Arc::default(),
            passthrough: Passthrough::default(),
        };
        let (fetcher, seams) = (Fetcher::new(context.clone()), Seams::new(context.clone()));
        Self { context, fetcher: Arc::new(fetcher), seams: Arc::new(seams) }
    }

    /// Sets whether the kernel reads files by itself that lie whole on a disk. These are then not prefetched.
    pub(crate) fn set_passthrough(&self, is_on: bool) {
        self.context.passthrough.set(is_on);
    }

    /// Adds the next bytes of one writer of hints.
    pub(crate) fn take_hints(&self, writer: &Arc<HintWriter>, data: &[u8]) {
        self.fetcher.take_hints(writer, data);
    }

    /// Notes that a file is opened. `is_whole`: all of it lies on a disk. `is_passthrough`: the kernel reads it from
    /// there.
    pub(crate) fn on_open(
        &self,
        ino: InodeNo,
        reader: &Arc<ObjectReader>,
        was_opened_before: bool,
        (is_whole, is_passthrough): (bool, bool),
    ) {
        let key = reader.object().key();
        if is_passthrough {
            self.fetcher.pass_sequence(ino, key);
        } else if !was_opened_before {
            reader.fetch_if_small();
            self.fetcher.follow_sequence(ino, key, false);
        }
        if is_whole || is_passthrough {
            self.context.hints.on_open_whole(reader, is_passthrough);
        }
        self.seams.on_open(ino, reader);
    }

    /// Notes that the kernel asks for the first bytes of a file that was opened before: it has not kept its pages.
    pub(crate) fn on_first_read_again(&self, ino: InodeNo, key: &str) {
        self.fetcher.follow_sequence(ino, key, true);
    }

    /// Notes a READ: `reader` may be near its end.
    pub(crate) fn on_read(&self, ino: InodeNo, reader: &ObjectReader) {
        if let Some(asked) = reader.take_near_end() {
            self.seams.on_near_end(ino, asked);
        }
    }

    /// Notes that a file is closed.
    pub(crate) fn on_close(&self, reader: &ObjectReader) {
        self.seams.on_close(reader);
    }

    /// Notes that a file that was opened before is closed. `was_read`: the kernel did not have its pages.
    pub(crate) fn on_close_again(&self, reader: &Arc<ObjectReader>, was_read: bool) {
        self.context.hints.on_close_again(reader, was_read);
    }

    /// The number of waiting hints, and of hinted files that are in memory or being fetched.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.context.hints.counts()
    }

    /// How many hints were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.context.hints.refused()
    }
}
