//! What a draft is at one moment: its bytes, what the store has of them, and under which name it shows. Pure:
//! it says what is missing (a buffer, bytes of the source), and the callers bring that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use s3mount_memory::ShareBuffer;
use s3mount_object::{Condition, NewObject, ObjectId, UploadId, WrittenPart};

use crate::WriteError;
use crate::beside::Unknown;
use crate::extents::{Block, Content, Copy, Extents, Place};
use crate::kept::KeptDraft;
use crate::part_layout::{PAGE, PartLayout, PartRange};
use crate::part_states::PartStates;
use crate::pinned::PinnedRanges;
use crate::ranges::Ranges;
use crate::spool::{Spool, SpoolFile};

/// The largest block of a file that is not a stream yet, and of every file while memory is short.
pub(crate) const BLOCK: u64 = 1 << 20;

/// A buffer of one draft, which counts how many bytes the draft holds.
#[derive(Debug)]
pub(crate) struct Held {
    buffer: ShareBuffer,
    held: Arc<AtomicU64>,
}

impl Held {
    pub(crate) fn new(buffer: ShareBuffer, held: &Arc<AtomicU64>) -> Self {
        held.fetch_add(buffer.held_bytes(), Ordering::Relaxed);
        Self { buffer, held: held.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.fetch_sub(self.buffer.held_bytes(), Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl AsMut<[u8]> for Held {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut()
    }
}

/// What became of a draft.
#[derive(Clone, Debug)]
pub struct Published {
    /// The version that the store has now.
    pub object: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// When the file was changed last.
    pub modified: SystemTime,
}

/// What a write needs before it can go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Nothing: it is done.
    Nothing,
    /// A buffer of this many bytes. `least` would do.
    Buffer { len: u64, least: u64 },
    /// The bytes from here to there in memory.
    Bytes(u64, u64),
}

/// The upload of a draft.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) upload: Arc<UploadId>,
    /// What has to be true of the key of the upload.
    pub(crate) condition: Option<Condition>,
    /// What its object gets beside the bytes.
    pub(crate) object: NewObject,
}

/// What the keeper of a draft knows of its changes since it was made, or was published last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// There are none.
    Unchanged,
    /// All.
    Kept,
    /// All but the one that is under way.
    Changing,
    /// That they are lost if the process ends.
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct DraftState<B = Held> {
    /// What the object is to have beside its bytes.
    pub(crate) object: NewObject,
    /// What is to be asked for before that is right.
    pub(crate) unknown: Option<Unknown>,
    /// Whether it has tags because the object had them.
    pub(crate) has_kept_tags: bool,
    /// Whether that was changed since the last publication.
    pub(crate) is_described_anew: bool,
    /// Whether that was changed after the upload had begun that is complete now.
    pub(crate) is_described_late: bool,
    pub(crate) key: String,
    pub(crate) condition: Option<Condition>,
    pub(crate) extents: Extents<B>,
    /// How the file is cut. Fixed once an upload has begun.
    pub(crate) layout: Option<PartLayout>,
    pub(crate) part_states: PartStates<WrittenPart>,
    pub(crate) upload: Option<Begun>,
    pub(crate) modified: SystemTime,
    /// How often the file, or its key, has changed.
    pub(crate) changes: u64,
    /// The version that bytes were copied from last, and its length in bytes.
    pub(crate) copied: Option<(ObjectId, u64)>,
    /// The version that was published last, and how often the file had changed then.
    pub(crate) published: Option<(u64, Published)>,
    /// Where the last write ended.
    pub(crate) frontier: u64,
    /// Whether a write did not begin where the one before it ended.
    pub(crate) is_patched: bool,
    /// How many bytes a task writes to the spool now.
    pub(crate) spilling_bytes: u64,
    /// What is brought into memory now.
    pub(crate) pinned: PinnedRanges,
    pub(crate) failed: Option<Arc<WriteError>>,
    pub(crate) is_discarded: bool,
    /// Whether no task may begin to upload a part: the version that the file is made of gets another key.
    pub(crate) is_moving: bool,
    /// The draft's file in the spool, once it has one. Who reads it goes on with it when the draft gives it back.
    pub(crate) spool: Option<Arc<SpoolFile>>,
    /// Whether that file is not its own: others have all bytes there, and the draft changes none of them.
    pub(crate) is_resting: bool,
    pub(crate) keeping: Keeping,
    /// What changes that are kept have written to that file, as far as it has not changed since.
    pub(crate) in_file: Ranges,
}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> DraftState<B> {
    pub(crate) fn new(key: &str, source: Option<(ObjectId, u64)>, modified: SystemTime) -> Self {
        let published = source.clone().map(|(object, size)| (0, Published { object, size, modified }));
        let (extents, condition) = match source {
            None => (Extents::new(0, Content::Zeros), None),
            Some((object, size)) => {
                let condition = Some(Condition::Matches(object.etag().clone()));
                (Extents::new(size, Content::Source(Place { object, offset: 0 })), condition)
            }
        };
        Self {
            object: NewObject::default(),
            unknown: None,
            has_kept_tags: false,
            is_described_anew: false,
            is_described_late: false,
            key: key.to_owned(),
            condition,
            frontier: extents.size(),
            extents,
            layout: None,
            part_states: PartStates::default(),
            upload: None,
            modified,
            changes: 0,
            copied: None,
            published,
            is_patched: false,
            spilling_bytes: 0,
            pinned: PinnedRanges::default(),
            failed: None,
            is_discarded: false,
            is_moving: false,
            spool: None,
            is_resting: false,
            keeping: Keeping::Unchanged,
            in_file: Ranges::default(),
        }
    }

    /// What the process before has left.
    pub(crate) fn of_kept(key: &str, kept: KeptDraft, spool: &Spool, now: SystemTime) -> Self {
        let KeptDraft { file, base, base_bytes, size, mut spooled } = kept;
        spooled.remove(size, u64::MAX);
        let mut state = Self::new(key, base, now);
        state.extents.resize(base_bytes.min(state.size()));
        state.extents.resize(size);
        for (start, end) in spooled.iter() {
            state.extents.put(start, end - start, Content::Spool);
        }
        Self {
            frontier: size,
            changes: 1,
            spool: Some(Arc::new(spool.count(file))),
            keeping: Keeping::Kept,
            in_file: spooled,
            ..state
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.extents.size()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.published.as_ref().is_none_or(|(changes, _)| *changes != self.changes)
    }

    /// Whether the upload that has begun is bound to an earlier key of the file.
    pub(crate) fn has_old_upload(&self) -> bool {
        self.upload.as_ref().is_some_and(|begun| begun.upload.key != self.key)
    }

    /// Gives up the upload to an earlier key, so that all is uploaded to the new key. `None` if there is none, if a
    /// task uploads a part to it, or if bytes are in that upload and nowhere else.
    pub(crate) fn leave_old_upload(&mut self) -> Option<Begun> {
        let may_leave =
            self.has_old_upload() && self.part_states.claimed() == 0 && self.stored(0, self.size()).is_none();
        if !may_leave {
            return None;
        }
        (self.part_states, self.layout) = (PartStates::default(), None);
        self.upload.take()
    }

    /// The error of all later calls, if something has failed.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        self.failed.as_ref().map_or(Ok(()), |failed| Err(WriteError::Failed(failed.clone())))
    }

    /// Notes that bytes have changed.
    pub(crate) fn touch(&mut self, start: u64, end: u64, now: SystemTime) {
        self.part_states.touch(start, end);
        self.in_file.remove(start, end);
        self.changes += 1;
        self.modified = now;
    }

    /// Writes as much of `data` at `offset` as it can. Takes `spare` when it needs a buffer. Returns how many
    /// bytes it has written, and what it needs for more.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        spare: &mut Option<B>,
        plan: PartLayout,
    ) -> Result<(usize, Wants), WriteError> {
        let end = offset + data.len() as u64;
        if offset > self.size() {
            self.part_states.touch(self.size(), offset);
            self.extents.resize(offset);
        }
        let mut at = offset;
        while at < end {
            let rest = &data[index(at - offset)..];
            let written = match self.write_block(at, rest)? {
                Some(written) => written,
                None => match self.write_new_block(at, rest, spare, plan)? {
                    Ok(written) => written,
                    Err(wants) => {
                        self.advance(offset, at);
                        return Ok((index(at - offset), wants));
                    }
                },
            };
            at += written;
        }
        self.advance(offset, end);
        Ok((data.len(), Wants::Nothing))
    }

