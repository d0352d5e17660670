//! The files of an outbox, the oldest first, and how many entries have their records in each.
//!
//! Files are removed from the oldest on. So a record that says that an entry is over is never gone before the entry itself.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::kept::Location;
use crate::replay::OldSegment;
use crate::{OutboxDisk, SegmentFile};

/// Files are sparse whose entries take no more than this share of them.
const SPARSE: u64 = 4;

/// The oldest files, which have little that is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparse {
    /// The number of the last one.
    pub(crate) up_to: u64,
    /// How many bytes of the disk they take, and how many of these their entries.
    pub(crate) bytes: u64,
    pub(crate) entry_bytes: u64,
}

/// A file with records.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn SegmentFile>,
    /// Where the next record goes.
    pub(crate) end: u64,
    /// The room that was made for records.
    pub(crate) room: u64,
    /// How many entries have their records here, and how many bytes these take.
    pub(crate) entries: usize,
    pub(crate) entry_bytes: u64,
    /// Up to where it is durable.
    pub(crate) synced: u64,
    /// Whether it is not as it was written.
    pub(crate) is_damaged: bool,
}

impl Segment {
    fn new(number: u64, file: Arc<dyn SegmentFile>, end: u64, room: u64) -> Self {
        Self { number, file, end, room, entries: 0, entry_bytes: 0, synced: end, is_damaged: false }
    }

    /// How many bytes of the disk it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.room.max(self.end)
    }
}

/// All files. Records go to the last one, if it is open.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    all: VecDeque<Segment>,
    /// The upper half of the number of the last file. Its lower half is a salt.
    last: u32,
}

impl Segments {
    /// A file that the daemon before has left. No record is written there any more.
    pub(crate) fn add_old(&mut self, OldSegment { number, file, bytes, end, is_damaged }: OldSegment) {
        self.all.push_back(Segment { is_damaged, ..Segment::new(number, file, end, bytes) });
        self.note_number(number);
    }

    /// A file has this number: no other gets it.
    pub(crate) fn note_number(&mut self, number: u64) {
        self.last = self.last.max((number >> 32) as u32);
    }

    /// A new file for records, with room for `bytes`.
    pub(crate) fn begin(&mut self, disk: &dyn OutboxDisk, bytes: u64) -> io::Result<()> {
        // Half a file may be there after an error. No other gets its name.
        self.last += 1;
        let number = u64::from(self.last) << 32 | u64::from(disk.salt());
        let file = disk.create(number, bytes)?;
        self.all.push_back(Segment::new(number, file, 0, bytes));
        Ok(())
    }

    /// The file that records go to.
    pub(crate) fn last(&self) -> Option<&Segment> {
        self.all.back()
    }

    /// As [`last`](Self::last), to change it.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Segment> {
        self.all.back_mut()
    }

    /// Notes up to where a file is durable.
    pub(crate) fn note_synced(&mut self, number: u64, end: u64) {
        if let Some(segment) = self.of(number) {
            segment.synced = segment.synced.max(end);
        }
    }

    /// The oldest file, if it is not the one that records go to.
    pub(crate) fn oldest(&self) -> Option<&Segment> {
        self.all.front().filter(|_| self.all.len() > 1)
    }

    /// As many as possible of the `files` oldest ones whose entries take little of them, and no more than `room` bytes.
    pub(crate) fn sparse(&self, files: usize, room: u64) -> Option<Sparse> {
        let (mut so_far, mut sparse) = (Sparse { up_to: 0, bytes: 0, entry_bytes: 0 }, None);
        for segment in self.all.iter().take(files) {
            so_far.up_to = segment.number;
            so_far.bytes += segment.bytes();
            so_far.entry_bytes += segment.entry_bytes;
            if so_far.entry_bytes <= room.min(so_far.bytes / SPARSE) {
                sparse = Some(so_far);
            }
        }
        sparse
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many bytes of the disk all files take.
    pub(crate) fn bytes(&self) -> u64 {
        self.all.iter().map(Segment::bytes).sum()
    }

    fn of(&mut self, number: u64) -> Option<&mut Segment> {
        let at = self.all.partition_point(|segment| segment.number < number);
        self.all.get_mut(at).filter(|segment| segment.number == number)
    }

    /// Notes that an entry has its record at a location.
    pub(crate) fn add_entry(&mut self, location: &Location) {
        if let Some(segment) = self.of(location.segment) {
            segment.entries += 1;
            segment.entry_bytes += location.record_bytes;
        }
    }

    /// Notes that an entry has no more a record at a location.
    pub(crate) fn drop_entry(&mut self, location: &Location) {
        if let Some(segment) = self.of(location.segment) {
            segment.entries -= 1;
            segment.entry_bytes -= location.record_bytes;
        }
    }

    /// Removes the oldest files that have no entry, but the one that records go to.
    pub(crate) fn remove_unused(&mut self, disk: &dyn OutboxDisk) {
        while self.oldest().is_some_and(|oldest| oldest.entries == 0) && self.remove_oldest(disk) {}
    }

    /// Removes all files.
    pub(crate) fn remove_all(&mut self, disk: &dyn OutboxDisk) {
        while self.remove_oldest(disk) {}
    }

    /// Removes the oldest file. Where that fails, later ones stay too: they say what is over of its entries.
    fn remove_oldest(&mut self, disk: &dyn OutboxDisk) -> bool {
        let Some(oldest) = self.all.front() else { return false };
        let removed =
            if oldest.is_damaged { disk.set_aside(oldest.number) } else { disk.remove(oldest.number) };
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(number = oldest.number, %error, "a file of the outbox that is not needed can't be removed");
            return false;
        }
        self.all.pop_front();
        true
    }
}
