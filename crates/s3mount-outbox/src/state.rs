//! What is known of all entries, and what the disk was told of them.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;

use crate::OutboxDisk;
use crate::entry::{Entry, EntryId, Named};
use crate::kept::{KeptBytes, Location, Waiting};
use crate::record::{self, Place, Unplaced};
use crate::segments::Segments;

/// An entry that is not over.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) entry: Entry,
    pub(crate) failed: Option<String>,
    pub(crate) is_ending: bool,
    pub(crate) bytes: KeptBytes,
    pub(crate) named: Named,
    /// Whether an entry that replaces it was written. It is over once that is durable.
    pub(crate) is_being_replaced: bool,
}

impl Slot {
    /// It, as others see it.
    pub(crate) fn waiting(&self, id: EntryId) -> Waiting {
        let Self { entry, failed, is_ending, bytes, .. } = self;
        let (entry, failed, bytes) = (entry.clone(), failed.clone(), bytes.clone());
        Waiting { id, entry, size: bytes.size(), failed, is_ending: *is_ending, bytes }
    }
}

/// What a record without bytes is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Name,
    Folder,
    Failure,
    Ending,
    End,
}

impl Topic {
    /// Whether a later record of this topic says all that an earlier one of the same entry has said.
    fn says_all_of(self, earlier: Self) -> bool {
        // With another key, an entry is no more about to end.
        self == earlier || (self, earlier) == (Self::Name, Self::Ending)
    }
}

#[derive(Debug)]
pub(crate) struct OutboxState {
    pub(crate) segments: Segments,
    /// Whether records may be written behind those of the last file.
    pub(crate) is_open: bool,
    pub(crate) entries: BTreeMap<EntryId, Slot>,
    /// How many of these have not failed.
    pub(crate) waiting: usize,
    /// The next number for an entry, or for a name.
    pub(crate) next_id: u64,
    /// Records are numbered: the last that was written, and the last that is durable.
    pub(crate) written: u64,
    pub(crate) synced: u64,
    /// Records that the disk has refused, in the order of time. They are the first ones of the next file.
    pub(crate) unsaid: Vec<(EntryId, Topic, Unplaced)>,
    /// Whether a sync has failed.
    pub(crate) is_broken: bool,
}

impl OutboxState {
    /// A number that neither an entry nor a name has had.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Whether all that was said survives a power cut.
    pub(crate) fn is_durable(&self) -> bool {
        self.written == self.synced && self.unsaid.is_empty()
    }

    /// Whether the last file has room for a record of this length.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let fits = self.segments.last().is_some_and(|last| last.end + bytes <= last.room);
        self.is_open && !self.is_broken && fits
    }

    /// Writes a record with its bytes behind the last one.
    pub(crate) fn append(&mut self, head: &Unplaced, bytes: &[Bytes]) -> io::Result<Location> {
        if !self.is_open {
            return Err(io::Error::other("no file is open for records"));
        }
        let Some(last) = self.segments.last_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let head = head.at(Place { segment: last.number, offset: last.end }, last.synced);
        let start = last.end + head.len() as u64;
        let mut at = start;
        let written = bytes.iter().try_for_each(|piece| {
            last.file.write(at, piece)?;
            at += piece.len() as u64;
            Ok(())
        });
        // The head comes last: a record whose bytes are not all there is none.
        match written.and_then(|()| last.file.write(last.end, &head)) {
            Ok(()) => {
                let record_bytes = at - std::mem::replace(&mut last.end, at);
                self.written += 1;
                Ok(Location { segment: last.number, file: last.file.clone(), start, record_bytes })
            }
            Err(error) => {
                // Nobody finds a record behind half of one.
                self.is_open = false;
                Err(error)
            }
        }
    }

    /// Writes a record without bytes. It is not lost if the process dies, unless the disk refuses: then it is written
    /// later.
    pub(crate) fn say(&mut self, id: EntryId, topic: Topic, record: Unplaced) {
        if let Err(error) = self.append(&record, &[]) {
            tracing::warn!(%error, "the outbox can't be told now of what a file has become");
            // What a folder takes with it depends on the names and failures before: those stay.
            let folder = self.unsaid.iter().rposition(|(_, about, _)| *about == Topic::Folder);
            let since = self.unsaid.split_off(folder.map_or(0, |at| at + 1));
            self.unsaid.extend(
                since.into_iter().filter(|(other, about, _)| *other != id || !topic.says_all_of(*about)),
            );
            self.unsaid.push((id, topic, record));
        }
    }

    /// Has records written to a new file from now on, which has room for `bytes`. Those of before are durable,
    /// and so is its beginning.
    pub(crate) fn begin(&mut self, disk: &dyn OutboxDisk, bytes: u64) -> io::Result<()> {
        let (before, end) = self.segments.last().map_or((0, 0), |last| (last.number, last.end));
        self.segments.begin(disk, bytes)?;
        self.is_open = true;
        self.append(&record::begun(before, end), &[])?;
        let Some(last) = self.segments.last_mut() else { return Ok(()) };
        match last.file.sync() {
            Ok(()) => {
                (last.synced, self.synced) = (last.end, self.written);
                Ok(())
            }
            Err(error) => {
                // Perhaps nothing is there.
                (last.end, self.is_open) = (0, false);
                Err(error)
            }
        }
    }

    /// Writes what the disk has refused.
    pub(crate) fn say_again(&mut self) -> io::Result<()> {
        let unsaid = std::mem::take(&mut self.unsaid);
        let said = unsaid.iter().try_for_each(|(.., record)| self.append(record, &[]).map(drop));
        if said.is_err() {
            self.unsaid = unsaid;
        }
        said
    }

    /// Drops an entry that is over.
    pub(crate) fn forget(&mut self, id: EntryId) {
        if let Some(slot) = self.entries.remove(&id) {
            self.segments.drop_entry(&slot.bytes.location());
            self.waiting -= usize::from(slot.failed.is_none());
        }
    }

    /// Waits until all that was written survives a power cut. The caller is the only one who syncs.
    pub(crate) fn sync_last(&mut self) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("a sync has failed before"));
        }
        if self.written > self.synced
            && let Some(last) = self.segments.last()
            && let Err(error) = last.file.sync()
        {
            self.is_broken = true;
            return Err(error);
        }
        self.synced = self.written;
        if let Some(last) = self.segments.last_mut() {
            last.synced = last.end;
        }
        // Nobody may write these anew: they would be there again.
        let replaced = self.entries.iter().filter(|(_, slot)| slot.is_being_replaced);
        for id in replaced.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.forget(id);
        }
        Ok(())
    }

    /// Removes the files of the disk, if nothing waits. The caller is the only one who syncs.
    pub(crate) fn tidy(&mut self, disk: &dyn OutboxDisk) {
        if !self.entries.is_empty() || self.segments.len() == 0 {
            return;
        }
        // A power cut that comes between two files does not bring old names back.
        if let Err(error) = self.sync_last() {
            tracing::warn!(%error, "the outbox can't be synced before its files are removed");
        }
        self.segments.remove_all(disk);
        if self.segments.len() == 0 {
            self.unsaid.clear();
            (self.is_open, self.is_broken, self.synced) = (false, false, self.written);
        }
    }
}
