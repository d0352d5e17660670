//! Uploads: blocks that wait in a bounded queue, and the tasks that upload them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::Priority;
use s3mount_object::{ByteRange, ErrorKind, ObjectId, PutAnswer, PutObject};
use tokio::time::{Instant, sleep};

use crate::block::{Block, edge_after};
use crate::books::{Books, Upload};
use crate::metrics::PutOutcome;
use crate::patience::PUT_LIMIT_MOST;
use crate::sums::Sums;
use crate::tier_state::{Failure, RequestKind, TierState};

/// Uploads at once. A block of 8 MiB takes some 100 ms at a near store, so these carry more than 1 GB/s.
const MOST_UPLOADS: usize = 16;

/// Parts of blocks that are shorter than this come from random reads, or begin a stream.
const SHORT_PART: u64 = 512 << 10;

/// A block is fetched whole behind random reads once this share of its bytes was fetched by them: a quarter. So the
/// bytes fetched in vain are at most three times those that were read, and a quarter of a block that is read whole.
const FILL_SHARE: u64 = 4;

/// The pause before the one retry of an upload.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl TierState {
    pub(crate) fn offer(self: &Arc<Self>, object: &ObjectId, size: u64, range: ByteRange, bytes: &Bytes) {
        if bytes.len() as u64 != range.len() || range.end() > size || !self.is_writable() {
            return;
        }
        let version = self.version(object);
        let mut at = range.start();
        while at < range.end() {
            let part = ByteRange::new(at, edge_after(at).min(range.end()));
            let from = usize::try_from(part.start() - range.start()).unwrap_or(usize::MAX);
            let to = usize::try_from(part.end() - range.start()).unwrap_or(usize::MAX);
            if let Some(block) = Block::of(version, size, part) {
                self.offer_part(object, block, part, bytes.slice(from..to));
            }
            at = part.end();
        }
    }

    /// Takes some bytes of one block.
    fn offer_part(self: &Arc<Self>, object: &ObjectId, block: Block, range: ByteRange, bytes: Bytes) {
        let mut books = self.books();
        let note = books.notes.get(&block);
        let overwrites = note.is_damaged || books.distrusted.contains(&block.version);
        if note.is_queued || note.is_there && !overwrites {
            return;
        }
        if range == block.range {
            self.enqueue(&mut books, block, vec![bytes], overwrites);
            return;
        }
        let is_short = range.len() < SHORT_PART;
        if let Some(parts) = books.add_part(&block, range, bytes, self.config.queue_bytes) {
            self.enqueue(&mut books, block, parts, overwrites);
        } else if is_short {
            let more = u32::try_from(range.len()).unwrap_or(u32::MAX);
            let note =
                books.notes.update(&block, |note| note.missed_bytes = note.missed_bytes.saturating_add(more));
            let is_worth_it = u64::from(note.missed_bytes) >= block.len() / FILL_SHARE;
            if is_worth_it && books.has_room(block.len(), self.config.queue_bytes) {
                drop(books);
                self.fill(object, block);
            }
        }
    }

    /// Queues a whole block. It is dropped if there is no room, unless room was kept for it.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        books: &mut Books,
        block: Block,
        parts: Vec<Bytes>,
        overwrites: bool,
    ) {
        let note = books.notes.get(&block);
        if note.is_queued || !note.is_promised && !books.has_room(block.len(), self.config.queue_bytes) {
            self.metrics.puts.at(PutOutcome::Dropped).inc();
            return;
        }
        books.assembly.forget(&block);
        books.push(Upload { block, parts, overwrites });
        if books.uploaders < MOST_UPLOADS {
            books.uploaders += 1;
            self.runtime.spawn(self.clone().upload_all());
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let books = self.books();
        books.queued_bytes + books.assembly.bytes()
    }

    pub(crate) fn shed(&self, bytes: u64) -> u64 {
        let mut dropped = Vec::new();
        let mut freed = 0;
        {
            let mut books = self.books();
            while freed < bytes {
                let part = books.assembly.drop_oldest();
                freed += part;
                if part > 0 {
                    continue;
                }
                let Some(upload) = books.shed() else { break };
                freed += upload.block.len();
                dropped.push(upload);
            }
        }
        self.metrics.puts.at(PutOutcome::Dropped).add(dropped.len() as u64);
        freed
    }

    /// Uploads blocks until none waits.
    async fn upload_all(self: Arc<Self>) {
        loop {
            let upload = {
                let mut books = self.books();
                let Some(upload) = books.pop() else {
                    books.uploaders -= 1;
                    return;
                };
                upload
            };
            let outcome = self.upload(&upload).await;
            self.metrics.puts.at(outcome).inc();
            let is_there = matches!(outcome, PutOutcome::Written | PutOutcome::Exists);
            let mut books = self.books();
            books.forget(&upload);
            books.notes.update(&upload.block, |note| {
                (note.is_there, note.is_damaged) = (is_there, note.is_damaged && !is_there);
                // A block in the bucket is no longer promised. It may be gone one day.
                note.is_promised &= !is_there;
                note.is_overdue &= !is_there;
            });
        }
    }

    async fn upload(&self, upload: &Upload) -> PutOutcome {
        let Some(bytes) = self.joined(&upload.parts) else { return PutOutcome::Dropped };
        let metadata = Sums::of(&bytes).to_metadata(&upload.block);
        let mut may_retry = true;
        loop {
            if !self.admits(RequestKind::Write) {
                return PutOutcome::Dropped;
            }
            let (key, only_new) = (self.key(&upload.block), self.has_conditions() && !upload.overwrites);
            let request = PutObject { key, bytes: bytes.clone(), metadata: metadata.clone(), only_new };
            let (began, limit) = (Instant::now(), self.policy().patience.put_limit());
            match self.paced(limit, PUT_LIMIT_MOST, || self.blocks.put_once(request.clone())).await {
                Ok(answer) => {
                    self.policy().patience.note_put(began.elapsed());
                    self.on_good(RequestKind::Write);
                    return match answer {
                        PutAnswer::Written => PutOutcome::Written,
                        PutAnswer::Exists => PutOutcome::Exists,
                    };
                }
                Err(Failure::Error(error)) if only_new && *error.kind() == ErrorKind::Unsupported => {
                    self.forget_conditions();
                }
                Err(failure) => {
                    let may_help = matches!(&failure, Failure::Error(error) if error.is_retryable());
                    self.on_failure(RequestKind::Write, &failure);
                    if failure.is_throttled() || !may_help || !std::mem::take(&mut may_retry) {
                        return PutOutcome::Failed;
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// The parts of a block as one piece of memory. `None` when there is no memory to join them in.
    fn joined(&self, parts: &[Bytes]) -> Option<Bytes> {
        if let [whole] = parts {
            return Some(whole.clone());
        }
        let len = parts.iter().map(Bytes::len).sum();
        let fits = len <= self.pool.max_buffer_bytes();
        let mut buffer = fits.then(|| self.pool.try_buffer(len, Priority::Prefetch)).flatten()?;
        let mut at = 0;
        for part in parts {
            buffer.as_mut()[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Some(Bytes::from_owner(buffer).slice(..len))
    }
}
