//! What a disk has, record by record.
//!
//! A file is read up to the first record whose head is not as it was written: what follows was never said to be durable. A
//! record whose bytes are not as they were written is left out. An entry
//! that is written anew elsewhere keeps its number, and the last record of it counts. Where two entries are to have the same
//! key, the one that was given it last has it: the daemon died before it had written down that the other is over.
//! An entry that another replaces is over, unless that was withdrawn.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};

use crate::entry::{Entry, EntryId, Named};
use crate::kept::{KeptBytes, Location, Waiting};
use crate::record::{HEAD, Head, Record, Said};
use crate::{OutboxDisk, SegmentFile};

/// How many bytes are read at once.
const CHUNK: usize = 1 << 20;

/// Whoever only looks begins anew when a file is removed, but not more often.
const MOST_LOOKS: usize = 8;

/// An entry that is not over.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    pub(crate) entry: Entry,
    pub(crate) size: u64,
    pub(crate) failed: Option<String>,
    pub(crate) is_ending: bool,
    pub(crate) location: Location,
    pub(crate) named: Named,
    /// The entry that stands for it.
    replaced_by: Option<EntryId>,
}

/// A file of the disk.
#[derive(Debug)]
pub(crate) struct OldSegment {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn SegmentFile>,
    pub(crate) bytes: u64,
    /// Where its last record ends.
    pub(crate) end: u64,
}

/// All that a disk has.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) entries: BTreeMap<EntryId, FoundEntry>,
    /// The oldest first.
    pub(crate) segments: Vec<OldSegment>,
    /// The highest number that an entry, or its name, has had.
    pub(crate) last_id: u64,
    /// Entries that are not over on the disk, and whose key another one has.
    pub(crate) overtaken: Vec<EntryId>,
    /// The keys of entries whose bytes are not as they were written.
    pub(crate) damaged: Vec<String>,
    /// Whether files were removed before they could be read.
    has_missed: bool,
}

