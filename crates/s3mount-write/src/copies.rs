//! Bytes that a file has from versions, and what publication has to do for each part: upload it, or copy it inside
//! the store. Pure.

use std::time::SystemTime;

use s3mount_object::{ByteRange, ObjectId};

use crate::extents::{Content, Place};
use crate::part_layout::{PartLayout, PartRange};
use crate::state::DraftState;

/// The most bytes that are copied by one request. A copy of 10 GB takes as long with parts of 64 MiB as with
/// parts of 1 GiB, and more than twice as long with parts of 8 MiB.
pub(crate) const MOST_COPIED: u64 = 256 << 20;

/// What is missing of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The part is uploaded from memory.
    Upload(PartRange),
    /// The bytes of some parts that follow one another are copied as one, with the number of the first.
    Copy(PartRange, ObjectId, ByteRange),
}

/// The pieces that are missing of an upload, in the order of their offsets. Copies of up to `most_copied` bytes are made
/// as one. With 0, each part has a number of its own, and no number is left out.
pub(crate) fn plan<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static>(
    state: &DraftState<B>,
    layout: PartLayout,
    most_copied: u64,
) -> Vec<Piece> {
    let size = state.size();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = 0;
    while at < size {
        let Some(part) = layout.part_at(at) else { return pieces };
        if let Some(covering) = state.part_states.covering(part.number, at) {
            at = covering.end;
            continue;
        }
        at = part.end;
        let end = part.end.min(size);
        match (state.copied_part((part.start, end), layout.least()), pieces.last_mut()) {
            (None, _) => pieces.push(Piece::Upload(part)),
            (Some((object, start)), Some(Piece::Copy(first, same, range)))
                if first.end == part.start
                    && *same == object
                    && range.end() == start
                    && range.len() + (end - part.start) <= most_copied =>
            {
                first.end = part.end;
                *range = ByteRange::new(range.start(), range.end() + (end - part.start));
            }
            (Some((object, start)), _) => {
                let range = ByteRange::new(start, start + end - part.start);
                pieces.push(Piece::Copy(part, object, range));
            }
        }
    }
    pieces
}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> DraftState<B> {
    /// Takes `len` bytes of a version at `offset`.
    pub(crate) fn copy(&mut self, place: Place, len: u64, offset: u64, now: SystemTime) {
        let end = offset + len;
        if offset > self.size() {
            self.resize(offset, now);
        }
        self.extents.put(offset, len, Content::Source(place));
        self.touch(offset, end, now);
        self.is_patched |= offset != self.frontier;
        self.frontier = end;
    }

    /// Whether the bytes before `offset` are those of the version before `place`.
    pub(crate) fn is_continued(&self, place: &Place, offset: u64) -> bool {
        let Some((from, extent)) =
            offset.checked_sub(1).and_then(|last| self.extents.range(last, offset).next())
        else {
            return false;
        };
        match extent.content.place() {
            Some(before) => before.object == place.object && before.offset + (offset - from) == place.offset,
            None => false,
        }
    }

    /// The version that a range of the file comes from as a whole, and the offset in it.
    pub(crate) fn source(&self, start: u64, end: u64) -> Option<Place> {
        let (first, extent) = self.extents.range(start, end).next()?;
        let place = extent.content.place()?;
        let place = Place { object: place.object.clone(), offset: place.offset + (start - first) };
        (self.same_source(start, end, &place) >= end).then_some(place)
    }

    /// How many bytes from the beginning on come from one version, one after the other.
    pub(crate) fn copied_head(&self) -> u64 {
        let first = self.extents.range(0, self.size()).next();
        let place = first.and_then(|(_, extent)| extent.content.place());
        place.map_or(0, |place| self.same_source(0, self.size(), place))
    }

    /// Where the bytes of `start..end` end that come from one version, one after the other. That at `start` comes
    /// from `first`.
    fn same_source(&self, start: u64, end: u64, first: &Place) -> u64 {
        let mut at = start;
        for (from, extent) in self.extents.range(start, end) {
            let is_same = |place: &Place| {
                place.object == first.object && place.offset + (at - from) == first.offset + (at - start)
            };
            if !extent.content.place().is_some_and(is_same) {
                break;
            }
            at = from + extent.len;
        }
        at
    }

    /// The version that the file is a copy of.
    pub(crate) fn whole_copy(&self) -> Option<ObjectId> {
        let (object, size) = self.copied.as_ref()?;
        let place = self.source(0, self.size())?;
        (*object == place.object && place.offset == 0 && *size == self.size()).then_some(place.object)
    }

    /// The version and the offset in it that a part is copied from. The store copies no part that
    /// is shorter than `least`, except as the last one.
    fn copied_part(&self, (start, end): (u64, u64), least: u64) -> Option<(ObjectId, u64)> {
        let place = self.source(start, end).filter(|_| end - start >= least || end == self.size())?;
        Some((place.object, place.offset))
    }
}
