//! Bytes of a draft that are not in memory: fetched from a version, or from the spool.
//!
//! A change brings the bytes around it into memory, and pins them there as long as it needs them. Bytes that readers
//! have brought there are dropped when memory is short.

use bytes::Bytes;
use s3mount_object::{ByteRange, ObjectId, PartBuffer};

use super::Draft;
use crate::WriteError;
use crate::extents::{Elsewhere, Hole, Place};
use crate::state::{BLOCK, DraftState};

/// A range of a draft is pinned in memory while this lives.
pub(super) struct PinGuard<'a>(&'a Draft, u64, u64);

impl<'a> PinGuard<'a> {
    pub(super) fn new(draft: &'a Draft, state: &mut DraftState, start: u64, end: u64) -> Self {
        state.pinned.add(start, end);
        Self(draft, start, end)
    }
}

impl Drop for PinGuard<'_> {
    fn drop(&mut self) {
        self.0.state().pinned.remove(self.1, self.2);
    }
}

impl Draft {
    /// Brings the bytes `start..end` of the file into memory. They stay there as long as the answer lives.
    pub(super) async fn load(&self, start: u64, end: u64) -> Result<PinGuard<'_>, WriteError> {
        let pin = PinGuard::new(self, &mut self.state(), start, end);
        while let Some(hole) = self.first_hole(start, end) {
            self.load_hole(hole).await?;
        }
        Ok(pin)
    }

    async fn load_hole(&self, Hole { start, end, elsewhere }: Hole) -> Result<(), WriteError> {
        match elsewhere {
            Elsewhere::Source(place) => {
                let bytes = self.fetch(&place, end - start, || self.buffer(end - start)).await?;
                self.state().fill(start, &bytes, Some(&place));
            }
            Elsewhere::Spool => {
                let buffer = self.buffer(end - start).await?;
                let (bytes, _spooled) = self.unspill(start, end - start, buffer).await?;
                self.state().fill(start, &bytes, None);
            }
            Elsewhere::Stored => return Err(WriteError::NotReadable { offset: start }),
        }
        Ok(())
    }

    /// The first bytes of a range that are not in memory, and where they are. Small pieces that follow one another come
    /// back as one.
    fn first_hole(&self, start: u64, end: u64) -> Option<Hole> {
        let state = self.state();
        let hole = state.extents.hole(start, end.min(state.size()))?;
        Some(Hole { end: hole.end.min(hole.start + BLOCK), ..hole })
    }

    /// Fetches `len` bytes of a version into a `buffer`.
    pub(super) async fn fetch<B: PartBuffer, F: Future<Output = Result<B, WriteError>>>(
        &self,
        place: &Place,
        len: u64,
        buffer: impl Fn() -> F,
    ) -> Result<Bytes, WriteError> {
        let range = ByteRange::new(place.offset, place.offset + len);
        let got = |object: ObjectId| {
            let buffer = &buffer;
            async move {
                let got = self.shared.store.bucket.get(&object, range, buffer).await;
                got.map_err(|error| match error {
                    WriteError::Object(error) => WriteError::of_source(error),
                    error => error,
                })
            }
        };
        match got(place.object.clone()).await {
            Err(error @ WriteError::SourceGone(_)) => match self.late_in_place_of(&place.object).await {
                Some(late) => got(late).await,
                None => Err(error),
            },
            got => got,
        }
    }
}