    /// Bytes were written from `start` to `end`, maybe the first of a write that goes on later.
    fn advance(&mut self, start: u64, end: u64) {
        if start < end {
            self.is_patched |= start != self.frontier;
            self.frontier = end;
        }
    }

    /// Writes into the open block that has `at` in it or has room for it. Returns how many bytes it took.
    /// `None`: there is no such block.
    fn write_block(&mut self, at: u64, data: &[u8]) -> Result<Option<u64>, WriteError> {
        let Some((start, len, block)) = self.extents.block_before(at) else { return Ok(None) };
        let (end, room) = (start + len, start + block.capacity);
        if at >= room {
            return Ok(None);
        }
        if at >= end + PAGE {
            // The bytes between would have to be copied. Another block begins.
            block.capacity = len.next_multiple_of(PAGE);
            return Ok(None);
        }
        let taken = (data.len() as u64).min(room - at);
        let mut gap = vec![0; index(at.saturating_sub(end))];
        if !self.extents.look(end.min(at), &mut gap).is_empty() {
            // They are to be fetched. The block that is opened for the write says so.
            return Ok(None);
        }
        let Some((_, _, block)) = self.extents.block_before(at) else { return Ok(None) };
        let bytes = block.buffer.as_mut();
        bytes[index(len)..][..gap.len()].copy_from_slice(&gap);
        bytes[index(at - start)..index(at - start + taken)].copy_from_slice(&data[..index(taken)]);
        self.extents.extend(start, (at + taken).saturating_sub(end));
        Ok(Some(taken))
    }

