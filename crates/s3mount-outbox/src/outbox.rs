//! Entries that come, change and go.
//!
//! **Lock order:** the lock of who syncs, then the state, then an entry's.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use s3mount_object::{Condition, ObjectId};

use crate::OutboxDisk;
use crate::entry::{Entry, EntryId, EntryText, Named};
use crate::kept::{Kept, KeptBytes, Waiting};
use crate::record::{self, HEAD};
use crate::replay::{Damage, Replayed, waiting};
use crate::segments::Segments;
use crate::state::{OutboxState, Slot, Topic};

/// What an entry takes beside its bytes is no more than this.
const MOST_HEAD: u64 = 16 << 10;

/// The longest reason of a failure, in bytes.
const MOST_REASON: usize = 4 << 10;

/// Damaged records are fewer than this: a file has not so many.
const MOST_DAMAGED: u64 = 1 << 24;

/// So many records that are not durable are made durable, where nothing else does so.
const MOST_UNSYNCED: u64 = 64;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of the disk.
    pub bytes: u64,
    /// The most entries that have not failed.
    pub entries: usize,
    /// How long a file is, in bytes. A longer entry has a file of its own.
    pub segment_bytes: u64,
}

/// Why an entry is not taken.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// As much waits as may.
    #[error("as much waits to be uploaded as may")]
    Full,
    /// The disk refused.
    #[error("the disk of the outbox")]
    Disk(#[from] io::Error),
    /// The disk has refused before, and what it has is not known. The entries of before are uploaded.
    #[error("the disk of the outbox has failed before")]
    Broken,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxMetrics {
    /// Entries that are to be uploaded.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that the store does not take.
    pub failed: u64,
    /// How many bytes of the disk all take.
    pub disk_bytes: u64,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn OutboxDisk>,
    limits: Limits,
    damage: Vec<Damage>,
    state: Mutex<OutboxState>,
    /// Held by who syncs. Those who wait for it find their records durable.
    syncing: Mutex<()>,
}

/// Files that wait until the store has them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

impl Outbox {
    /// Opens the outbox of a disk that nobody else has, and returns what waits there. Blocks.
    ///
    /// # Errors
    /// The disk's. Where something waits, it is enough that the disk can be read.
    pub fn open(disk: Arc<dyn OutboxDisk>, limits: Limits) -> io::Result<(Self, Vec<Waiting>)> {
        let Replayed { entries: found, segments: mut old, last_id, overtaken, mut damage, torn, .. } =
            Replayed::of(&*disk)?;
        for (_, key) in &torn {
            tracing::warn!(
                key,
                "the disk of the outbox does not have a file as a whole, whose close had not returned when the machine failed"
            );
        }
        for damage in &damage {
            tracing::error!(%damage, "the disk of the outbox is damaged");
        }
        let is_damaged = !damage.is_empty();
        let aside = disk.damaged()?;
        damage.extend(aside.iter().copied().map(Damage::Kept));
        let mut segments = Segments::default();
        // Nothing but its beginning is there.
        while let Some(last) = old.last().filter(|last| last.end <= HEAD as u64 && !last.is_damaged) {
            segments.note_number(last.number);
            if disk.remove(last.number).is_err() {
                break;
            }
            old.pop();
        }
        // Whoever has begun a file has synced the one before.
        let synced = old.last().map_or(Ok(()), |last| last.file.sync());
        let is_broken = synced.is_err();
        if let Some(last) = old.last_mut()
            && last.end > 0
            && last.file.shorten(last.end).is_ok()
        {
            // The room behind its records is of no use any more.
            last.bytes = last.end;
        }
        aside.into_iter().for_each(|number| segments.note_number(number));
        old.into_iter().for_each(|old| segments.add_old(old));
        let (mut entries, mut left, mut in_doubt) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (id, found) in found {
            segments.add_entry(&found.location);
            in_doubt.extend(found.failed.clone().filter(|_| found.is_in_doubt).map(|why| (id, why)));
            let named = found.named;
            let waiting = waiting(id, found);
            let Waiting { entry, failed, is_ending, bytes, .. } = waiting.clone();
            entries.insert(id, Slot { entry, failed, is_ending, bytes, named, is_being_replaced: false });
            left.push(waiting);
        }
        if !is_broken {
            segments.remove_unused(&*disk);
        }
        let room = limits.bytes.saturating_sub(segments.bytes());
        let mut state = OutboxState {
            segments,
            is_open: false,
            waiting: entries.values().filter(|slot: &&Slot| slot.failed.is_none()).count(),
            entries,
            // Nobody knows which numbers the records have had that are damaged.
            next_id: last_id + 1 + if is_damaged { MOST_DAMAGED } else { 0 },
            written: 0,
            synced: 0,
            unsaid: Vec::new(),
            is_broken,
        };
        let begun = synced.and_then(|()| state.begin(&*disk, limits.segment_bytes.min(room).max(MOST_HEAD)));
        if let Err(error) = &begun {
            tracing::warn!(%error, "the disk of the outbox takes no more files");
        }
        if let Err(error) = begun
            && left.is_empty()
            && error.kind() != io::ErrorKind::StorageFull
        {
            return Err(error);
        }
        // A folder's name that is said from now on does not take them with it.
        for (id, why) in in_doubt {
            state.say(id, Topic::Failure, record::failed(id, &why));
        }
        // They are durable from now on as they are, and were never taken.
        for (id, _) in torn {
            state.say(id, Topic::End, record::withdrawn(id));
        }
        // Otherwise they would be there again, once the entries that have their keys are over.
        for id in overtaken {
            state.say(id, Topic::End, record::done(id));
        }
        if state.is_open {
            state.segments.remove_unused(&*disk);
        }
        let (state, syncing) = (Mutex::new(state), Mutex::default());
        let me = Self(Arc::new(Shared { disk, limits, damage, state, syncing }));
        me.empty_old();
        Ok((me, left))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to sync. The caller does not have the state.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.0.syncing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the disk had not as it was given, when the outbox was opened.
    pub fn damage(&self) -> &[Damage] {
        &self.0.damage
    }

    pub(crate) fn limits(&self) -> Limits {
        self.0.limits
    }

    pub(crate) fn disk(&self) -> &dyn OutboxDisk {
        &*self.0.disk
    }

    /// Does something that blocks: on a thread for such things, if the disk is a real one.
    async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Self) -> Result<T, OutboxError> + Send + 'static,
    ) -> Result<T, OutboxError> {
        if !self.0.disk.blocks() {
            return task(self);
        }
        let me = self.clone();
        match tokio::task::spawn_blocking(move || task(&me)).await {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    /// Takes the bytes of a file, and what is to become of them. Returns once both survive a power cut. `entry` makes the
    /// entry of its number. From then on it stands for the entry `replaced`, which is over.
    ///
    /// # Errors
    /// See [`OutboxError`]: then nothing has changed.
    pub async fn put(
        &self,
        entry: impl FnOnce(EntryId) -> Entry + Send + 'static,
        bytes: Vec<Bytes>,
        replaced: Option<EntryId>,
    ) -> Result<Kept, OutboxError> {
        self.run(move |me| me.put_now(entry, &bytes, replaced)).await
    }

    fn put_now(
        &self,
        entry: impl FnOnce(EntryId) -> Entry,
        bytes: &[Bytes],
        replaced: Option<EntryId>,
    ) -> Result<Kept, OutboxError> {
        let size = bytes.iter().map(|piece| piece.len() as u64).sum();
        let crc = record::crc_of(bytes);
        let (kept, written) = {
            let mut state = self.with_room(size + MOST_HEAD)?;
            let takes_over =
                replaced.and_then(|id| state.entries.get(&id)).is_some_and(|slot| slot.failed.is_none());
            if state.waiting >= self.0.limits.entries && !takes_over {
                return Err(OutboxError::Full);
            }
            let id = EntryId(state.next_id());
            let entry = entry(id);
            let head = record::put(id, &EntryText::of(&entry, replaced, None, Named::new(id.0)), size, crc);
            if head.len() > MOST_HEAD {
                return Err(
                    io::Error::new(io::ErrorKind::InvalidInput, "too much is known of the file").into()
                );
            }
            let location = state.append(&head, bytes)?;
            state.segments.add_entry(&location);
            let kept = KeptBytes::at(location, size, crc);
            let slot = Slot {
                entry,
                failed: None,
                is_ending: false,
                bytes: kept.clone(),
                named: Named::new(id.0),
                is_being_replaced: false,
            };
            state.entries.insert(id, slot);
            state.waiting += 1;
            if let Some(slot) = replaced.and_then(|id| state.entries.get_mut(&id)) {
                slot.is_being_replaced = true;
            }
            (Kept { id, bytes: kept }, state.written)
        };
        if let Err(error) = self.sync(written) {
            self.withdraw(kept.id, replaced);
            return Err(error);
        }
        if let Some(replaced) = replaced {
            self.state().forget(replaced);
        }
        Ok(kept)
    }

    /// Takes back an entry that may be on the disk, and may be not. The file is written in another way now.
    fn withdraw(&self, id: EntryId, replaced: Option<EntryId>) {
        let mut state = self.state();
        state.say(id, Topic::End, record::withdrawn(id));
        state.forget(id);
        if let Some(slot) = replaced.and_then(|id| state.entries.get_mut(&id)) {
            slot.is_being_replaced = false;
        }
    }

    /// Waits until the records up to this one are durable.
    fn sync(&self, written: u64) -> Result<(), OutboxError> {
        let _alone = self.alone();
        let (file, number, end, now) = {
            let state = self.state();
            if state.synced >= written {
                return Ok(());
            }
            if state.is_broken {
                return Err(OutboxError::Broken);
            }
            let now = state.written;
            let Some(last) = state.segments.last() else { return Ok(()) };
            (last.file.clone(), last.number, last.end, now)
        };
        match file.sync() {
            Ok(()) => {
                let mut state = self.state();
                state.synced = state.synced.max(now);
                state.segments.note_synced(number, end);
                Ok(())
            }
            Err(error) => {
                // Nobody knows what of it is on the disk, and a second sync would not say.
                self.state().is_broken = true;
                Err(error.into())
            }
        }
    }

    /// Waits until all that was said so far survives a power cut.
    ///
    /// # Errors
    /// The disk's.
    pub async fn commit(&self) -> Result<(), OutboxError> {
        if self.state().is_durable() { Ok(()) } else { self.run(Self::commit_now).await }
    }

    /// As [`commit`](Self::commit). Blocks.
    ///
    /// # Errors
    /// The disk's.
    pub fn commit_now(&self) -> Result<(), OutboxError> {
        if !self.state().unsaid.is_empty() {
            drop(self.with_room(0)?);
        }
        let written = self.state().written;
        self.sync(written)
    }

    /// Whether so much was said since that was durable that it should be made so.
    pub fn is_to_be_committed(&self) -> bool {
        let state = self.state();
        state.written - state.synced >= MOST_UNSYNCED || !state.unsaid.is_empty()
    }

    /// The file of an entry has another key, for which `condition` must hold. It leaves a version at an earlier key, which
    /// the caller deletes: if this process dies before, the next one does.
    pub fn moved(&self, id: EntryId, key: &str, condition: Option<&Condition>, leaves: Option<&ObjectId>) {
        let mut state = self.state();
        let named = state.next_id();
        if let Some(slot) = state.entries.get_mut(&id) {
            (slot.entry.key, slot.entry.condition) = (key.to_owned(), condition.cloned());
            (slot.entry.leaves, slot.is_ending, slot.named) = (leaves.cloned(), false, Named::new(named));
            let record = record::moved(id, &slot.entry, named);
            state.say(id, Topic::Name, record);
        }
    }

    /// All files that wait below the prefix `from` have the prefix `to`, where nobody else has a file: all of them, or none
    /// if the process dies meanwhile.
    pub fn folder_moved(&self, from: &str, to: &str) {
        let mut state = self.state();
        let named = state.next_id();
        let mut has_moved = false;
        for slot in state.entries.values_mut().filter(|slot| slot.failed.is_none()) {
            has_moved |= slot.entry.move_below(from, to, &mut slot.named, named);
        }
        if has_moved {
            state.say(EntryId(named), Topic::Folder, record::folder_moved(from, to, named));
        }
    }

    /// The store is about to be told that the file is gone, or that another one has its name. If this process dies before
    /// the entry is over, and its condition does not hold, that was done.
    pub fn ending(&self, id: EntryId, is_ending: bool) {
        let mut state = self.state();
        if let Some(slot) = state.entries.get_mut(&id) {
            slot.is_ending = is_ending;
            state.say(id, Topic::Ending, record::ending(id, is_ending));
        }
    }

    /// The entry is over: the store has it, or nobody wants it any more.
    pub fn done(&self, id: EntryId) {
        let mut state = self.state();
        if state.entries.contains_key(&id) {
            state.say(id, Topic::End, record::done(id));
            state.forget(id);
        }
    }

    /// The store does not take the entry. It stays until somebody decides. Of a long reason, the beginning is kept.
    pub fn failed(&self, id: EntryId, why: &str) {
        let why = &why[..why.floor_char_boundary(MOST_REASON)];
        let mut state = self.state();
        if let Some(slot) = state.entries.get_mut(&id) {
            let is_new = slot.failed.replace(why.to_owned()).is_none();
            state.waiting -= usize::from(is_new);
            state.say(id, Topic::Failure, record::failed(id, why));
        }
    }

    /// An entry that has failed is to be tried again.
    pub fn retry(&self, id: EntryId) {
        let mut state = self.state();
        if let Some(slot) = state.entries.get_mut(&id) {
            let had_failed = slot.failed.take().is_some();
            state.waiting += usize::from(had_failed);
            state.say(id, Topic::Failure, record::retry(id));
        }
    }

    /// All that waits.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.state().entries.iter().map(|(id, slot)| slot.waiting(*id)).collect()
    }

    /// The entry of this number, if it waits.
    pub fn find(&self, id: EntryId) -> Option<Waiting> {
        self.state().entries.get(&id).map(|slot| slot.waiting(id))
    }

    /// How much waits.
    pub fn metrics(&self) -> OutboxMetrics {
        let state = self.state();
        let mut metrics = OutboxMetrics { disk_bytes: state.segments.bytes(), ..OutboxMetrics::default() };
        for slot in state.entries.values() {
            if slot.failed.is_some() {
                metrics.failed += 1;
            } else {
                metrics.entries += 1;
                metrics.bytes += slot.bytes.size();
            }
        }
        metrics
    }

    /// Removes the files of the disk, if nothing waits.
    pub fn tidy(&self) {
        let _alone = self.alone();
        self.state().tidy(self.disk());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).tidy(&*self.disk);
    }
}
