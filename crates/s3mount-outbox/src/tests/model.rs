//! What an outbox has to have, and what may be left of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use s3mount_object::{Condition, ObjectId};

use super::faulty::FaultyDisk;
use super::{entry, now, put, read};
use crate::{Damage, Entry, EntryId, KeptBytes, Limits, Outbox, OutboxDisk as _, OutboxError, Waiting, look};

pub(super) const LIMITS: Limits = Limits { bytes: 240 << 10, entries: 6, segment_bytes: 48 << 10 };

/// A record without bytes is never longer in these tests.
const MOST_SAID: u64 = 256;

/// With no more bytes in all entries than this, a put that fits in a file is never refused for want of room.
const FEW_BYTES: u64 = 24 << 10;

/// An entry beside its bytes takes about this much.
const ABOUT_HEAD: u64 = 1 << 10;

#[derive(Clone, Debug)]
struct Known {
    entry: Entry,
    bytes: Arc<Vec<u8>>,
    failed: Option<String>,
    is_ending: bool,
    /// Of those with the same key, the one that was given it last has it: with its folder, or alone.
    named: u64,
    named_alone: u64,
}

impl Known {
    fn has_name_and_bytes_of(&self, waiting: &Waiting) -> bool {
        self.entry == waiting.entry && *self.bytes == read(&waiting.bytes)
    }

    fn is(&self, waiting: &Waiting) -> bool {
        self.failed == waiting.failed
            && self.is_ending == waiting.is_ending
            && self.has_name_and_bytes_of(waiting)
    }

    fn since(&self) -> (u64, u64) {
        (self.named, self.named_alone)
    }
}

type Version = BTreeMap<EntryId, Known>;

/// A version as a daemon finds it: of the entries with one key, the one that was given it last.
fn shown(mut version: Version) -> Version {
    let mut newest = HashMap::<String, (u64, u64)>::new();
    for known in version.values().filter(|known| known.failed.is_none()) {
        let named = newest.entry(known.entry.key.clone()).or_default();
        *named = known.since().max(*named);
    }
    version.retain(|_, known| known.failed.is_some() || newest[&known.entry.key] == known.since());
    version
}

/// What tells entries apart, for a message.
fn line(id: EntryId, entry: &Entry, bytes: u64, failed: Option<&str>, is_ending: bool) -> String {
    let Entry { key, condition, leaves, .. } = entry;
    format!("{id}: {key} of {bytes} bytes, {condition:?}, {leaves:?}, failed {failed:?}, ending {is_ending}")
}

/// As [`line`], of all.
fn brief(version: &Version) -> Vec<String> {
    let brief = |(id, known): (&EntryId, &Known)| {
        let Known { entry, bytes, failed, is_ending, .. } = known;
        line(*id, entry, bytes.len() as u64, failed.as_deref(), *is_ending)
    };
    version.iter().map(brief).collect()
}

/// As [`brief`].
fn brief_of(waiting: &[Waiting]) -> Vec<String> {
    let brief = |waiting: &Waiting| {
        let Waiting { id, entry, size, failed, is_ending, .. } = waiting;
        line(*id, entry, *size, failed.as_deref(), *is_ending)
    };
    waiting.iter().map(brief).collect()
}

fn is(version: &Version, waiting: &[Waiting]) -> bool {
    version.len() == waiting.len()
        && waiting.iter().all(|waiting| version.get(&waiting.id).is_some_and(|known| known.is(waiting)))
}

/// How many entries of a version have not failed.
fn waiting(version: &Version) -> usize {
    version.values().filter(|known| known.failed.is_none()).count()
}

/// An outbox, and what it has to have.
pub(super) struct Model {
    disk: FaultyDisk,
    outbox: Outbox,
    /// All versions since the last one that is surely durable, which is the first.
    versions: Vec<Version>,
    /// Counts the names.
    named: u64,
    /// How many records without bytes were written.
    said: u64,
    /// Whether the disk has refused once: then a file that was to be emptied may be there beside the others.
    has_ever_failed: bool,
    /// Bytes that somebody reads, whether their entries are over or not.
    held: Vec<(KeptBytes, Arc<Vec<u8>>)>,
}