    /// Opens a block for `at`, and writes into it.
    fn write_new_block(
        &mut self,
        at: u64,
        data: &[u8],
        spare: &mut Option<B>,
        plan: PartLayout,
    ) -> Result<Result<u64, Wants>, WriteError> {
        let layout = self.layout.unwrap_or(plan);
        let part = layout.part_at(at).ok_or(WriteError::TooLarge { size: at + data.len() as u64 })?;
        let start = self.block_start(at, part);
        let mut gap = vec![0; index(at - start)];
        if let Some(hole) = self.extents.look(start, &mut gap).first() {
            return Ok(Err(Wants::Bytes(hole.start, at)));
        }
        let behind = self.extents.next_block(at, part.end).unwrap_or(part.end);
        let (len, least) = self.block_len(start, at + data.len() as u64, behind, part);
        let Some(mut buffer) = spare.take_if(|spare| (*spare).as_ref().len() as u64 > at - start) else {
            return Ok(Err(Wants::Buffer { len, least }));
        };
        let capacity = (buffer.as_ref().len() as u64).min(behind - start);
        let taken = (data.len() as u64).min(start + capacity - at);
        let bytes = buffer.as_mut();
        bytes[..gap.len()].copy_from_slice(&gap);
        bytes[gap.len()..][..index(taken)].copy_from_slice(&data[..index(taken)]);
        self.extents.put(start, at - start + taken, Content::Open(Block { buffer, capacity }));
        Ok(Ok(taken))
    }

    /// Where a block for `at` begins: at its page, but not in another block, nor before the part.
    fn block_start(&mut self, at: u64, part: PartRange) -> u64 {
        let page = (at / PAGE * PAGE).max(part.start);
        match self.extents.block_before(at) {
            Some((start, len, _)) if start + len > page && start + len <= at => start + len,
            _ => page,
        }
    }

    /// How long a new block is, and how long it has to be at least. Streams get whole parts, so that the body
    /// of an upload is one piece of memory. Small files take little.
    fn block_len(&self, start: u64, end: u64, behind: u64, part: PartRange) -> (u64, u64) {
        let is_stream = !self.is_patched && start == part.start && part.number > 1;
        let least = (end - start).next_multiple_of(PAGE).min(BLOCK).min(behind - start);
        let len = match is_stream {
            true => part.len(),
            false if start + PAGE >= self.size() => self.size().next_power_of_two().min(BLOCK),
            false => PAGE,
        };
        (len.max(least).min(behind - start), least)
    }

    /// Cuts the file to `size` bytes, or makes it that long by zeros. `Err`: where bytes have to be known that
    /// are not here.
    pub(crate) fn resize(&mut self, size: u64, now: SystemTime) {
        let before = self.size();
        if size == before {
            return;
        }
        self.extents.resize(size);
        if size < before {
            self.part_states.cut(size);
            self.frontier = self.frontier.min(size);
        }
        self.touch(size.min(before), size.max(before), now);
    }

