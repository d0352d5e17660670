//! What a disk has, record by record.
//!
//! A file is read up to the first record that was never said to be durable, and is not as it was written. An entry that is
//! written anew elsewhere keeps its number, and the last record of it counts. Where two entries are to have the same
//! key, the one that was given it last has it: the daemon died before it had written down that the other is over.
//! An entry that another replaces is over, unless that was withdrawn.
//!
//! Where records are damaged, nobody knows what they said of the entries before: that these are over, or have another name.
//! So none of these is uploaded until somebody decides, unless it is written anew later.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use crate::disk::{damaged_name, segment_name};
use crate::entry::{Entry, EntryId, Named};
use crate::kept::{KeptBytes, Location, Waiting};
use crate::record::{Record, Said};
use crate::scan::{BytesState, FoundRecord, Scan, ScanItem};
use crate::{OutboxDisk, SegmentFile};

/// Why an entry is not uploaded whose later records are damaged.
pub(crate) const IN_DOUBT: &str =
    "the disk of the outbox is damaged: the file may have been renamed, replaced, removed or uploaded since";

/// Whoever only looks begins anew when a file is removed, but not more often.
const MOST_LOOKS: usize = 8;

/// An entry that is not over.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    pub(crate) entry: Entry,
    pub(crate) size: u64,
    crc: u64,
    pub(crate) failed: Option<String>,
    pub(crate) is_ending: bool,
    pub(crate) location: Location,
    pub(crate) named: Named,
    /// The entry that stands for it.
    replaced_by: Option<EntryId>,
    /// Whether later records are damaged, which may have been about it.
    pub(crate) is_in_doubt: bool,
    /// How its bytes are.
    state: BytesState,
}

/// A file of the disk.
#[derive(Debug)]
pub(crate) struct OldSegment {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn SegmentFile>,
    pub(crate) bytes: u64,
    /// Where its last record ends.
    pub(crate) end: u64,
    /// Whether records are not as they were written that were durable, or it has none at all.
    pub(crate) is_damaged: bool,
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
    /// What the disk has not as it was given.
    pub(crate) damage: Vec<Damage>,
    /// Entries that are not there as a whole, and their keys. Perhaps they never were durable.
    pub(crate) torn: Vec<(EntryId, String)>,
    /// Whether files were removed before they could be read.
    has_missed: bool,
}

impl Replayed {
    pub(crate) fn of(disk: &dyn OutboxDisk) -> io::Result<Self> {
        let mut all = Self::default();
        let mut files = Vec::new();
        for number in numbers(disk)? {
            match disk.open(number) {
                Ok(file) => files.push((number, Scan::before(number, &file)?, file)),
                // Whoever only looks may be overtaken by the daemon.
                Err(error) if error.kind() == io::ErrorKind::NotFound => all.has_missed = true,
                Err(error) => return Err(error),
            }
        }
        let ends: HashMap<u64, u64> = files.iter().filter_map(|(_, before, _)| *before).collect();
        let there: HashSet<u64> = files.iter().map(|(number, ..)| *number).collect();
        let oldest = files.iter().find(|(_, before, _)| before.is_some()).map(|(number, ..)| *number);
        for (number, before, file) in files {
            // Files are removed from the oldest on.
            let missing = before.map(|(before, _)| before).filter(|before| !there.contains(before));
            if let Some(missing) = missing.filter(|missing| oldest.is_some_and(|oldest| *missing > oldest)) {
                all.damage.push(Damage::Missing(missing));
                all.doubt();
            }
            all.read(number, file, ends.get(&number).copied())?;
        }
        all.drop_damaged();
        let damaged = all.segments.iter().filter(|segment| segment.is_damaged);
        all.damage.extend(damaged.map(|segment| Damage::File(segment.number)));
        all.entries.retain(|_, found| found.replaced_by.is_none());
        for found in all.entries.values_mut().filter(|found| found.is_in_doubt) {
            found.failed = Some(match found.failed.take() {
                Some(why) => format!("{IN_DOUBT} ({why})"),
                None => IN_DOUBT.to_owned(),
            });
        }
        all.drop_overtaken();
        Ok(all)
    }

    /// Reads a file, which was durable up to `end`, if that is known.
    fn read(&mut self, number: u64, file: Arc<dyn SegmentFile>, end: Option<u64>) -> io::Result<()> {
        let mut scan = Scan::new(number, file.clone(), end)?;
        let mut is_damaged = false;
        while let Some(found) = scan.next()? {
            match found {
                ScanItem::Record(FoundRecord { record, record_bytes, start, state }) => {
                    let location = Location { segment: number, file: file.clone(), start, record_bytes };
                    self.apply(record, location, state);
                }
                ScanItem::Gap => {
                    self.doubt();
                    is_damaged = true;
                }
            }
        }
        let (bytes, end) = (scan.bytes(), scan.at());
        // Records of another version of this program are none.
        is_damaged |= end == 0 && !scan.is_blank()?;
        self.segments.push(OldSegment { number, file, bytes, end, is_damaged });
        Ok(())
    }

