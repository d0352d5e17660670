//! Bytes in memory that are elsewhere, too: in the spool, in a version, or in a part of the upload. Pure.

use bytes::Bytes;

use crate::extents::{Content, Copy, Extent};
use crate::part_layout::PartRange;
use crate::state::{DraftState, index};

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> DraftState<B> {
    /// Freezes a part, and returns its bytes that are in memory and not in the spool, with their offsets.
    pub(crate) fn unspooled(&mut self, part: PartRange) -> Vec<(u64, Bytes)> {
        let end = part.end.min(self.size());
        self.extents.freeze(part.start, end);
        let extents = self.extents.range(part.start, end);
        let piece = |(at, extent): (u64, &Extent<B>)| match &extent.content {
            Content::Frozen(bytes, Copy::None) => Some((at, bytes.clone())),
            _ => None,
        };
        extents.filter_map(piece).collect()
    }

    /// How many bytes of a part are in memory and not in the spool.
    pub(crate) fn unspooled_bytes(&self, part: PartRange) -> u64 {
        let extents = self.extents.range(part.start, part.end.min(self.size()));
        let is_unspooled =
            |extent: &Extent<B>| matches!(extent.content, Content::Open(_) | Content::Frozen(_, Copy::None));
        extents.map(|(_, extent)| if is_unspooled(extent) { extent.len } else { 0 }).sum()
    }

    /// Pieces were written to the spool. Notes it where the file still has them.
    pub(crate) fn spooled(&mut self, pieces: &[(u64, Bytes)]) {
        for (start, piece) in pieces {
            let end = start + piece.len() as u64;
            let same: Vec<(u64, u64, Bytes)> = self
                .extents
                .range(*start, end)
                .filter_map(|(at, extent)| match &extent.content {
                    // What was cut off is a part of the same memory.
                    Content::Frozen(bytes, Copy::None)
                        if at >= *start
                            && at + extent.len <= end
                            && bytes.as_ptr() == piece[index(at - start)..].as_ptr() =>
                    {
                        Some((at, extent.len, bytes.clone()))
                    }
                    _ => None,
                })
                .collect();
            for (at, len, bytes) in same {
                self.extents.put(at, len, Content::Frozen(bytes, Copy::Spool));
            }
        }
    }

    /// Drops all bytes in memory, although they are nowhere else.
    pub(crate) fn lose_all(&mut self) {
        self.extents.change(0, self.size(), |content| match content {
            Content::Open(_) | Content::Frozen(..) => Some(Content::Stored),
            Content::Zeros | Content::Source(_) | Content::Spool | Content::Stored => None,
        });
    }

    /// Drops the bytes of a part that are elsewhere, too. `is_current`: the store has the part. Returns whether
    /// anything was dropped.
    pub(crate) fn evict(&mut self, part: PartRange, is_current: bool) -> bool {
        if is_current {
            // What was gathered for the store was copied, and may have blocks that are open still.
            self.extents.freeze(part.start, part.end.min(self.size()));
        }
        let has = |extent: &Content<B>| match extent {
            Content::Frozen(_, Copy::None) => is_current,
            Content::Frozen(_, Copy::Source(_) | Copy::Spool) => true,
            Content::Open(_) | Content::Zeros | Content::Source(_) | Content::Spool | Content::Stored => {
                false
            }
        };
        let ranges = self.pinned.others(part.start, part.end.min(self.size()));
        let mut has_evicted = false;
        for (start, end) in ranges {
            if !self.extents.range(start, end).any(|(_, extent)| has(&extent.content)) {
                continue;
            }
            has_evicted = true;
            self.extents.change(start, end, |content| match content {
                Content::Frozen(_, Copy::None) if is_current => Some(Content::Stored),
                Content::Frozen(_, Copy::Source(place)) => Some(Content::Source(place.clone())),
                Content::Frozen(_, Copy::Spool) => Some(Content::Spool),
                _ => None,
            });
        }
        has_evicted
    }

    /// Whether all bytes of a part are in memory.
    pub(crate) fn is_in_memory(&self, part: PartRange) -> bool {
        let mut extents = self.extents.range(part.start, part.end.min(self.size()));
        extents.all(|(_, extent)| match extent.content {
            Content::Open(_) | Content::Frozen(..) | Content::Zeros => true,
            Content::Source(_) | Content::Spool | Content::Stored => false,
        })
    }
}