impl Model {
    pub(super) fn new() -> Self {
        let disk = FaultyDisk::default();
        let (outbox, left) = Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults");
        assert!(left.is_empty());
        Self {
            disk,
            outbox,
            versions: vec![Version::new()],
            named: 0,
            said: 0,
            has_ever_failed: false,
            held: Vec::new(),
        }
    }

    fn last(&self) -> &Version {
        self.versions.last().expect("a version")
    }

    /// One of the entries, if there are any.
    fn pick(&self, which: usize) -> Option<EntryId> {
        let version = self.last();
        version.keys().nth(which % version.len().max(1)).copied()
    }

    fn change(&mut self, change: impl FnOnce(&mut Version)) {
        let mut version = self.last().clone();
        change(&mut version);
        self.versions.push(version);
    }

    fn note_durable(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    pub(super) fn put(&mut self, key: &str, bytes: Vec<u8>, replaced: Option<usize>) {
        let replaced = replaced.and_then(|which| self.pick(which));
        let before = self.last().clone();
        let given = Arc::new(AtomicU64::new(0));
        let result = put(&self.outbox, key, &bytes, replaced, &given);
        let id = EntryId(given.load(Ordering::Relaxed));
        self.named += 1;
        let known = Known {
            entry: entry(id, key),
            bytes: Arc::new(bytes),
            failed: None,
            is_ending: false,
            named: self.named,
            named_alone: self.named,
        };
        let mut with = before.clone();
        with.retain(|id, _| Some(*id) != replaced);
        match result {
            Ok(kept) => {
                assert!(kept.id == id && read(&kept.bytes) == *known.bytes);
                assert!(waiting(&with) < LIMITS.entries.max(waiting(&before)), "more wait than may");
                self.held.push((kept.bytes, known.bytes.clone()));
                assert!(with.insert(id, known).is_none(), "the number {id} was given before");
                self.versions = vec![with];
            }
            Err(OutboxError::Full) => self.check_full(known.bytes.len() as u64),
            Err(OutboxError::Disk(_) | OutboxError::Broken) => {
                assert!(self.disk.has_failed());
                // It may be on the disk all the same.
                with.insert(id, known);
                self.versions.extend([with, before]);
            }
        }
    }

    fn check_full(&self, bytes: u64) {
        let version = self.last();
        let waiting = waiting(version);
        let taken: u64 = version.values().map(|known| known.bytes.len() as u64 + ABOUT_HEAD).sum();
        let is_full = waiting >= LIMITS.entries || taken > FEW_BYTES || bytes > LIMITS.segment_bytes / 2;
        assert!(
            is_full || self.has_ever_failed || self.disk.has_failed(),
            "refused with {waiting} files of {taken} bytes"
        );
    }

    pub(super) fn moved(
        &mut self,
        which: usize,
        key: &str,
        condition: Option<&Condition>,
        leaves: Option<&ObjectId>,
    ) {
        let Some(id) = self.pick(which) else { return };
        self.outbox.moved(id, key, condition, leaves);
        (self.named, self.said) = (self.named + 1, self.said + 1);
        let named = self.named;
        self.change(|version| {
            let known = version.get_mut(&id).expect("it was picked");
            let Known { entry, is_ending, .. } = known;
            (entry.key, entry.condition, entry.leaves) = (key.into(), condition.cloned(), leaves.cloned());
            (*is_ending, known.named, known.named_alone) = (false, named, named);
        });
    }

    pub(super) fn folder_moved(&mut self, from: &str, to: &str) {
        self.outbox.folder_moved(from, to);
        (self.named, self.said) = (self.named + 1, self.said + 1);
        let named = self.named;
        self.change(|version| {
            for known in version.values_mut().filter(|known| known.failed.is_none()) {
                let Some(rest) = known.entry.key.strip_prefix(from) else { continue };
                known.entry.key = format!("{to}{rest}");
                (known.entry.condition, known.named) = (Some(Condition::Absent), named);
            }
        });
    }

    pub(super) fn ending(&mut self, which: usize, is_ending: bool) {
        let Some(id) = self.pick(which) else { return };
        self.outbox.ending(id, is_ending);
        self.said += 1;
        self.change(|version| version.get_mut(&id).expect("it was picked").is_ending = is_ending);
    }

    pub(super) fn done(&mut self, which: usize) {
        let Some(id) = self.pick(which) else { return };
        self.outbox.done(id);
        self.said += 1;
        self.change(|version| drop(version.remove(&id)));
    }

    pub(super) fn failed(&mut self, which: usize, why: Option<&str>) {
        let Some(id) = self.pick(which) else { return };
        match why {
            Some(why) => self.outbox.failed(id, why),
            None => self.outbox.retry(id),
        }
        self.said += 1;
        self.change(|version| version.get_mut(&id).expect("it was picked").failed = why.map(Into::into));
    }

    pub(super) fn commit(&mut self) {
        match now(self.outbox.commit()) {
            Ok(()) => self.note_durable(),
            Err(_) => assert!(self.disk.has_failed()),
        }
    }

    pub(super) fn fail(&self, after: usize, times: usize) {
        self.disk.fail(after, times);
    }

    /// The daemon is killed.
    pub(super) fn kill(&mut self) {
        // Only a disk that refuses loses what was said.
        if !self.disk.has_failed() {
            self.note_durable();
        }
        self.begin_again(self.disk.left());
    }

    /// The machine loses its power. Of each write, `keeps` says how much of its length is on the disk.
    pub(super) fn cut(&mut self, keeps: impl FnMut(usize) -> usize) {
        let disk = self.disk.left();
        disk.disk.cut(keeps);
        self.begin_again(disk);
    }

    fn begin_again(&mut self, disk: FaultyDisk) {
        let (outbox, left) = Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults");
        self.has_ever_failed |= self.disk.has_failed();
        assert!(self.has_ever_failed || outbox.damage().is_empty(), "{:?}", outbox.damage());
        let found = if self.disk.has_failed() { self.found_in_pieces(&left) } else { self.found(&left) };
        // The outbox of before can do nothing to this disk when it is dropped.
        (self.disk, self.outbox, self.versions) = (disk, outbox, vec![found]);
        self.check();
        for (kept, bytes) in &self.held {
            assert_eq!(read(kept), **bytes);
        }
    }

    /// Something has changed what the disk has, which was durable. Whatever was lost is told, and of the rest nothing is taken
    /// for what it is not.
    pub(super) fn damage(&mut self, damage: impl FnOnce(&FaultyDisk, &[u64])) {
        // The next daemon says where the files of this one end.
        self.kill();
        self.kill();
        let disk = self.disk.left();
        let mut numbers = disk.segments().expect("no faults");
        numbers.sort_unstable();
        damage(&disk, &numbers);
        let (outbox, left) = Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults");
        let is_told = !outbox.damage().is_empty();
        for waiting in &left {
            let known = self.last().get(&waiting.id).is_some_and(|known| known.is(waiting));
            // Nothing that waits for a decision is taken for what it is not.
            let is_harmless = known || is_told && waiting.failed.is_some();
            let damage = outbox.damage();
            let last = brief(self.last());
            assert!(
                is_harmless,
                "{:?} is none of {last:?}: {damage:?}",
                brief_of(std::slice::from_ref(waiting))
            );
            if let Some(known) = self.last().get(&waiting.id) {
                assert_eq!(read(&waiting.bytes), *known.bytes);
            }
        }
        let found: HashSet<EntryId> = left.iter().map(|waiting| waiting.id).collect();
        let is_all_there = self.last().keys().all(|id| found.contains(id));
        assert!(is_all_there || is_told, "{:?} is not {:?}", brief_of(&left), brief(self.last()));

        // The next one finds the same, and nothing that is damaged is removed.
        let after = disk.left();
        let (outbox_after, left_after) = Outbox::open(Arc::new(after.clone()), LIMITS).expect("no faults");
        assert_eq!(brief_of(&left), brief_of(&left_after));
        left_after.iter().for_each(|waiting| outbox_after.done(waiting.id));
        drop(outbox_after);
        assert!(after.segments().expect("no faults").is_empty());
        let is_file = |damage: &Damage| matches!(damage, Damage::File(_));
        let damaged = outbox.damage().iter().filter(|damage| is_file(damage)).count();
        assert_eq!(after.damaged().expect("no faults").len(), damaged);
        drop(outbox);
    }

    /// The version that is there: all records up to some moment were kept.
    fn found(&self, left: &[Waiting]) -> Version {
        let versions = self.versions.iter().rev().map(|version| shown(version.clone()));
        let mut versions = versions.filter(|version| is(version, left));
        versions.next().unwrap_or_else(|| {
            panic!(
                "{:#?}\nis none of {:#?}",
                brief_of(left),
                self.versions.iter().map(brief).collect::<Vec<_>>()
            )
        })
    }

    /// As [`found`](Self::found), after a disk has refused: what it was told then may be there for some entries only, and
    /// a name without a failure, or a flag.
    fn found_in_pieces(&self, left: &[Waiting]) -> Version {
        let mut found = Version::new();
        for waiting in left {
            let known: Vec<&Known> =
                self.versions.iter().rev().filter_map(|version| version.get(&waiting.id)).collect();
            let named = known.iter().find(|known| known.has_name_and_bytes_of(waiting));
            let named = named
                .filter(|_| known.iter().any(|known| known.failed == waiting.failed))
                .filter(|_| known.iter().any(|known| known.is_ending == waiting.is_ending));
            let named =
                named.unwrap_or_else(|| panic!("{:?} never was", brief_of(std::slice::from_ref(waiting))));
            let (failed, is_ending) = (waiting.failed.clone(), waiting.is_ending);
            found.insert(waiting.id, Known { failed, is_ending, ..(*named).clone() });
        }
        let keys: HashSet<&str> = found.values().map(|known| &*known.entry.key).collect();
        for id in self.versions[0].keys() {
            let is_over = self.versions.iter().any(|version| !version.contains_key(id));
            let names = self.versions.iter().filter_map(|version| version.get(id));
            let is_overtaken = names.into_iter().any(|known| keys.contains(&*known.entry.key));
            assert!(found.contains_key(id) || is_over || is_overtaken, "{id} is gone: {:?}", brief_of(left));
        }
        found
    }

    /// Compares all that can be seen.
    pub(super) fn check(&self) {
        let version = self.last();
        let waiting = self.outbox.waiting();
        assert!(is(version, &waiting), "{:#?}\nis not {:#?}", brief_of(&waiting), brief(version));
        let metrics = self.outbox.metrics();
        let failed = version.values().filter(|known| known.failed.is_some()).count() as u64;
        assert_eq!((metrics.failed, metrics.entries), (failed, version.len() as u64 - failed));
        if !self.disk.has_failed() {
            let looked = look(&*self.disk.disk).expect("no faults");
            assert!(
                is(&shown(version.clone()), &looked.waiting),
                "{:#?}\nis not {:#?}\n{:?}",
                brief_of(&looked.waiting),
                brief(version),
                looked.damage
            );
            assert_eq!(metrics.disk_bytes, self.disk.bytes());
            let bound = LIMITS.bytes + (16 << 10) + self.said * MOST_SAID;
            assert!(metrics.disk_bytes <= bound || self.has_ever_failed, "{} bytes", metrics.disk_bytes);
        }
    }

    /// All is done at last, and no more than one file is left.
    pub(super) fn end(mut self, is_killed: bool) {
        self.kill();
        while !self.last().is_empty() {
            self.done(0);
        }
        self.check();
        if is_killed {
            self.kill();
            assert_eq!(self.disk.segments().expect("no faults").len(), 1);
        }
        drop(self.outbox);
        assert!(self.disk.segments().expect("no faults").is_empty());
    }
}
