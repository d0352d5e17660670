//! Bytes of a draft that are not in memory: fetched from a version, or from the spool.

use bytes::{Bytes, BytesMut};
use s3mount_bucket::{Attempts, Retries};
use s3mount_object::ByteRange;
use tokio::time::Instant;

use super::Draft;
use crate::WriteError;
use crate::extents::{Content, Place};
use crate::state::{BLOCK, index};

/// What a range has to be fetched from.
enum Missing {
    Source(Place),
    Spool,
    Stored,
}

/// A range of a draft keeps what memory has of it while this lives.
struct Keeping<'a>(&'a Draft, u64, u64);

impl<'a> Keeping<'a> {
    fn new(draft: &'a Draft, start: u64, end: u64) -> Self {
        draft.state().kept.add(start, end);
        Self(draft, start, end)
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.state().kept.remove(self.1, self.2);
    }
}

impl Draft {
    /// Brings the bytes `start..end` of the file into memory.
    pub(super) async fn load(&self, start: u64, end: u64) -> Result<(), WriteError> {
        let _keeping = Keeping::new(self, start, end);
        while self.load_first(start, end).await?.is_some() {}
        Ok(())
    }

    /// Brings the first bytes of a range into memory that are not there. Returns them and where they begin.
    async fn load_first(&self, start: u64, end: u64) -> Result<Option<(u64, Bytes)>, WriteError> {
        let Some((at, len, missing)) = self.first_missing(start, end) else { return Ok(None) };
        match missing {
            Missing::Source(place) => {
                let bytes = self.fetch(&place, len).await?;
                self.state().fill(at, &bytes, Some(&place));
                Ok(Some((at, bytes)))
            }
            Missing::Spool => {
                let buffer = self.buffer(len).await?;
                let (bytes, _kept) = self.unspill(at, len, buffer).await?;
                self.state().fill(at, &bytes, None);
                Ok(Some((at, bytes)))
            }
            Missing::Stored => Err(WriteError::NotReadable { offset: at }),
        }
    }

    /// The first bytes of a range that are not in memory, and where they are.
    fn first_missing(&self, start: u64, end: u64) -> Option<(u64, u64, Missing)> {
        let state = self.state();
        let mut extents = state.extents.range(start, end.min(state.size())).peekable();
        loop {
            let (from, extent) = extents.next()?;
            let at = from.max(start);
            let mut to = (from + extent.len).min(end);
            let missing = match &extent.content {
                Content::Source(place) => Missing::Source(Place {
                    object: place.object.clone(),
                    offset: place.offset + (at - from),
                }),
                Content::Spool => Missing::Spool,
                Content::Stored => Missing::Stored,
                Content::Open(_) | Content::Frozen(..) | Content::Zeros => continue,
            };
            // Small pieces went to the spool. They come back as one.
            while matches!(missing, Missing::Spool)
                && to - at < BLOCK
                && let Some((_, next)) =
                    extents.next_if(|(_, extent)| matches!(extent.content, Content::Spool))
            {
                to = (to + next.len).min(end);
            }
            return Some((at, (to - at).min(BLOCK), missing));
        }
    }

    /// Fetches `len` bytes of a version.
    async fn fetch(&self, place: &Place, len: u64) -> Result<Bytes, WriteError> {
        let deadline = Instant::now() + self.shared.config.timeout;
        let attempts = Attempts::new(std::time::Duration::from_secs(1), self.shared.store.seed());
        let mut retries = Retries::new(&self.shared.store.retry_budget, attempts, deadline);
        let range = ByteRange::new(place.offset, place.offset + len);
        loop {
            let buffer = self.buffer(len).await?;
            let get = self.shared.store.get(&place.object, range, buffer);
            match retries.attempt("GetObject", place.object.key(), get).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => retries.pause(error, || true).await.map_err(WriteError::of_source)?,
            }
        }
    }

    pub(super) async fn read_from(&self, offset: u64, len: usize) -> Result<Bytes, WriteError> {
        let end = {
            let state = self.state();
            let end = state.size().min(offset.saturating_add(len as u64));
            if offset >= end {
                return Ok(Bytes::new());
            }
            if let Some(bytes) = whole(&state, offset, end) {
                return Ok(bytes);
            }
            end
        };
        let mut into = BytesMut::zeroed(index(end - offset));
        let mut at = offset;
        while at < end {
            at = self.state().extents.copy_out(at, &mut into[index(at - offset)..]);
            if let Some((from, bytes)) = self.load_first(at, end).await? {
                // What was loaded may have been dropped again when it is looked for.
                let len = bytes.len().min(index(end - from));
                into[index(from - offset)..][..len].copy_from_slice(&bytes[..len]);
                at = from + len as u64;
            }
        }
        Ok(into.freeze())
    }
}

/// The bytes of a range, if they lie in one frozen extent. Nothing is copied.
fn whole(state: &crate::state::State, start: u64, end: u64) -> Option<Bytes> {
    let (from, extent) = state.extents.range(start, end).next()?;
    match &extent.content {
        Content::Frozen(bytes, _) if end <= from + extent.len => {
            Some(bytes.slice(index(start - from)..index(end - from)))
        }
        _ => None,
    }
}
