//! Notes of the files that are being written, as [`spooled`](super::spooled) says.

use std::io;
use std::sync::Arc;

use s3mount_write::SpoolBytes;

use super::record::{Changes, RangeRecord, SPOOL, SPOOL_RANGE, SpoolRecord};
use super::spooled::{SpoolKeeper, SpooledDraft};
use super::{Handover, Records};
use crate::numbers::{FileHandle, InodeNo};

/// The most ranges of one draft, and of all.
const MOST_OF_DRAFT: usize = 10_000;
const MOST_RANGES: usize = 100_000;

/// The most threads that are known of those that have written a draft.
const MOST_THREADS: usize = 8;

/// The most files of the spool that are kept at a time: a process may have 1,024 files open where nobody has raised the
/// limit.
const MOST_FILES: usize = 256;

impl Records {
    fn put_spool(&mut self, ino: InodeNo) {
        if let Some(draft) = self.spooled.drafts.get(&ino) {
            let bytes = draft.record.bytes();
            self.put((SPOOL, ino.0), &bytes);
        }
    }

    /// Replaces what is noted of a draft. Returns the number of its file that counts no more.
    fn set_spool(&mut self, ino: InodeNo, record: Option<SpoolRecord>) -> Option<u64> {
        let before = match record {
            Some(record) => {
                let before = self.spooled.drafts.insert(ino, SpooledDraft::new(record));
                self.put_spool(ino);
                before
            }
            None => {
                self.remove((SPOOL, ino.0));
                self.spooled.drafts.remove(&ino)
            }
        }?;
        self.spooled.ranges -= before.ranges.len();
        for number in before.ranges.values().filter_map(|(_, number)| *number) {
            self.remove((SPOOL_RANGE, number));
        }
        before.file()
    }
}

impl Handover {
    /// Has files of the spool kept by `keeper`. It can be set once.
    pub fn keep_files(&self, keeper: Arc<dyn SpoolKeeper>) {
        // A second one is asked for nothing.
        let _ = self.keeper.set(keeper);
    }

    /// Whether files of the spool are kept.
    pub(crate) fn keeps_files(&self) -> bool {
        self.keeper.get().is_some()
    }

    fn leave(&self, file: Option<u64>) {
        if let (Some(keeper), Some(file)) = (self.keeper.get(), file) {
            keeper.leave(file);
        }
    }

    /// Notes that a draft is new and has no bytes, or that it is about to change.
    pub(crate) fn note_unchanged(&self, ino: InodeNo) {
        let left = self.lock().set_spool(ino, Some(SpoolRecord::default()));
        self.leave(left);
    }

    /// Notes that the changes of a draft lie in a file of the spool.
    ///
    /// # Errors
    /// Those of keeping the file, also where there are too many.
    pub(crate) fn begin_spooled(
        &self,
        ino: InodeNo,
        file: &Arc<dyn SpoolBytes>,
        (base_bytes, size): (u64, u64),
    ) -> io::Result<()> {
        let keeper = self.keeper.get().ok_or(io::ErrorKind::Unsupported)?;
        let number = {
            let mut records = self.lock();
            let most = keeper.room().min(MOST_FILES);
            if records.spooled.drafts.values().filter_map(SpooledDraft::file).count() >= most {
                return Err(io::Error::other(format!("more than {most} files are being written")));
            }
            records.spooled.next_file += 1;
            records.spooled.next_file - 1
        };
        keeper.keep(number, file)?;
        let mut records = self.lock();
        let first_range = records.spooled.next_range;
        let changes = Changes::InFile { file: number, base_bytes, size };
        let known = records.spooled.drafts.get(&ino);
        let before = known.map(|draft| (draft.record.threads.clone(), draft.record.emptied.clone()));
        let (threads, emptied) = before.unwrap_or_default();
        let record = SpoolRecord { changes, threads, emptied, first_range, ..SpoolRecord::default() };
        let left = records.set_spool(ino, Some(record));
        drop(records);
        self.leave(left);
        Ok(())
    }

