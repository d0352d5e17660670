//! Partly fetched objects: a sparse file as long as the object, and a map of the blocks that are there.
//!
//! One process fills a partial object, and holds a lock on its file for that. Others read the blocks that the map had
//! when they looked. Every block is compared with its checksum when it is read, so a map may be older than the
//! file, and newer than what survived a power cut.
//!
//! A partial object that has all blocks becomes the whole object: it gets its record, then a second name, and loses the
//! first.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::blocks::{self, BlockSet};
use crate::disk::clock::{BootId, SinceBoot};
use crate::disk::dir::Dir;
use crate::disk::io::identity;
use crate::disk::layout::Hash;
use crate::disk::object::record::Record;
use crate::disk::object::whole::{self, Named, Whole, disk_bytes};

/// The map is saved when it lacks this many bytes, or a [`SAVE_SHARE`]th of those here: the most that a kill loses.
const SAVE_BYTES: u64 = 64 << 20;

/// The map takes 8 bytes for each 128 KiB that are here. With this share, all maps that are written while a partial
/// object is filled take a 64th of its bytes, whatever its size.
const SAVE_SHARE: u64 = 256;

/// The map is saved when it has lacked blocks for this time, or for this time for each [`SLOW_BYTES`] that are here.
const SAVE_AFTER: Duration = Duration::from_secs(5);

/// The map of this many bytes takes 1 MiB.
const SLOW_BYTES: u64 = 16 << 30;

/// The search for the end of a run covers at most this many blocks, 8 GiB: all blocks of an object of 50 TB would take
/// milliseconds.
const LONGEST_RUN: u64 = 1 << 16;

/// A partly fetched object that is open.
#[derive(Debug)]
pub(crate) struct PartialObject {
    /// The file, for reading.
    pub(crate) file: Arc<File>,
    /// Whether reads of the file bypass the page cache.
    pub(crate) is_direct: bool,
    /// The file, for writing, and locked. `None` if another process fills the partial object.
    writer: Option<File>,
    /// When its first block was written, if that was in this boot.
    began: Option<SinceBoot>,
    state: Mutex<BlockMap>,
}

#[derive(Debug)]
struct BlockMap {
    here: BlockSet,
    /// Blocks that are being written.
    claimed: BlockSet,
    /// The CRCs of the blocks that are here.
    sums: Vec<u64>,
    unsaved_bytes: u64,
    /// The time since which the map lacks blocks.
    unsaved: Option<SinceBoot>,
    is_finished: bool,
}

impl BlockMap {
    /// Whether the map lacks enough bytes to be saved at once.
    fn is_due(&self) -> bool {
        self.unsaved_bytes >= SAVE_BYTES.max(self.held_bytes() / SAVE_SHARE)
    }

