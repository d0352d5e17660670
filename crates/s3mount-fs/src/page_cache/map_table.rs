//! The files whose READs look like random page faults of maps, and their kinds.
//!
//! A file is added with its first such READ, and stays after its close, because a file that is opened for each batch
//! shows one window at a time. Once two files of a kind (a folder and an extension) are read at random, the other files
//! of the kind are expected to be, too, until one of them is not.
//!
//! **Lock order:** the table's lock comes before a file's lock.

use std::collections::HashMap;
use std::sync::Arc;

use s3mount_object::ByteRange;

use super::kind::KindKey;
use crate::numbers::InodeNo;
use crate::page_cache::map_reads::{Change, Decision, MapReads, PIECE_BYTES};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// How many files are watched. The one that was opened or added longest ago is dropped.
const MAX_FILES: usize = 1024;

/// How many kinds are known. When there are more, all are forgotten.
const MAX_KINDS: usize = 256;

/// How many random files make a random kind.
const FILES_OF_A_KIND: usize = 2;

/// A file of fewer readaheads than this is soon wholly in the page cache.
const LEAST_READAHEADS: u64 = 8;

/// A file whose READs are watched.
#[derive(Debug)]
pub(crate) struct Watched {
    ino: InodeNo,
    kind: KindKey,
    /// Whether only READs that look like a read-around matter.
    is_only_watching: AtomicBool,
    is_random: AtomicBool,
    reads: Mutex<MapReads>,
}

impl Watched {
    fn new(ino: InodeNo, kind: KindKey, reads: MapReads) -> Self {
        let (is_watching, is_random) = (reads.is_only_watching(), reads.is_random());
        Self {
            ino,
            kind,
            is_only_watching: AtomicBool::new(is_watching),
            is_random: AtomicBool::new(is_random),
            reads: Mutex::new(reads),
        }
    }

    /// Whether only READs that look like a read-around matter.
    pub(crate) fn is_only_watching(&self) -> bool {
        self.is_only_watching.load(Ordering::Relaxed)
    }

    /// Whether the file is read at random through maps.
    pub(crate) fn is_random(&self) -> bool {
        self.is_random.load(Ordering::Relaxed)
    }

    fn on_read(&self, read: ByteRange, was_stream: bool, is_streamed: impl FnOnce() -> bool) -> Decision {
        let mut reads = lock(&self.reads);
        if was_stream {
            reads.on_stream();
        }
        let decision = reads.on_read(read, is_streamed);
        self.is_only_watching.store(reads.is_only_watching(), Ordering::Relaxed);
        self.is_random.store(reads.is_random(), Ordering::Relaxed);
        decision
    }
}

#[derive(Debug, Default)]
struct Tables {
    /// Each file, with the time when it was last opened or added.
    files: HashMap<InodeNo, (Arc<Watched>, u64)>,
    /// The random files of each kind, up to [`FILES_OF_A_KIND`].
    kinds: HashMap<KindKey, Vec<InodeNo>>,
    clock: u64,
}

/// All watched files.
#[derive(Debug, Default)]
pub(crate) struct MapTable {
    /// How much the kernel reads around a page fault, in bytes. 0 if a refusal gains nothing.
    readahead_bytes: AtomicU64,
    is_used: AtomicBool,
    refused: AtomicU64,
    tables: Mutex<Tables>,
}