    /// The part whose bytes beside `start..end` would have to be known to change that range, and are only in
    /// the store.
    pub(crate) fn lost_beside(&self, start: u64, end: u64) -> Option<u64> {
        let layout = self.layout?;
        let first = layout.part_at(start)?;
        let last = layout.part_at(end.saturating_sub(1).max(start))?;
        [(first.start, start), (end, last.end)].into_iter().find_map(|(from, to)| self.stored(from, to))
    }

    /// The first byte of `start..end` that is only in the store.
    pub(crate) fn stored(&self, start: u64, end: u64) -> Option<u64> {
        let mut stored = self.extents.range(start, end);
        let is_stored = |extent: &Content<B>| matches!(extent, Content::Stored);
        stored.find(|(_, extent)| is_stored(&extent.content)).map(|(at, _)| at.max(start))
    }

    /// The first byte that is only in the store, in the part of this number.
    pub(crate) fn stored_in(&self, number: u32) -> Option<u64> {
        let (part, _) = self.part_states.written().find(|(part, _)| part.number == number)?;
        self.stored(part.start, part.end)
    }

    /// Puts bytes that were fetched from `place`, or from the spool, where the file still has these.
    pub(crate) fn fill(&mut self, start: u64, bytes: &Bytes, place: Option<&Place>) {
        let end = start + bytes.len() as u64;
        self.extents.cut(start);
        self.extents.cut(end);
        let same: Vec<(u64, u64, Copy)> = self
            .extents
            .range(start, end)
            .filter_map(|(at, extent)| match (&extent.content, place) {
                (Content::Source(here), Some(place))
                    if here.object == place.object && here.offset == place.offset + (at - start) =>
                {
                    Some((at, extent.len, Copy::Source(here.clone())))
                }
                (Content::Spool, None) => Some((at, extent.len, Copy::Spool)),
                _ => None,
            })
            .collect();
        for (at, len, copy) in same {
            let slice = bytes.slice(index(at - start)..index(at - start + len));
            self.extents.put(at, len, Content::Frozen(slice, copy));
        }
    }

    /// The file of `changes` changes is the version `published` now, so all bytes can be had from there.
    pub(crate) fn rebase(&mut self, published: &Published, changes: u64) {
        let size = self.size();
        self.extents.freeze(0, size);
        let object = &published.object;
        let starts: Vec<u64> = self.extents.range(0, size).map(|(start, _)| start).collect();
        for start in starts {
            let place = Place { object: object.clone(), offset: start };
            self.extents.change_at(start, |content| match content {
                Content::Frozen(bytes, _) => Content::Frozen(bytes, Copy::Source(place)),
                Content::Open(_) | Content::Zeros | Content::Source(_) | Content::Spool | Content::Stored => {
                    Content::Source(place)
                }
            });
        }
        (self.upload, self.part_states, self.layout, self.copied) = (None, PartStates::default(), None, None);
        self.published = Some((changes, published.clone()));
        (self.keeping, self.in_file) = (Keeping::Unchanged, Ranges::default());
        self.is_described_anew &= self.changes != changes;
        self.is_resting = false;
    }

    /// The version `from` lies at another key as `to` now. So does the file, if it was made of that version.
    pub(crate) fn follow(&mut self, from: &ObjectId, to: &ObjectId) {
        (self.key, self.condition) = (to.key().to_owned(), Some(Condition::Matches(to.etag().clone())));
        let starts: Vec<u64> = self.extents.range(0, self.size()).map(|(start, _)| start).collect();
        let moved = |place: Place| {
            let object = if place.object == *from { to.clone() } else { place.object };
            Place { object, ..place }
        };
        for start in starts {
            self.extents.change_at(start, |content| match content {
                Content::Source(place) => Content::Source(moved(place)),
                Content::Frozen(bytes, Copy::Source(place)) => {
                    Content::Frozen(bytes, Copy::Source(moved(place)))
                }
                other => other,
            });
        }
        if let Some(Unknown::All(version) | Unknown::Tags(version)) = &mut self.unknown
            && version == from
        {
            *version = to.clone();
        }
        if let Some((_, published)) = self.published.as_mut().filter(|(_, known)| known.object == *from) {
            published.object = to.clone();
        }
        if let Some(begun) = &mut self.upload {
            // It is completed at the old key, where nothing is left, and then moved.
            begun.condition = Some(Condition::Absent);
        }
    }
}

/// A length or an offset in memory.
pub(crate) fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
