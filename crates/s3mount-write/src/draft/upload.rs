//! Tasks that upload parts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use s3mount_object::{Body, ByteRange, CopySource, ObjectId, UploadId, WrittenPart};

use super::Draft;
use crate::WriteError;
use crate::extents::Content;
use crate::grid::Cell;
use crate::shared::Room;
use crate::state::{Begun, DraftState};
use crate::store::crc;

/// Bytes that nobody has written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Draft {
    /// Uploads the parts whose ends a sequential writer has passed by a write from `start` to `end`.
    pub(super) fn upload_passed(&self, start: u64, end: u64) {
        let passed = {
            let state = self.state();
            let grid = self.grid(&state);
            let mut passed = Vec::new();
            let mut at = start.saturating_sub(1);
            while let Some(cell) = grid.cell(at).filter(|cell| cell.end < end) {
                // What is copied inside the store is copied at the end.
                if state.source(cell.start, cell.end).is_none() {
                    passed.push(cell);
                }
                at = cell.end;
            }
            passed
        };
        if let Some(me) = self.me.upgrade().filter(|_| !passed.is_empty()) {
            for cell in passed {
                me.clone().start(cell);
            }
        }
    }

    /// Begins to upload a part, unless the store has it, or a task uploads it already.
    pub(super) fn start(self: Arc<Self>, cell: Cell) -> bool {
        {
            let mut state = self.state();
            if state.has_old_upload() && state.stored(0, state.size()).is_none() {
                // It is given up once the tasks have ended that upload to it.
                return false;
            }
            let grid = self.grid(&state);
            state.grid = Some(grid);
            // The cuts may be others than those that the caller has seen.
            if state.is_moving
                || state.failed.is_some()
                || grid.cell(cell.start) != Some(cell)
                || !state.cells.claim(cell)
            {
                return false;
            }
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            let written = self.upload(cell).await;
            self.end(cell, written);
        });
        true
    }

    /// Begins to copy a part inside the store.
    pub(super) fn start_copy(self: Arc<Self>, cell: Cell, object: ObjectId, range: ByteRange) -> bool {
        {
            let mut state = self.state();
            if state.is_moving || !state.cells.claim(cell) {
                return false;
            }
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            let copied = self.copy(cell, &object, range).await;
            self.end(cell, copied);
        });
        true
    }

    fn end(&self, cell: Cell, written: Result<WrittenPart, WriteError>) {
        let written = written.map_err(|error| self.fail(error)).ok();
        {
            let mut state = self.state();
            let size = state.size();
            state.cells.finish(cell.number, written, size);
        }
        if self.line_of.load(Ordering::Relaxed) == cell.number {
            self.end_line();
        }
        self.leave_old_upload();
        self.ended.send_modify(|ended| *ended += 1);
        if self.shared.givers.is_wanted() {
            self.shared.givers.relieve(self);
        }
    }

    async fn upload(&self, cell: Cell) -> Result<WrittenPart, WriteError> {
        let upload = self.begun().await?;
        let (_turn, pieces) = loop {
            let is_here = self.state().is_in_memory(cell);
            let gathered = if is_here { None } else { Some(self.take_gathered(cell).await?) };
            let turn = self.shared.requests.acquire().await;
            if let Some(pieces) = gathered.map_or_else(|| self.take_lying(cell), |pieces| Ok(Some(pieces)))? {
                break (turn, pieces);
            }
        };
        let (body, _room) = self.body(pieces).await;
        Ok(self.shared.store.put_part(&upload, cell.number, &body).await?)
    }

    /// Takes the bytes of a part where they lie. `None` if some have left the memory.
    fn take_lying(&self, cell: Cell) -> Result<Option<Vec<Bytes>>, WriteError> {
        {
            let mut state = self.state();
            state.check()?;
            state.cells.take(cell.number);
        }
        Ok(self.lying(cell.start, cell.end))
    }

    /// Takes the bytes of a part as copies.
    async fn take_gathered(&self, cell: Cell) -> Result<Vec<Bytes>, WriteError> {
        // What changes from now on makes the part one that is to be sent again.
        self.state().cells.take(cell.number);
        self.gather(cell.start, cell.end, false).await
    }

    async fn copy(&self, cell: Cell, object: &ObjectId, range: ByteRange) -> Result<WrittenPart, WriteError> {
        let upload = self.begun().await?;
        let _turn = self.shared.requests.acquire().await;
        self.state().cells.take(cell.number);
        let source = CopySource { bucket: None, object: object.clone() };
        let copied = self.shared.store.copy_part(&upload, cell.number, &source, range).await;
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