    /// Records are damaged: they may have been about any entry that is there by now.
    fn doubt(&mut self) {
        self.entries.values_mut().for_each(|found| found.is_in_doubt = true);
    }

    fn apply(&mut self, record: Record, location: Location, state: BytesState) {
        let Record { id, said, size, crc } = record;
        self.last_id = self.last_id.max(if let Said::Begun { .. } = said { 0 } else { id.0 });
        match said {
            Said::Begun { .. } => {}
            // It was being written anew, and is where it was.
            Said::Put(_) if state != BytesState::Whole && self.entries.contains_key(&id) => {}
            Said::Put(mut text) => {
                if let Some(found) = text.replaces.and_then(|id| self.entries.get_mut(&EntryId(id))) {
                    found.replaced_by = Some(id);
                }
                let (failed, named) = (text.failed.take(), text.named);
                self.last_id = self.last_id.max(named.last());
                let is_ending = text.is_ending;
                let entry = text.entry();
                let found = FoundEntry {
                    entry,
                    size,
                    crc,
                    failed,
                    is_ending,
                    location,
                    named,
                    replaced_by: None,
                    is_in_doubt: false,
                    state,
                };
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
                    if why.starts_with(IN_DOUBT) {
                        // Whoever has said so knew of the damage, and so does who decides later.
                        (found.is_in_doubt, found.replaced_by) = (false, None);
                    }
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

    /// Drops entries whose bytes are not as they were written. What they were to replace is there.
    fn drop_damaged(&mut self) {
        let damaged = self.entries.iter().filter(|(_, found)| found.state != BytesState::Whole);
        // Those that replace others come first.
        for id in damaged.map(|(id, _)| *id).rev().collect::<Vec<_>>() {
            let Some(found) = self.entries.remove(&id) else { continue };
            if found.replaced_by.is_some() {
                continue;
            }
            let was_durable = found.state == BytesState::Damaged;
            let mut segments = self.segments.iter_mut();
            if let Some(segment) = segments.find(|segment| segment.number == found.location.segment) {
                segment.is_damaged |= was_durable;
            }
            for before in self.entries.values_mut().filter(|before| before.replaced_by == Some(id)) {
                before.replaced_by = None;
                before.is_in_doubt |= was_durable;
            }
            let key = found.entry.key;
            if was_durable { self.damage.push(Damage::Lost(key)) } else { self.torn.push((id, key)) }
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

/// The numbers of a disk's files, the oldest first.
fn numbers(disk: &dyn OutboxDisk) -> io::Result<Vec<u64>> {
    let mut numbers = disk.segments()?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a disk has not as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The file of this number has records that are not as they were written.
    File(u64),
    /// The file of this number is not there, and later ones are.
    Missing(u64),
    /// The file of this number was damaged. It is kept under another name, and nothing waits there any more.
    Kept(u64),
    /// The bytes of the file with this key are not as they were written.
    Lost(String),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(number) => {
                let name = segment_name(*number);
                write!(
                    f,
                    "{name} is damaged: what waited there may be lost, and files before it wait for a decision"
                )
            }
            Self::Missing(number) => {
                let name = segment_name(*number);
                write!(
                    f,
                    "{name} is missing: what waited there is lost, and files before it wait for a decision"
                )
            }
            Self::Kept(number) => {
                let name = damaged_name(*number);
                write!(f, "{name} was damaged and is kept: remove it when nothing of it is wanted any more")
            }
            Self::Lost(key) => write!(f, "the bytes of {key} are damaged: the file is lost"),
        }
    }
}

/// What somebody who only looks finds on a disk.
#[derive(Debug)]
pub struct Looked {
    /// What waits.
    pub waiting: Vec<Waiting>,
    /// What the disk has not as it was given.
    pub damage: Vec<Damage>,
}

/// What waits on a disk, for somebody who only looks.
///
/// # Errors
/// The disk's.
pub fn look(disk: &dyn OutboxDisk) -> io::Result<Looked> {
    let mut all = Replayed::of(disk)?;
    // The daemon may have written entries anew in files that were not there yet.
    for _ in 1..MOST_LOOKS {
        if !all.has_missed {
            break;
        }
        all = Replayed::of(disk)?;
    }
    all.damage.extend(disk.damaged()?.into_iter().map(Damage::Kept));
    let waiting = all.entries.into_iter().map(|(id, found)| waiting(id, found)).collect();
    Ok(Looked { waiting, damage: all.damage })
}

/// An entry as others see it.
pub(crate) fn waiting(id: EntryId, found: FoundEntry) -> Waiting {
    let FoundEntry { entry, size, crc, failed, is_ending, location, .. } = found;
    Waiting { id, entry, size, failed, is_ending, bytes: KeptBytes::at(location, size, crc) }
}
