//! What publication has to do for each part: upload it, or copy it inside the store. Pure.

use s3mount_object::{ByteRange, ObjectId};

use crate::extents::Content;
use crate::grid::{Cell, Grid, LEAST_PART};
use crate::state::State;

/// The most bytes that are copied by one request. A copy of 10 GB takes as long with parts of 64 MiB as with
/// parts of 1 GiB, and more than twice as long with parts of 8 MiB.
const MOST_COPIED: u64 = 256 << 20;

/// What is missing of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The part is uploaded from memory.
    Upload(Cell),
    /// The bytes of some parts that follow one another are copied as one, with the number of the first.
    Copy(Cell, ObjectId, ByteRange),
}

/// The pieces that are missing of an upload, in the order of their offsets.
pub(crate) fn plan<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static>(
    state: &State<B>,
    grid: Grid,
) -> Vec<Piece> {
    let size = state.size();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = 0;
    while at < size {
        let Some(cell) = grid.cell(at) else { return pieces };
        if let Some(covering) = state.cells.covering(cell.number, at) {
            at = covering.end;
            continue;
        }
        at = cell.end;
        let end = cell.end.min(size);
        match (source(state, cell.start, end), pieces.last_mut()) {
            (None, _) => pieces.push(Piece::Upload(cell)),
            (Some((object, start)), Some(Piece::Copy(first, same, range)))
                if first.end == cell.start
                    && *same == object
                    && range.end() == start
                    && range.len() + (end - cell.start) <= MOST_COPIED =>
            {
                first.end = cell.end;
                *range = ByteRange::new(range.start(), range.end() + (end - cell.start));
            }
            (Some((object, start)), _) => {
                let range = ByteRange::new(start, start + end - cell.start);
                pieces.push(Piece::Copy(cell, object, range));
            }
        }
    }
    pieces
}

/// The version and the offset in it that a range of the file comes from as a whole.
fn source<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static>(
    state: &State<B>,
    start: u64,
    end: u64,
) -> Option<(ObjectId, u64)> {
    use crate::extents::Copy;
    let mut found: Option<(ObjectId, u64)> = None;
    for (from, extent) in state.extents.range(start, end) {
        let (Content::Source(place) | Content::Frozen(_, Copy::Source(place))) = &extent.content else {
            return None;
        };
        let at = from.max(start);
        let offset = place.offset + (at - from);
        match &found {
            None => found = Some((place.object.clone(), offset)),
            Some((object, first)) if *object == place.object && *first + (at - start) == offset => {}
            Some(_) => return None,
        }
    }
    // S3 copies no part that is shorter, except as the last one.
    found.filter(|_| end - start >= LEAST_PART || end == state.size())
}