    /// How long the map may lack blocks.
    fn save_after(&self) -> Duration {
        let times = (self.held_bytes() / SLOW_BYTES).max(1);
        SAVE_AFTER * u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// How many bytes are here, in whole blocks.
    fn held_bytes(&self) -> u64 {
        self.here.held() * blocks::BLOCK_BYTES
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The blocks are written.
    Done,
    /// The blocks are written, and now no block is missing.
    Complete,
    /// There is no room for the blocks.
    NoRoom,
}

impl PartialObject {
    /// Opens a partial object that another process fills, for reading.
    pub(crate) fn open(dir: &Dir, named: &Named) -> io::Result<Option<Self>> {
        let (file, is_direct) = match dir.io.open(&dir.layout.part(&named.hash)) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() != named.size {
            return Ok(None);
        }
        let map = load_map(dir, named)?;
        Ok(map.map(|map| Self::new((file, is_direct), None, map)))
    }

    /// Opens or makes the partial object, to fill it. `None` if another process fills it.
    pub(crate) fn own(dir: &Dir, named: &Named) -> io::Result<Option<Self>> {
        let path = dir.layout.part(&named.hash);
        let writer = dir.io.open_or_create(&path)?;
        if writer.try_lock().is_err() {
            return Ok(None);
        }
        // The former holder of the lock may have finished or deleted the partial object. A kill may leave the name of a
        // finished one.
        let is_at_path = writer.metadata().is_ok_and(|open| identity::at(&path) == Some(identity::of(&open)));
        if dir.layout.whole(&named.hash).exists() || !is_at_path {
            if is_at_path {
                dir.io.remove(&path)?;
            }
            return Ok(None);
        }
        let has_length = writer.metadata()?.len() == named.size;
        let known = if has_length { load_map(dir, named)? } else { None };
        let map = match known {
            Some(map) => map,
            None => {
                // A kill may leave a map without its partial object. It must not be taken for the map of this one.
                dir.io.remove(&dir.layout.map(&named.hash))?;
                if let Err(error) = dir.io.make_empty(&writer, named.size) {
                    dir.io.remove(&path)?;
                    return Err(error);
                }
                Map::empty(dir, named)
            }
        };
        Ok(Some(Self::new(dir.io.open(&path)?, Some(writer), map)))
    }

    fn new((file, is_direct): (File, bool), writer: Option<File>, map: Map) -> Self {
        let Map { here, sums, began } = map;
        let (claimed, file) = (BlockSet::new(sums.len() as u64), Arc::new(file));
        let (unsaved_bytes, unsaved, is_finished) = (0, None, false);
        let state = BlockMap { here, claimed, sums, unsaved_bytes, unsaved, is_finished };
        Self { file, is_direct, writer, began, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, BlockMap> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process fills the partial object.
    pub(crate) fn is_owned(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether `block` is here, and the end of the run of blocks for which that is the same, at most [`LONGEST_RUN`]
    /// blocks.
    pub(crate) fn run(&self, block: u64) -> (bool, u64) {
        let state = self.lock();
        (state.here.has(block), state.here.run_end(block, block + LONGEST_RUN))
    }

    /// The CRCs of `blocks`, if all are here.
    pub(crate) fn sums(&self, blocks: Range<u64>) -> Option<Vec<u64>> {
        let state = self.lock();
        state
            .here
            .has_all(blocks.clone())
            .then(|| state.sums[blocks.start as usize..blocks.end as usize].to_vec())
    }

    /// Removes damaged blocks from the map, so that they are fetched again.
    pub(crate) fn take_out(&self, dir: &Dir, named: &Named, blocks: Range<u64>) {
        let mut state = self.lock();
        for block in blocks {
            if state.here.has(block) {
                state.here.remove(block);
                state.claimed.remove(block);
                // The process that fills the partial object counts its bytes.
                if self.is_owned() {
                    dir.room.give_back(disk_bytes(blocks::bytes(&(block..block + 1), named.size).len()));
                }
            }
        }
        state.unsaved.get_or_insert(dir.clock.now());
    }

    /// Writes the blocks in `bytes` that are not here. `bytes` begin with block `blocks.start`.
    pub(crate) fn write(
        &self,
        dir: &Dir,
        named: &Named,
        blocks: Range<u64>,
        bytes: &[u8],
    ) -> io::Result<Written> {
        let Some(writer) = &self.writer else { return Ok(Written::NoRoom) };
        let runs = {
            let mut state = self.lock();
            let runs: Vec<_> = state.here.missing(blocks.clone());
            let runs: Vec<_> = runs.into_iter().flat_map(|run| state.claimed.missing(run)).collect();
            for block in runs.iter().cloned().flatten() {
                state.claimed.insert(block);
            }
            runs
        };
        let start = blocks.start;
        let (mut result, mut has_room) = (Ok(()), true);
        for run in runs {
            let range = blocks::bytes(&run, named.size);
            let from = to_usize((run.start - start) * blocks::BLOCK_BYTES);
            let piece = &bytes[from..from + to_usize(range.len())];
            has_room = has_room && result.is_ok() && dir.room.reserve(disk_bytes(range.len()));
            if has_room {
                let sums: Vec<_> = blocks::sums(piece).collect();
                result = dir.io.write(writer, piece, range.start());
                if result.is_ok() {
                    self.add(run.clone(), &sums, dir.clock.now(), range.len());
                    dir.metrics.written_bytes.add(range.len());
                } else {
                    dir.room.give_back(disk_bytes(range.len()));
                }
            }
            let mut state = self.lock();
            run.for_each(|block| state.claimed.remove(block));
        }
        result?;
        if self.begins_to_finish() {
            return Ok(Written::Complete);
        }
        let is_due = self.lock().is_due();
        if is_due {
            self.save(dir, named)?;
        }
        Ok(if has_room { Written::Done } else { Written::NoRoom })
    }

    /// Whether the partial object has all blocks, and is not the whole object yet.
    pub(crate) fn is_unfinished(&self) -> bool {
        let state = self.lock();
        state.here.is_full() && !state.is_finished
    }

    /// Whether the caller is the one to [finish](Self::finish) it now.
    pub(crate) fn begins_to_finish(&self) -> bool {
        let mut state = self.lock();
        let is_unfinished = self.is_owned() && state.here.is_full() && !state.is_finished;
        state.is_finished |= is_unfinished;
        is_unfinished
    }

    fn add(&self, run: Range<u64>, sums: &[u64], now: SinceBoot, bytes: u64) {
        let mut state = self.lock();
        for (block, sum) in run.zip(sums) {
            state.here.insert(block);
            state.sums[block as usize] = *sum;
        }
        state.unsaved_bytes += bytes;
        state.unsaved.get_or_insert(now);
    }

    /// Whether another process has deleted it.
    pub(crate) fn is_deleted(&self) -> bool {
        is_deleted(&self.file)
    }

    /// The time since which the map lacks blocks, and how long it may lack them.
    pub(crate) fn unsaved(&self) -> Option<(SinceBoot, Duration)> {
        let state = self.lock();
        state.unsaved.filter(|_| !state.is_finished).map(|since| (since, state.save_after()))
    }

    /// A record of when the first block was written, if that is known.
    fn record(&self, dir: &Dir, named: &Named) -> Record {
        let record = dir.record(named.size, Vec::new());
        match self.began.filter(|began| dir.durable.is_intact(record.boot, *began)) {
            Some(began) => Record { published: began, ..record },
            None => Record { boot: BootId::UNKNOWN, ..record },
        }
    }

    /// Saves the map.
    pub(crate) fn save(&self, dir: &Dir, named: &Named) -> io::Result<()> {
        let record = Record { name: Some(dir.name(&named.object)), ..self.record(dir, named) };
        let map = {
            let mut state = self.lock();
            if state.is_finished {
                return Ok(());
            }
            let map = record.encode_map(&state.here, &state.sums, &named.hash).ok_or_else(whole::too_long)?;
            (state.unsaved_bytes, state.unsaved) = (0, None);
            map
        };
        dir.io.replace(&dir.layout.map(&named.hash), &map)
    }

    /// The CRC-64/NVME of all bytes of a partial object that is complete.
    pub(crate) fn sum(&self, size: u64) -> u64 {
        blocks::joined(&self.lock().sums, size)
    }

    /// Turns a complete partial object into the whole object. `is_compared`: it was compared with the store's checksum.
    pub(crate) fn finish(&self, dir: &Dir, named: &Named, is_compared: bool) -> io::Result<Option<Whole>> {
        let Some(writer) = &self.writer else { return Ok(None) };
        let finished = self.publish(dir, named, writer, is_compared);
        if finished.is_err() {
            self.lock().is_finished = false;
        }
        finished
    }

    fn publish(
        &self,
        dir: &Dir,
        named: &Named,
        writer: &File,
        is_compared: bool,
    ) -> io::Result<Option<Whole>> {
        if is_deleted(writer) {
            return Ok(None);
        }
        let (published, sums) = (dir.clock.now(), self.lock().sums.clone());
        let record = Record { published, sums, is_compared, ..self.record(dir, named) };
        whole::save_record(dir, named, writer, &record)?;
        let is_first = dir.io.link(writer, &dir.layout.whole(&named.hash))?;
        if is_first {
            dir.room.settle(disk_bytes(named.size), whole::taken_bytes(dir, &named.hash));
        } else {
            dir.room.give_back(disk_bytes(named.size));
        }
        self.remove(dir, named)?;
        dir.durable.on_published();
        Ok(is_first.then(|| Whole::of_part(dir, &self.file, self.is_direct, record)))
    }

    /// Deletes the partial object's name and its map. Only the process that fills it may call this.
    fn remove(&self, dir: &Dir, named: &Named) -> io::Result<()> {
        dir.io.remove(&dir.layout.part(&named.hash))?;
        dir.io.remove(&dir.layout.map(&named.hash))?;
        Ok(())
    }

    /// Deletes the partial object: its bytes are of no use.
    pub(crate) fn forget(&self, dir: &Dir, named: &Named) -> io::Result<()> {
        if !self.is_owned() {
            return Ok(());
        }
        let bytes = {
            let mut state = self.lock();
            if state.is_finished {
                return Ok(());
            }
            state.is_finished = true;
            state.held_bytes()
        };
        dir.room.give_back(disk_bytes(bytes.min(named.size)));
        self.remove(dir, named)
    }
}

/// The contents of a partial object's map.
struct Map {
    here: BlockSet,
    sums: Vec<u64>,
    /// When the first block was written, if that was in this boot, and no write was lost since. Otherwise the blocks
    /// may differ from the map.
    began: Option<SinceBoot>,
}

impl Map {
    fn empty(dir: &Dir, named: &Named) -> Self {
        let count = blocks::count(named.size);
        let sums = vec![0; usize::try_from(count).expect("an object has less than 2^30 blocks")];
        Self { here: BlockSet::new(count), sums, began: Some(dir.clock.now()) }
    }
}

/// The map of a partial object, if it has one.
fn load_map(dir: &Dir, named: &Named) -> io::Result<Option<Map>> {
    let bytes = match dir.io.load(&dir.layout.map(&named.hash)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A partial object whose map can't be read is useless.
        Err(error) if dir.health.on_read_error(&named.hash, "read the map of", &error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = Record::decode(&bytes, &named.hash).filter(|record| record.size == named.size);
    let Some(Record { boot, published, map: Some(here), sums, .. }) = record else { return Ok(None) };
    let began = Some(published).filter(|began| dir.durable.is_intact(boot, *began));
    Ok(Some(Map { here, sums, began }))
}

/// Whether a file has no name any more.
pub(crate) fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|file| file.nlink() == 0)
}

/// Deletes a partial object that no process fills.
pub(crate) fn discard(dir: &Dir, named: &Named) -> io::Result<()> {
    let path = dir.layout.part(&named.hash);
    match File::open(&path) {
        Ok(file) if file.try_lock().is_err() => return Ok(()),
        Ok(file) => dir.room.give_back(file.metadata()?.blocks() * 512),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    dir.io.remove(&path)?;
    dir.io.remove(&dir.layout.map(&named.hash))?;
    Ok(())
}

/// The partial objects that this process fills. Each stays here while it is in use, and until its map is saved.
#[derive(Debug, Default)]
pub(crate) struct PartialObjects(Mutex<HashMap<Hash, (Named, Arc<PartialObject>)>>);

impl PartialObjects {
    fn lock(&self) -> MutexGuard<'_, HashMap<Hash, (Named, Arc<PartialObject>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, hash: &Hash) -> Option<Arc<PartialObject>> {
        self.lock().get(hash).map(|(_, part)| part.clone())
    }

    pub(crate) fn insert(&self, named: &Named, part: &Arc<PartialObject>) {
        self.lock().insert(named.hash, (named.clone(), part.clone()));
    }

    pub(crate) fn remove(&self, hash: &Hash) {
        let removed = self.lock().remove(hash);
        drop(removed);
    }

    /// Drops all partial objects.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn clear(&self) {
        let parts = std::mem::take(&mut *self.lock());
        drop(parts);
    }

    /// Saves the maps that are due, or all if `urgent`, and closes unused partial objects.
    pub(crate) fn tidy(&self, dir: &Dir, urgent: bool) {
        let now = dir.clock.now();
        let mut parts: Vec<_> = self.lock().values().cloned().collect();
        // The disk gets its operations in a fixed order, so that a simulation can repeat a run.
        parts.sort_unstable_by_key(|(named, _)| named.hash);
        for (named, part) in parts {
            if part.is_deleted() {
                self.remove(&named.hash);
                continue;
            }
            // The two references are this one and the one in the table.
            let is_unused = Arc::strong_count(&part) <= 2;
            let is_due = |(since, after)| urgent || is_unused || now.since(since) >= after;
            if part.unsaved().is_some_and(is_due) {
                let Some(_operation) = dir.health.begin() else { return };
                if let Err(error) = part.save(dir, &named) {
                    dir.health.on_error("write the map of", &error);
                    continue;
                }
            }
            let mut table = self.lock();
            if is_unused && Arc::strong_count(&part) <= 2 && part.unsaved().is_none() {
                table.remove(&named.hash);
            }
        }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("an offer fits the address space")
}
