//! The books: notes on blocks, the blocks that wait to be uploaded, and the memory that these take. Pure.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use s3mount_object::ByteRange;

use crate::assembly::Assembly;
use crate::block::{Block, Version};
use crate::notes::Notes;

/// The share of the queue's room that parts of blocks may take. After the header of a file, or a random read, the other
/// parts often never come.
const PARTS_SHARE: u64 = 8;

/// Notes on blocks, and the blocks that wait to be uploaded.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) notes: Notes,
    /// Blocks of which parts are in memory.
    pub(crate) assembly: Assembly,
    /// Blocks that wait to be uploaded.
    queue: Queue,
    /// The bytes of the blocks that wait or are being uploaded.
    pub(crate) queued_bytes: u64,
    /// The bytes of the blocks that this mount has promised and not offered yet.
    pub(crate) promised_bytes: u64,
    /// How many tasks upload blocks.
    pub(crate) uploaders: usize,
    /// Versions of which wrong bytes came.
    pub(crate) distrusted: HashSet<Version>,
}

/// The blocks that wait to be uploaded, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    /// Those that this mount has promised to the others.
    promised: VecDeque<Upload>,
    others: VecDeque<Upload>,
}

/// A block that waits to be uploaded.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) block: Block,
    /// The bytes of the block, in order.
    pub(crate) parts: Vec<Bytes>,
    /// Whether it replaces an object in the bucket.
    pub(crate) overwrites: bool,
}

impl Books {
    /// Whether a block of `len` bytes may be promised or kept. Parts of blocks give way.
    pub(crate) fn has_room(&mut self, len: u64, limit: u64) -> bool {
        let taken = self.queued_bytes + self.promised_bytes + len;
        while taken + self.assembly.bytes() > limit && self.assembly.drop_oldest() > 0 {}
        taken <= limit
    }

    /// Keeps a part of a block, if there is room. Returns the parts of the block once it is complete.
    pub(crate) fn add_part(
        &mut self,
        block: &Block,
        range: ByteRange,
        bytes: Bytes,
        limit: u64,
    ) -> Option<Vec<Bytes>> {
        while self.assembly.bytes() + range.len() > limit / PARTS_SHARE && self.assembly.drop_oldest() > 0 {}
        (range.len() <= limit / PARTS_SHARE && self.has_room(range.len(), limit))
            .then(|| self.assembly.add(block, range, bytes))
            .flatten()
    }

    /// Lets a block wait to be uploaded.
    pub(crate) fn push(&mut self, upload: Upload) {
        self.queued_bytes += upload.block.len();
        let note = self.notes.update(&upload.block, |note| note.is_queued = true);
        let of = if note.is_promised { &mut self.queue.promised } else { &mut self.queue.others };
        of.push_back(upload);
    }

    /// The block to upload next: promised blocks come first, because other mounts wait for them.
    pub(crate) fn pop(&mut self) -> Option<Upload> {
        self.queue.promised.pop_front().or_else(|| self.queue.others.pop_front())
    }

    /// Takes out the least needed block.
    pub(crate) fn shed(&mut self) -> Option<Upload> {
        let upload = self.queue.others.pop_back().or_else(|| self.queue.promised.pop_back())?;
        self.forget(&upload);
        Some(upload)
    }

    /// Drops all waiting blocks of a version. Returns how many blocks this keeps from being uploaded.
    pub(crate) fn drop_version(&mut self, version: &Version) -> usize {
        let mut dropped = Vec::new();
        for queue in [&mut self.queue.promised, &mut self.queue.others] {
            let (of_it, kept): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(queue).into_iter().partition(|upload| upload.block.version == *version);
            *queue = kept;
            dropped.extend(of_it);
        }
        dropped.iter().for_each(|upload| self.forget(upload));
        self.assembly.forget_version(version);
        dropped.len()
    }

    /// Takes a block out of the books, which is not uploaded.
    pub(crate) fn forget(&mut self, upload: &Upload) {
        self.queued_bytes -= upload.block.len();
        self.notes.update(&upload.block, |note| {
            // No read of this mount may wait for a promise that this mount has broken.
            (note.is_queued, note.is_overdue) = (false, note.is_overdue || note.is_promised);
        });
    }
}
