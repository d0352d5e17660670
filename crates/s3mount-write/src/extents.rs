//! The bytes of a draft, as extents in the order of their offsets. Pure: nothing here fetches or waits.
//!
//! **Invariant:** the extents cover the file without gaps and overlaps. Only blocks that are open are changed in
//! place. A frozen extent never changes: an upload or a read may have its bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3mount_object::ObjectId;

/// A position in a version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) fn after(&self, bytes: u64) -> Self {
        Self { object: self.object.clone(), offset: self.offset + bytes }
    }
}

/// Where else the bytes of a frozen extent are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// Nowhere, except in a part of the upload, if that part is up to date.
    None,
    Source(Place),
    Spool,
}

/// A buffer that is being filled. Its bytes lie at the front.
#[derive(Debug)]
pub(crate) struct Block<B> {
    pub(crate) buffer: B,
    /// How many bytes of the buffer it may use.
    pub(crate) capacity: u64,
}

/// What an extent is made of.
#[derive(Debug)]
pub(crate) enum Content<B> {
    /// Bytes that may be changed in place, and room for more behind them.
    Open(Block<B>),
    /// Bytes that never change.
    Frozen(Bytes, Copy),
    /// Bytes that nobody has written.
    Zeros,
    /// Bytes of a version.
    Source(Place),
    /// Bytes in the spool, at the same offset.
    Spool,
    /// Bytes that are only in a part of the upload.
    Stored,
}

impl<B> Content<B> {
    /// Where a version has these bytes.
    pub(crate) fn place(&self) -> Option<&Place> {
        match self {
            Self::Source(place) | Self::Frozen(_, Copy::Source(place)) => Some(place),
            Self::Open(_) | Self::Frozen(..) | Self::Zeros | Self::Spool | Self::Stored => None,
        }
    }

    /// The content without its first `bytes`, and the content of these. Open blocks are not cut.
    fn split(self, bytes: u64) -> (Self, Self) {
        match self {
            Self::Open(_) => unreachable!("open blocks are not cut"),
            Self::Frozen(mut front, copy) => {
                let back = front.split_off(usize::try_from(bytes).unwrap_or(usize::MAX));
                let behind = match &copy {
                    Copy::Source(place) => Copy::Source(place.after(bytes)),
                    Copy::None | Copy::Spool => copy.clone(),
                };
                (Self::Frozen(front, copy), Self::Frozen(back, behind))
            }
            Self::Zeros => (Self::Zeros, Self::Zeros),
            Self::Source(place) => {
                let behind = place.after(bytes);
                (Self::Source(place), Self::Source(behind))
            }
            Self::Spool => (Self::Spool, Self::Spool),
            Self::Stored => (Self::Stored, Self::Stored),
        }
    }
}

/// Where bytes are that are not in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// In a version, from there on.
    Source(Place),
    Spool,
    /// Only in a part of the upload.
    Stored,
}

/// Bytes of a file that are not in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) elsewhere: Elsewhere,
}

impl Hole {
    /// Whether the bytes of `next` follow these, here and where they are.
    fn is_continued(&self, next: &Self) -> bool {
        let is_same = match (&self.elsewhere, &next.elsewhere) {
            (Elsewhere::Source(place), Elsewhere::Source(next_place)) => {
                place.after(self.end - self.start) == *next_place
            }
            (one, other) => one == other,
        };
        is_same && self.end == next.start
    }
}

#[derive(Debug)]
pub(crate) struct Extent<B> {
    pub(crate) len: u64,
    pub(crate) content: Content<B>,
}

impl<B> Extent<B> {
    /// The bytes `range` of the file, which begin `inside` bytes behind the beginning of the extent, if they are not
    /// in memory.
    fn hole(&self, inside: u64, (start, end): (u64, u64)) -> Option<Hole> {
        let elsewhere = match &self.content {
            Content::Open(_) | Content::Frozen(..) | Content::Zeros => return None,
            Content::Source(place) => Elsewhere::Source(place.after(inside)),
            Content::Spool => Elsewhere::Spool,
            Content::Stored => Elsewhere::Stored,
        };
        Some(Hole { start, end, elsewhere })
    }
}

