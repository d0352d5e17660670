//! Tasks that upload parts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use s3mount_object::{Body, ByteRange, CopySource, ObjectId, UploadId, WrittenPart};

use super::Draft;
use crate::WriteError;
use crate::extents::Content;
use crate::part_layout::PartRange;
use crate::shared::Room;
use crate::state::{Begun, DraftState};
use crate::store::crc;

/// How a task takes the bytes of a part that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Where they lie. What is appended to them begins a block of its own then, and the rest of theirs is wasted.
    Lying,
    /// As copies.
    Copied,
}

/// Bytes that nobody has written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Draft {
    /// Uploads the parts whose ends a sequential writer has passed by a write from `start` to `end`.
    pub(super) fn upload_passed(&self, start: u64, end: u64) {
        let passed = {
            let state = self.state();
            let layout = self.layout(&state);
            let mut passed = Vec::new();
            let mut at = start.saturating_sub(1);
            while let Some(part) = layout.part_at(at).filter(|part| part.end < end) {
                // What is copied inside the store is copied at the end.
                if state.source(part.start, part.end).is_none() {
                    passed.push(part);
                }
                at = part.end;
            }
            passed
        };
        if let Some(me) = self.me.upgrade().filter(|_| !passed.is_empty()) {
            for part in passed {
                me.clone().start(part);
            }
        }
    }

    /// Begins to upload a part, unless the store has it, or a task uploads it already.
    pub(super) fn start(self: Arc<Self>, part: PartRange) -> bool {
        self.start_by(part, Taken::Lying)
    }

    /// As [`start`](Self::start), with the bytes `taken` so.
    pub(super) fn start_by(self: Arc<Self>, part: PartRange, taken: Taken) -> bool {
        {
            let mut state = self.state();
            if state.has_old_upload() && state.stored(0, state.size()).is_none() {
                // It is given up once the tasks have ended that upload to it.
                return false;
            }
            let layout = self.layout(&state);
            state.layout = Some(layout);
            // The cuts may be others than those that the caller has seen.
            if state.is_moving
                || state.failed.is_some()
                || layout.part_at(part.start) != Some(part)
                || !state.part_states.claim(part)
            {
                return false;
            }
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            let written = self.upload(part, taken).await;
            self.end(part, written);
        });
        true
    }

    /// Begins to copy a part inside the store.
    pub(super) fn start_copy(self: Arc<Self>, part: PartRange, object: ObjectId, range: ByteRange) -> bool {
        {
            let mut state = self.state();
            if state.is_moving || !state.part_states.claim(part) {
                return false;
            }
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            let mut copied = self.copy(part, &object, range).await;
            if matches!(copied, Err(WriteError::SourceGone(_)))
                && let Some(late) = self.late_in_place_of(&object).await
            {
                copied = self.copy(part, &late, range).await;
            }
            self.end(part, copied);
        });
        true
    }

    fn end(&self, part: PartRange, written: Result<WrittenPart, WriteError>) {
        let written = written.map_err(|error| self.fail(error)).ok();
        let size = {
            let mut state = self.state();
            let size = state.size();
            state.part_states.finish(part.number, written, size);
            size
        };
        // A part that is not full stays in memory: what is appended to it is what was promised.
        if self.line_of.load(Ordering::Relaxed) == part.number && part.end <= size {
            self.end_line();
        }
        self.leave_old_upload();
        self.ended.send_modify(|ended| *ended += 1);
        if self.shared.draft_reclaimer.is_wanted() {
            self.shared.draft_reclaimer.reclaim(self);
        }
    }

    async fn upload(&self, part: PartRange, taken: Taken) -> Result<WrittenPart, WriteError> {
        let upload = self.begun().await?;
        let (_permit, pieces) = loop {
            let lies_here = taken == Taken::Lying && self.state().is_in_memory(part);
            let gathered = if lies_here { None } else { Some(self.take_gathered(part).await?) };
            let permit = self.shared.requests.acquire().await;
            if let Some(pieces) = gathered.map_or_else(|| self.take_lying(part), |pieces| Ok(Some(pieces)))? {
                break (permit, pieces);
            }
        };
        let (body, _room) = self.body(pieces).await;
        Ok(self.shared.store.put_part(&upload, part.number, &body).await?)
    }

    /// Takes the bytes of a part where they lie. `None` if some have left the memory.
    fn take_lying(&self, part: PartRange) -> Result<Option<Vec<Bytes>>, WriteError> {
        {
            let mut state = self.state();
            state.check()?;
            state.part_states.take(part.number);
        }
        Ok(self.lying(part.start, part.end))
    }

    /// Takes the bytes of a part as copies.
    async fn take_gathered(&self, part: PartRange) -> Result<Vec<Bytes>, WriteError> {
        // What changes from now on makes the part one that is to be sent again.
        self.state().part_states.take(part.number);
        self.gather(part.start, part.end, false).await
    }

    async fn copy(
        &self,
        part: PartRange,
        object: &ObjectId,
        range: ByteRange,
    ) -> Result<WrittenPart, WriteError> {
        let upload = self.begun().await?;
        let _permit = self.shared.requests.acquire().await;
        self.state().part_states.take(part.number);
        let source = CopySource { bucket: None, object: object.clone() };
        let copied = self.shared.store.copy_part(&upload, part.number, &source, range).await;
        copied.map_err(WriteError::of_source)
    }

    /// The body of a request, with its checksum, and the room that the client may take for it.
    pub(super) async fn body(&self, pieces: Vec<Bytes>) -> (Body, Room<'_>) {
        let sum = self.shared.config.has_checksums.then(|| crc(&pieces));
        let pieces = self.joined(&pieces).map_or(pieces, |joined| vec![joined]);
        let room = self.shared.room(&pieces).await;
        let body = Body::new(pieces);
        match sum {
            Some(sum) => (body.with_checksum(sum), room),
            None => (body, room),
        }
    }

    /// Several pieces as one, if there is memory for it in the pool. The client sends one piece where it lies, and
    /// joins several in memory of its own.
    fn joined(&self, pieces: &[Bytes]) -> Option<Bytes> {
        let len: usize = pieces.iter().map(Bytes::len).sum();
        if pieces.len() < 2 || len > self.shared.share.max_buffer_bytes() {
            return None;
        }
        let mut buffer = self.spare_buffer(len as u64)?;
        let mut at = 0;
        for piece in pieces {
            buffer.as_mut()[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Some(Bytes::from_owner(buffer).slice(..len))
    }

    /// The upload, which is begun if it was not.
    async fn begun(&self) -> Result<Arc<UploadId>, WriteError> {
        let _one = self.creating.lock().await;
        {
            let state = self.state();
            state.check()?;
            if let Some(begun) = &state.upload {
                return Ok(begun.upload.clone());
            }
        }
        let (condition, object, upload) = loop {
            let object = self.beside_alone().await?;
            let (key, condition) = {
                let state = self.state();
                (state.key.clone(), state.condition.clone())
            };
            match self.shared.create_upload(&key, &object).await {
                Ok(upload) => break (condition, object, Arc::new(upload)),
                Err(error) if self.leaves_tags(&error) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let is_discarded = {
            let mut state = self.state();
            if !state.is_discarded {
                state.upload = Some(Begun { upload: upload.clone(), condition, object });
            }
            state.is_discarded
        };
        if is_discarded {
            self.shared.abort(&upload).await;
            return Err(WriteError::Discarded);
        }
        Ok(upload)
    }
}

/// The bytes of a range, if they are in memory and frozen.
pub(super) fn pieces(state: &DraftState, start: u64, end: u64) -> Option<Vec<Bytes>> {
    let mut pieces = Vec::new();
    for (from, extent) in state.extents.range(start, end) {
        match &extent.content {
            Content::Frozen(bytes, _) => pieces.push(bytes.clone()),
            Content::Zeros => {
                let len = (from + extent.len).min(end) - from.max(start);
                let whole = std::iter::repeat_n(ZEROS.len() as u64, (len / ZEROS.len() as u64) as usize);
                let lens = whole.chain([len % ZEROS.len() as u64]);
                pieces.extend(lens.map(|len| Bytes::from_static(&ZEROS[..len as usize])));
            }
            Content::Open(_) | Content::Source(_) | Content::Spool | Content::Stored => return None,
        }
    }
    Some(pieces)
}