    /// Notes that the file of a draft has some bytes of it. Returns whether the next daemon can go on with the draft.
    pub(crate) fn note_spooled(&self, ino: InodeNo, start: u64, end: u64) -> bool {
        let mut records = self.lock();
        let Some(draft) = records.spooled.drafts.get_mut(&ino) else { return false };
        if draft.file().is_none() || start >= end {
            return draft.file().is_some();
        }
        let before = draft.ranges.len();
        let (from, to, mut numbers) = draft.join(start, end);
        let is_too_much = draft.ranges.len() > MOST_OF_DRAFT;
        let (now, number) = (draft.ranges.len(), numbers.pop());
        records.spooled.ranges = records.spooled.ranges + now - before;
        if is_too_much || records.spooled.ranges > MOST_RANGES {
            drop(records);
            tracing::debug!(%ino, "a file has changed at too many places: it is lost if the daemon is killed");
            self.end_spooled(ino);
            return false;
        }
        let number = number.unwrap_or(records.spooled.next_range);
        records.spooled.next_range = records.spooled.next_range.max(number + 1);
        if let Some(draft) = records.spooled.drafts.get_mut(&ino) {
            draft.ranges.insert(from, (to, Some(number)));
        }
        let record = RangeRecord { ino, start: from, end: to };
        records.put((SPOOL_RANGE, number), &record.bytes());
        for number in numbers {
            records.remove((SPOOL_RANGE, number));
        }
        true
    }

    /// Notes that a draft has `size` bytes now.
    pub(crate) fn resize_spooled(&self, ino: InodeNo, new: u64) {
        let mut records = self.lock();
        let first_range = records.spooled.next_range;
        let Some(draft) = records.spooled.drafts.get(&ino) else { return };
        let Changes::InFile { file, base_bytes, .. } = draft.record.changes else { return };
        let left = draft.ranges().filter(|(start, _)| *start < new);
        let ranges: Vec<_> = left.map(|(start, end)| (start, end.min(new))).collect();
        let changes = Changes::InFile { file, base_bytes: base_bytes.min(new), size: new };
        let record = SpoolRecord { changes, first_range, ranges, ..draft.record.clone() };
        records.spooled.ranges += record.ranges.len();
        records.set_spool(ino, Some(record));
    }

    /// Notes that a thread is about to change a draft through a handle.
    pub(crate) fn note_thread(&self, ino: InodeNo, thread: (FileHandle, u32)) {
        let mut records = self.lock();
        if let Some(draft) = records.spooled.drafts.get_mut(&ino)
            && !draft.record.threads.contains(&thread)
        {
            if draft.record.threads.len() == MOST_THREADS {
                draft.record.threads.remove(0);
            }
            draft.record.threads.push(thread);
            records.put_spool(ino);
        }
    }

    /// Notes that a handle of a draft has made the file, or emptied it.
    pub(crate) fn note_emptied(&self, ino: InodeNo, handle: FileHandle) {
        let mut records = self.lock();
        if let Some(draft) = records.spooled.drafts.get_mut(&ino) {
            if draft.record.emptied.len() == MOST_THREADS {
                draft.record.emptied.remove(0);
            }
            draft.record.emptied.push(handle);
            records.put_spool(ino);
        }
    }

    /// Notes that a program was told that its changes of a draft are safe, which are not published.
    pub(crate) fn note_said(&self, ino: InodeNo, closed: Option<FileHandle>) {
        let mut records = self.lock();
        if let Some(draft) = records.spooled.drafts.get_mut(&ino) {
            draft.record.is_said = true;
            draft.record.threads.retain(|(handle, _)| Some(*handle) != closed);
            draft.record.emptied.retain(|handle| Some(*handle) != closed);
            records.put_spool(ino);
        }
    }

    /// Notes that a draft is published, or that the next daemon can't go on with it: what it has in the spool counts no
    /// more.
    pub(crate) fn end_spooled(&self, ino: InodeNo) {
        let mut records = self.lock();
        if records.spooled.drafts.contains_key(&ino) {
            let left = records.set_spool(ino, None);
            drop(records);
            self.leave(left);
        }
    }

    /// The inodes of which something is noted here.
    pub(crate) fn spooled(&self) -> Vec<InodeNo> {
        self.lock().spooled.drafts.keys().copied().collect()
    }

    /// Calls `look` with what is noted of a draft, if anything is.
    pub(crate) fn look_spooled<T>(&self, ino: InodeNo, look: impl FnOnce(&SpooledDraft) -> T) -> Option<T> {
        self.lock().spooled.drafts.get(&ino).map(look)
    }

    /// Files of the spool that nothing is noted of need not be kept.
    pub(crate) fn leave_files(&self, files: impl IntoIterator<Item = u64>) {
        files.into_iter().for_each(|file| self.leave(Some(file)));
    }
}

#[cfg(test)]
mod tests;
