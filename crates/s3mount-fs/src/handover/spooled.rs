//! Files that are being written and whose changes lie in the spool, so that the next daemon goes on with them.
//!
//! A file of the spool has each byte at its offset in the draft. What of it counts is noted for each WRITE: a record for
//! each range, which grows while a program writes from front to back. A cut is one record with all ranges that are left,
//! so that it is noted as a whole or not at all.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use s3mount_write::SpoolBytes;

use super::record::{Changes, RangeRecord, Record, SpoolRecord};
use crate::numbers::InodeNo;

/// Who keeps files of the spool for the next daemon.
pub trait SpoolKeeper: std::fmt::Debug + Send + Sync {
    /// Keeps a file under a number.
    ///
    /// # Errors
    /// Those of passing it on. The file is not kept then.
    fn keep(&self, number: u64, file: &Arc<dyn SpoolBytes>) -> io::Result<()>;

    /// Keeps the file of a number no more.
    fn leave(&self, number: u64);

    /// How many files it keeps at most.
    fn room(&self) -> usize {
        usize::MAX
    }
}

/// What is noted of a draft.
#[derive(Debug)]
pub(crate) struct SpooledDraft {
    pub(crate) record: SpoolRecord,
    /// The ranges of the file that count, by their beginnings: the end of each, and the number of its record. Those without
    /// one are in the record of the draft.
    pub(super) ranges: BTreeMap<u64, (u64, Option<u64>)>,
}

impl SpooledDraft {
    pub(super) fn new(record: SpoolRecord) -> Self {
        let mut draft = Self { ranges: BTreeMap::new(), record };
        for (start, end) in std::mem::take(&mut draft.record.ranges) {
            draft.join(start, end);
        }
        draft.record.ranges = draft.ranges().collect();
        draft
    }

    /// Joins a range with those that it meets. Returns all of it, and the numbers of their records.
    pub(super) fn join(&mut self, start: u64, end: u64) -> (u64, u64, Vec<u64>) {
        let (mut from, mut to, mut numbers) = (start, end, Vec::new());
        while let Some((&before, &(until, number))) =
            self.ranges.range(..=to).next_back().filter(|(_, (until, _))| *until >= from)
        {
            (from, to) = (from.min(before), to.max(until));
            numbers.extend(number);
            self.ranges.remove(&before);
        }
        self.ranges.insert(from, (to, None));
        (from, to, numbers)
    }

    /// The ranges of the file that count.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, (end, _))| (*start, *end))
    }

    /// The number of its file.
    pub(crate) fn file(&self) -> Option<u64> {
        match self.record.changes {
            Changes::InFile { file, .. } => Some(file),
            Changes::None => None,
        }
    }

    /// The length of the draft, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let end = self.ranges.last_key_value().map_or(0, |(_, (end, _))| *end);
        match self.record.changes {
            Changes::InFile { size, .. } => size.max(end),
            Changes::None => 0,
        }
    }
}

/// The drafts whose changes lie in the spool.
#[derive(Debug, Default)]
pub(super) struct Spooled {
    pub(super) drafts: HashMap<InodeNo, SpooledDraft>,
    /// How many ranges all have.
    pub(super) ranges: usize,
    pub(super) next_range: u64,
    pub(super) next_file: u64,
}

impl Spooled {
    /// What the records say.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut all = Self::default();
        for record in records {
            if let Record::Spool(ino, record) = record {
                all.next_range = all.next_range.max(record.first_range);
                all.drafts.insert(*ino, SpooledDraft::new(record.clone()));
            }
        }
        for record in records {
            let Record::SpoolRange(number, RangeRecord { ino, start, end }) = record else { continue };
            all.next_range = all.next_range.max(number + 1);
            // What does not count any more may yet have a record.
            let drafts = &mut all.drafts;
            if let Some(draft) = drafts.get_mut(ino).filter(|draft| *number >= draft.record.first_range) {
                let (from, to, _) = draft.join(*start, *end);
                draft.ranges.insert(from, (to, Some(*number)));
            }
        }
        let files = all.drafts.values().filter_map(SpooledDraft::file);
        all.next_file = files.max().map_or(0, |file| file + 1);
        all.ranges = all.drafts.values().map(|draft| draft.ranges.len()).sum();
        all
    }
}