/// All bytes of a file.
#[derive(Debug)]
pub(crate) struct Extents<B> {
    map: BTreeMap<u64, Extent<B>>,
    size: u64,
}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Extents<B> {
    /// A file of `size` bytes.
    pub(crate) fn new(size: u64, content: Content<B>) -> Self {
        let map =
            if size > 0 { BTreeMap::from([(0, Extent { len: size, content })]) } else { BTreeMap::new() };
        Self { map, size }
    }

    /// The length of the file, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The extents that have a byte of `start..end`, with their offsets.
    pub(crate) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Extent<B>)> {
        let first = self.start_of(start).unwrap_or(start);
        self.map.range(first..end.max(first)).map(|(start, extent)| (*start, extent))
    }

    /// Where the extent begins that has the byte at `offset`.
    fn start_of(&self, offset: u64) -> Option<u64> {
        let (start, extent) = self.map.range(..=offset).next_back()?;
        (offset < start + extent.len).then_some(*start)
    }

    /// The last open block that begins at `offset` or before it, and where it begins.
    pub(crate) fn block_before(&mut self, offset: u64) -> Option<(u64, u64, &mut Block<B>)> {
        let mut before = self.map.range_mut(..=offset);
        // Between an open block and the bytes in its capacity that are not its own lie few extents.
        before.by_ref().rev().take(8).find_map(|(start, extent)| match &mut extent.content {
            Content::Open(block) => Some((*start, extent.len, block)),
            _ => None,
        })
    }

    /// Where the next open block begins behind `offset`, before `end`.
    pub(crate) fn next_block(&self, offset: u64, end: u64) -> Option<u64> {
        let mut behind = self.map.range(offset + 1..end.max(offset + 1));
        behind.find(|(_, extent)| matches!(extent.content, Content::Open(_))).map(|(start, _)| *start)
    }

    /// Makes sure that an extent begins at `offset`, if the file reaches there. An open block is frozen for it.
    pub(crate) fn cut(&mut self, offset: u64) {
        let Some(start) = self.start_of(offset).filter(|start| *start < offset) else { return };
        let Some(Extent { len, content }) = self.map.remove(&start) else { return };
        let (front, back) = frozen(content, len).split(offset - start);
        self.map.insert(start, Extent { len: offset - start, content: front });
        self.map.insert(offset, Extent { len: start + len - offset, content: back });
    }

    /// Puts an extent of `len` bytes at `start`, instead of what is there. The file grows if it has to; `start`
    /// is not behind its end.
    pub(crate) fn put(&mut self, start: u64, len: u64, content: Content<B>) {
        if len == 0 {
            return;
        }
        self.remove(start, start + len);
        self.map.insert(start, Extent { len, content });
        self.size = self.size.max(start + len);
    }

    /// Adds `bytes` to the open block at `start`, instead of what lies there.
    pub(crate) fn extend(&mut self, start: u64, bytes: u64) {
        let Some(end) = self.map.get(&start).map(|extent| start + extent.len) else { return };
        self.remove(end, end + bytes);
        if let Some(extent) = self.map.get_mut(&start) {
            extent.len += bytes;
        }
        self.size = self.size.max(end + bytes);
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.cut(start);
        self.cut(end);
        let inside: Vec<u64> = self.map.range(start..end.max(start)).map(|(start, _)| *start).collect();
        for start in inside {
            self.map.remove(&start);
        }
    }

    /// Cuts the file to `size` bytes, or makes it that long by zeros.
    pub(crate) fn resize(&mut self, size: u64) {
        if size > self.size {
            let (start, len) = (self.size, size - self.size);
            self.put(start, len, Content::Zeros);
        } else {
            self.remove(size, self.size);
            self.size = size;
        }
    }

    /// Freezes all open blocks in `start..end`. The blocks that reach over these bounds are cut.
    pub(crate) fn freeze(&mut self, start: u64, end: u64) {
        self.cut(start);
        self.cut(end);
        let open: Vec<u64> = self
            .range(start, end)
            .filter(|(_, extent)| matches!(extent.content, Content::Open(_)))
            .map(|(start, _)| start)
            .collect();
        for start in open {
            let Some(Extent { len, content }) = self.map.remove(&start) else { continue };
            self.map.insert(start, Extent { len, content: frozen(content, len) });
        }
    }

    /// Replaces the content of each extent that lies in `start..end`, where `change` has another one for it.
    pub(crate) fn change(
        &mut self,
        start: u64,
        end: u64,
        change: impl Fn(&Content<B>) -> Option<Content<B>>,
    ) {
        self.cut(start);
        self.cut(end);
        for extent in self.map.range_mut(start..end.max(start)).map(|(_, extent)| extent) {
            if let Some(content) = change(&extent.content) {
                extent.content = content;
            }
        }
    }

    /// Replaces the content of the extent that begins at `start`.
    pub(crate) fn change_at(&mut self, start: u64, change: impl FnOnce(Content<B>) -> Content<B>) {
        if let Some(Extent { len, content }) = self.map.remove(&start) {
            self.map.insert(start, Extent { len, content: change(content) });
        }
    }

    /// The first bytes of `start..end` that are not in memory, as far as they follow one another where they are.
    pub(crate) fn hole(&self, start: u64, end: u64) -> Option<Hole> {
        let holes = |(from, extent): (u64, &Extent<B>)| {
            let at = from.max(start);
            extent.hole(at - from, (at, end.min(from + extent.len)))
        };
        let mut extents = self.range(start, end).map(holes).skip_while(Option::is_none);
        let mut first = extents.next()??;
        while let Some(Some(next)) = extents.next()
            && first.is_continued(&next)
        {
            first.end = next.end;
        }
        Some(first)
    }

    /// Copies the bytes from `start` on into `into` that are in memory, and returns where the others are. Each byte
    /// is copied, or lies in one of these ranges. `start + into.len()` is not behind the end of the file.
    pub(crate) fn look(&self, start: u64, into: &mut [u8]) -> Vec<Hole> {
        let end = start + into.len() as u64;
        let (mut at, mut holes) = (start, Vec::<Hole>::new());
        if into.is_empty() {
            return holes;
        }
        for (from, extent) in self.range(start, end) {
            assert_eq!(from.max(start), at, "the extents cover the file");
            let until = end.min(from + extent.len);
            let target = &mut into[index(at - start)..index(until - start)];
            let inside = index(at - from)..index(until - from);
            match &extent.content {
                Content::Open(block) => target.copy_from_slice(&block.buffer.as_ref()[inside]),
                Content::Frozen(bytes, _) => target.copy_from_slice(&bytes[inside]),
                Content::Zeros => target.fill(0),
                Content::Source(_) | Content::Spool | Content::Stored => {
                    let hole = extent.hole(at - from, (at, until));
                    match (holes.last_mut(), hole) {
                        (_, None) => {}
                        (Some(last), Some(hole)) if last.is_continued(&hole) => last.end = hole.end,
                        (_, Some(hole)) => holes.push(hole),
                    }
                }
            }
            at = until;
        }
        assert_eq!(at, end, "the extents cover the file");
        holes
    }
}

/// A length or an offset in memory.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn frozen<B: AsRef<[u8]> + Send + 'static>(content: Content<B>, len: u64) -> Content<B> {
    match content {
        Content::Open(block) => {
            Content::Frozen(Bytes::from_owner(block.buffer).slice(..index(len)), Copy::None)
        }
        other => other,
    }
}