impl Replayed {
    pub(crate) fn of(disk: &dyn OutboxDisk) -> io::Result<Self> {
        let mut all = Self::default();
        let mut numbers = disk.segments()?;
        numbers.sort_unstable();
        for number in numbers {
            let file = match disk.open(number) {
                Ok(file) => file,
                // Whoever only looks may be overtaken by the daemon.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    all.has_missed = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let bytes = file.bytes()?;
            let mut at = 0;
            while let Some(FoundRecord { record, start, is_whole }) = read_there(&*file, at, bytes)? {
                let end = start + record.size;
                let record_bytes = end - std::mem::replace(&mut at, end);
                if is_whole {
                    all.apply(record, Location { segment: number, file: file.clone(), start, record_bytes });
                } else {
                    all.note_damaged(record);
                }
            }
            all.segments.push(OldSegment { number, file, bytes, end: at });
        }
        all.entries.retain(|_, found| found.replaced_by.is_none());
        all.drop_overtaken();
        Ok(all)
    }

    fn apply(&mut self, record: Record, location: Location) {
        let Record { id, said, size, .. } = record;
        self.last_id = self.last_id.max(id.0);
        match said {
            Said::Put(mut text) => {
                if let Some(found) = text.replaces.and_then(|id| self.entries.get_mut(&EntryId(id))) {
                    found.replaced_by = Some(id);
                }
                let (failed, named) = (text.failed.take(), text.named);
                self.last_id = self.last_id.max(named.last());
                let is_ending = text.is_ending;
                let entry = text.entry();
                let found = FoundEntry { entry, size, failed, is_ending, location, named, replaced_by: None };
                self.entries.insert(id, found);
            }
            Said::Done => {
                self.entries.remove(&id);
            }
            Said::Withdrawn => {
                self.entries.remove(&id);
                for found in self.entries.values_mut().filter(|found| found.replaced_by == Some(id)) {
                    found.replaced_by = None;
                }
            }
            Said::Moved { key, condition, leaves, named } => {
                self.last_id = self.last_id.max(named);
                if let Some(found) = self.entries.get_mut(&id) {
                    (found.entry.key, found.entry.condition) = (key, condition);
                    (found.entry.leaves, found.is_ending, found.named) = (leaves, false, Named::new(named));
                }
            }
            Said::FolderMoved { from, to, named } => {
                self.last_id = self.last_id.max(named);
                for found in self.entries.values_mut().filter(|found| found.failed.is_none()) {
                    found.entry.move_below(&from, &to, &mut found.named, named);
                }
            }
            Said::Ending(is_ending) => {
                if let Some(found) = self.entries.get_mut(&id) {
                    found.is_ending = is_ending;
                }
            }
            Said::Failed(why) => {
                if let Some(found) = self.entries.get_mut(&id) {
                    found.failed = Some(why);
                }
            }
            Said::Retry => {
                if let Some(found) = self.entries.get_mut(&id) {
                    found.failed = None;
                }
            }
        }
    }

    /// Notes a record whose bytes are not as they were written: the disk is damaged, or the machine has failed before it
    /// was durable. Those behind it count.
    fn note_damaged(&mut self, record: Record) {
        self.last_id = self.last_id.max(record.id.0);
        if let Said::Put(text) = record.said {
            self.last_id = self.last_id.max(text.named.last());
            self.damaged.push(text.entry().key);
        }
    }

    fn drop_overtaken(&mut self) {
        let mut newest: HashMap<&str, (Named, EntryId)> = HashMap::new();
        let waiting = || self.entries.iter().filter(|(_, found)| found.failed.is_none());
        for (id, found) in waiting() {
            let this = (found.named, *id);
            newest.entry(&found.entry.key).and_modify(|known| *known = this.max(*known)).or_insert(this);
        }
        let overtaken =
            |(id, found): (&EntryId, &FoundEntry)| (newest[&*found.entry.key].1 != *id).then_some(*id);
        self.overtaken = waiting().filter_map(overtaken).collect();
        for id in &self.overtaken {
            self.entries.remove(id);
        }
    }
}

/// As [`read`], of a file that may be shortened meanwhile, where there is no record.
fn read_there(file: &dyn SegmentFile, at: u64, bytes: u64) -> io::Result<Option<FoundRecord>> {
    match read(file, at, bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        result => result,
    }
}

/// A record that was found.
struct FoundRecord {
    record: Record,
    /// Where its bytes begin.
    start: u64,
    /// Whether they are as they were written.
    is_whole: bool,
}

/// The record at an offset of a file of `bytes`. `None` where there is none, or its head or text is not as it was written.
fn read(file: &dyn SegmentFile, at: u64, bytes: u64) -> io::Result<Option<FoundRecord>> {
    if bytes.saturating_sub(at) < HEAD as u64 {
        return Ok(None);
    }
    let mut head = [0; HEAD];
    file.read(at, &mut head)?;
    let Some(parsed) = Head::parse(&head) else { return Ok(None) };
    let start = at + HEAD as u64 + parsed.text_len as u64;
    if start.checked_add(parsed.size).is_none_or(|end| end > bytes) {
        return Ok(None);
    }
    let mut text = vec![0; parsed.text_len];
    file.read(at + HEAD as u64, &mut text)?;
    let Some(record) = parsed.record(&head, &text) else { return Ok(None) };
    let is_whole = crc_at(file, start, record.size)? == record.crc;
    Ok(Some(FoundRecord { record, start, is_whole }))
}

/// The CRC of bytes of a file; that of no bytes is 0.
fn crc_at(file: &dyn SegmentFile, start: u64, size: u64) -> io::Result<u64> {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut chunk = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < size {
        let len = chunk.len().min(usize::try_from(size - at).unwrap_or(CHUNK));
        file.read(start + at, &mut chunk[..len])?;
        digest.update(&chunk[..len]);
        at += len as u64;
    }
    Ok(if size == 0 { 0 } else { digest.finalize() })
}

/// What waits on a disk, for somebody who only looks.
///
/// # Errors
/// The disk's.
pub fn look(disk: &dyn OutboxDisk) -> io::Result<Vec<Waiting>> {
    let mut all = Replayed::of(disk)?;
    // The daemon may have written entries anew in files that were not there yet.
    for _ in 1..MOST_LOOKS {
        if !all.has_missed {
            break;
        }
        all = Replayed::of(disk)?;
    }
    Ok(all.entries.into_iter().map(|(id, found)| waiting(id, found)).collect())
}

/// An entry as others see it.
pub(crate) fn waiting(id: EntryId, found: FoundEntry) -> Waiting {
    let FoundEntry { entry, size, failed, is_ending, location, .. } = found;
    Waiting { id, entry, size, failed, is_ending, bytes: KeptBytes::at(location, size) }
}
