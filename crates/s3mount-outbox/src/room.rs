//! New files for records, and old ones that are emptied.
//!
//! Files are removed from the oldest on. So that one entry that waits long does not keep all files behind its own, the
//! entries of the oldest files are written anew in the last one, if they take little of them.

use std::io;
use std::sync::MutexGuard;

use bytes::Bytes;

use crate::entry::{EntryId, EntryText};
use crate::outbox::{Limits, Outbox, OutboxError};
use crate::record::{self, HEAD};
use crate::segments::Sparse;
use crate::state::{OutboxState, Slot};

/// With fewer old files than this, nothing is written anew, unless the outbox is full.
const FEW_SEGMENTS: usize = 3;

impl Outbox {
    /// The state, with room for a record of up to `bytes` in the last file.
    pub(crate) fn with_room(&self, bytes: u64) -> Result<MutexGuard<'_, OutboxState>, OutboxError> {
        let state = self.state();
        if state.has_room(bytes) {
            return Ok(state);
        }
        // A file that ends is synced, and only one thread at a time learns that a sync has failed.
        drop(state);
        let _alone = self.alone();
        let mut state = self.state();
        if !state.has_room(bytes) {
            self.make_room(&mut state, bytes)?;
        }
        Ok(state)
    }

    fn make_room(&self, state: &mut OutboxState, bytes: u64) -> Result<(), OutboxError> {
        if state.entries.is_empty() {
            // What the disk has is not wanted any more, whatever it is.
            state.tidy(self.disk());
        }
        if state.is_broken {
            return Err(OutboxError::Broken);
        }
        let Limits { bytes: limit, segment_bytes, .. } = self.limits();
        // An entry is not gone before what was said earlier of others is durable.
        state.sync_last()?;
        if state.unsaid.is_empty() {
            state.segments.remove_unused(self.disk());
        }
        let bytes = bytes + HEAD as u64;
        let (files, taken, new) = (state.segments.len(), state.segments.bytes(), segment_bytes.max(bytes));
        let is_full = taken + new > limit;
        let sparse = state.segments.sparse(files, segment_bytes);
        match sparse.filter(|_| is_full || files >= FEW_SEGMENTS) {
            Some(sparse) => {
                let least = bytes + sparse.entry_bytes;
                let new = segment_bytes.max(least);
                // The files that are emptied are there beside the new one until their entries are.
                if taken - sparse.bytes + new > limit {
                    return Err(OutboxError::Full);
                }
                self.begin_segment(state, least, new)?;
                self.empty(state, sparse);
            }
            None if is_full => return Err(OutboxError::Full),
            None => self.begin_segment(state, bytes, new)?,
        }
        let taken = state.segments.bytes();
        if taken <= limit && state.has_room(bytes - HEAD as u64) {
            return Ok(());
        }
        if taken + new > limit {
            return Err(OutboxError::Full);
        }
        Ok(self.begin_segment(state, bytes, new)?)
    }

    /// Has records written to a new file of `bytes` from now on, or of `least` where the disk has no room for more. Those of
    /// before are durable.
    fn begin_segment(&self, state: &mut OutboxState, least: u64, bytes: u64) -> io::Result<()> {
        state.sync_last()?;
        match state.begin(self.disk(), bytes) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && least < bytes => {
                state.begin(self.disk(), least)?;
            }
            begun => begun?,
        }
        state.say_again()
    }

    /// Empties files that the outbox of before has left, if they are many and their entries have room in the last one.
    pub(crate) fn empty_old(&self) {
        let _alone = self.alone();
        let mut state = self.state();
        let Some(last) = state.segments.last() else { return };
        let (room, files) = (last.room.saturating_sub(last.end), state.segments.len() - 1);
        if files >= FEW_SEGMENTS
            && let Some(sparse) = state.segments.sparse(files, room)
        {
            self.empty(&mut state, sparse);
        }
    }

    /// Removes these files, and writes their entries anew.
    fn empty(&self, state: &mut OutboxState, sparse: Sparse) {
        match Self::write_anew(state, sparse) {
            Ok(()) => state.segments.remove_unused(self.disk()),
            Err(error) => tracing::warn!(%error, "files of the outbox can't be emptied"),
        }
    }

    /// Writes the entries of files anew. The last file has just begun, so none of them is being replaced.
    fn write_anew(state: &mut OutboxState, sparse: Sparse) -> io::Result<()> {
        let is_there = |slot: &Slot| slot.bytes.location().segment <= sparse.up_to;
        let there = state.entries.iter().filter(|(_, slot)| is_there(slot));
        let ids: Vec<EntryId> = there.map(|(id, _)| *id).collect();
        let mut written = Vec::new();
        for id in ids {
            let Some(slot) = state.entries.get(&id) else { continue };
            let kept = slot.bytes.clone();
            let mut bytes = vec![0; usize::try_from(kept.size()).map_err(|_| io::ErrorKind::FileTooLarge)?];
            kept.read(0, &mut bytes)?;
            let bytes = [Bytes::from(bytes)];
            // Damaged bytes stay damaged ones.
            let mut text = EntryText::of(&slot.entry, None, slot.failed.clone(), slot.named);
            text.is_ending = slot.is_ending;
            let head = record::put(id, &text, kept.size(), kept.crc());
            let to = state.append(&head, &bytes)?;
            written.push((kept, to));
        }
        state.sync_last()?;
        for (kept, to) in written {
            state.segments.add_entry(&to);
            let from = std::mem::replace(&mut *kept.location(), to);
            state.segments.drop_entry(&from);
        }
        Ok(())
    }
}