impl MapTable {
    /// Sets the kernel's readahead. Below four pieces a refusal gains nothing.
    pub(crate) fn set_readahead(&self, bytes: u64) {
        let bytes = if bytes >= 4 * PIECE_BYTES { bytes } else { 0 };
        self.readahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How much the kernel reads around a page fault, in bytes. 0 if a refusal gains nothing.
    pub(crate) fn readahead_bytes(&self) -> u64 {
        self.readahead_bytes.load(Ordering::Relaxed)
    }

    /// How many READs were refused since the mount.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many files are read at random through maps.
    pub(crate) fn random_files(&self) -> usize {
        self.lock().files.values().filter(|(file, _)| file.is_random()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// The watched file of an inode that is opened, if it is watched, or if its kind is random.
    pub(crate) fn on_open(
        &self,
        ino: InodeNo,
        size: u64,
        kind: impl FnOnce() -> Option<KindKey>,
    ) -> Option<Arc<Watched>> {
        if !self.is_used.load(Ordering::Relaxed) || !self.is_worth_it(size) {
            return None;
        }
        let mut tables = self.lock();
        tables.clock += 1;
        let now = tables.clock;
        if let Some((file, used)) = tables.files.get_mut(&ino) {
            *used = now;
            return Some(file.clone());
        }
        if tables.kinds.is_empty() {
            return None;
        }
        let kind = kind()?;
        let is_random = tables.kinds.get(&kind).is_some_and(|files| files.len() >= FILES_OF_A_KIND);
        is_random.then(|| tables.add(ino, kind, MapReads::new(self.readahead_bytes(), size, true)))
    }

    /// Begins to watch a file.
    pub(crate) fn watch(&self, ino: InodeNo, size: u64, kind: KindKey) -> Arc<Watched> {
        self.is_used.store(true, Ordering::Relaxed);
        let mut tables = self.lock();
        let known = tables.files.get(&ino).map(|(file, _)| file.clone());
        known.unwrap_or_else(|| tables.add(ino, kind, MapReads::new(self.readahead_bytes(), size, false)))
    }

    /// Whether a file is large enough for refusals to pay.
    pub(crate) fn is_worth_it(&self, size: u64) -> bool {
        size / LEAST_READAHEADS >= self.readahead_bytes()
    }

    /// Decides about a READ that fills the page cache. `was_stream` is set if READs of the file continued one another
    /// since the last call. `is_streamed` returns whether the READ belongs to a stream.
    pub(crate) fn on_read(
        &self,
        file: &Watched,
        read: ByteRange,
        was_stream: bool,
        is_streamed: impl FnOnce() -> bool,
    ) -> Decision {
        let decision = file.on_read(read, was_stream, is_streamed);
        if decision.answer == crate::page_cache::map_reads::Answer::Refuse {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        match decision.change {
            Some(Change::Random) => self.lock().add_to_kind(file),
            Some(Change::Ordinary) => drop(self.lock().kinds.remove(&file.kind)),
            None => {}
        }
        decision
    }
}

impl Tables {
    fn add(&mut self, ino: InodeNo, kind: KindKey, reads: MapReads) -> Arc<Watched> {
        if self.files.len() >= MAX_FILES {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(ino, _)| *ino);
            oldest.and_then(|oldest| self.files.remove(&oldest));
        }
        self.clock += 1;
        let file = Arc::new(Watched::new(ino, kind, reads));
        self.files.insert(ino, (file.clone(), self.clock));
        file
    }

    fn add_to_kind(&mut self, file: &Watched) {
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&file.kind) {
            self.kinds.clear();
        }
        let files = self.kinds.entry(file.kind.clone()).or_default();
        if files.len() < FILES_OF_A_KIND && !files.contains(&file.ino) {
            files.push(file.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use s3mount_object::ByteRange;

    use super::{MAX_FILES, MapTable, Watched};
    use crate::numbers::InodeNo;
    use crate::page_cache::kind::KindKey;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 30;

    fn table() -> MapTable {
        let table = MapTable::default();
        table.set_readahead(MIB);
        table
    }

    fn kind(extension: &str) -> KindKey {
        (InodeNo(1), extension.into())
    }

    fn read(table: &MapTable, file: &Watched, offset: u64, len: u64) {
        table.on_read(file, ByteRange::new(offset, offset + len), false, || false);
    }

    /// Reads windows at random until the file counts as random.
    fn make_random(table: &MapTable, file: &Watched) {
        for window in 1..20 {
            let start = window * 48 * MIB + 4096;
            read(table, file, start, MIB);
            if !file.is_only_watching() {
                read(table, file, start + MIB / 2, 4096);
            }
            if file.is_random() {
                return;
            }
        }
        panic!("the file does not count as random");
    }

    #[test]
    fn nothing_is_known_of_a_file_that_was_never_watched() {
        let table = table();
        assert!(table.on_open(InodeNo(7), SIZE, || Some(kind("bin"))).is_none());
        make_random(&table, &table.watch(InodeNo(7), SIZE, kind("bin")));
        assert!(table.on_open(InodeNo(7), SIZE, || None).expect("known").is_random());
        assert!(table.on_open(InodeNo(8), SIZE, || Some(kind("bin"))).is_none(), "one file makes no kind");
        assert_eq!((table.random_files(), table.refused()), (1, 1));
    }

    #[test]
    fn two_files_speak_for_their_kind_until_one_is_otherwise() {
        let table = table();
        for ino in [7, 8] {
            make_random(&table, &table.watch(InodeNo(ino), SIZE, kind("bin")));
        }
        assert!(table.on_open(InodeNo(9), SIZE, || Some(kind("tar"))).is_none());
        assert!(table.on_open(InodeNo(9), 4 * MIB, || Some(kind("bin"))).is_none(), "too small");
        let third = table.on_open(InodeNo(9), SIZE, || Some(kind("bin"))).expect("of its kind");
        assert!(third.is_random());
        // Wide windows, page by page.
        for window in 0..2 {
            (1..100).for_each(|page| read(&table, &third, (window * 8 + 1) * MIB + page * 4096, 4096));
        }
        assert!(!third.is_random());
        assert!(table.on_open(InodeNo(10), SIZE, || Some(kind("bin"))).is_none(), "the kind is forgotten");
    }

    #[test]
    fn holds_so_many_files() {
        let table = table();
        let first = table.watch(InodeNo(1), SIZE, kind("bin"));
        make_random(&table, &first);
        (2..=MAX_FILES as u64 + 1).for_each(|ino| drop(table.watch(InodeNo(ino), SIZE, kind("bin"))));
        assert!(table.on_open(InodeNo(1), SIZE, || None).is_none());
        assert!(table.on_open(InodeNo(2), SIZE, || None).is_some());
    }

    #[test]
    fn a_small_readahead_is_left_alone() {
        let table = table();
        table.set_readahead(128 << 10);
        assert_eq!(table.readahead_bytes(), 0);
    }
}
