//! Asks the kernel to forget files when it knows more of them than there is memory for.
//!
//! A kernel that has free memory never forgets a file by itself. The kernel is asked to forget first the files that
//! were looked up first. It keeps those that are open or were opened lately. It also keeps all folders: a folder may be
//! the working directory of a process, which would no longer find its path.

use std::collections::HashMap;

use super::{InodeNo, InodeTable, KnownName, Tables};

/// How many files the kernel is asked to forget at a time.
const AT_ONCE: usize = 4096;

/// How many files are examined for that. This takes some milliseconds.
const LOOKED_AT: usize = 1 << 16;

/// How many forgotten files `by_age` may hold before they are removed from it.
const FORGOTTEN: usize = 4096;

impl Tables {
    /// Notes a new file. Returns whether this file is the first above `limit`.
    pub(super) fn note_new(&mut self, ino: InodeNo, limit: usize) -> bool {
        self.by_age.push_back(ino);
        if self.by_age.len() > self.versions.len() * 2 + FORGOTTEN {
            let (versions, drafts) = (&self.versions, &self.drafts);
            self.by_age.retain(|ino| versions.contains_key(ino) || drafts.contains_key(ino));
            self.by_age.shrink_to(self.by_age.len() * 2);
        }
        let has_come = !self.are_too_many && self.versions.len() > limit;
        self.are_too_many |= has_come;
        has_come
    }

    /// Notes that a file was forgotten. When there were too many files, an eighth of `limit` must be forgotten.
    pub(super) fn note_forgotten(&mut self, limit: usize) {
        self.are_too_many &= self.versions.len() > limit - limit / 8;
    }
}

impl InodeTable {
    /// Waits until the kernel knows too many files.
    pub(crate) async fn wait_for_too_many(&self) {
        while !self.lock().are_too_many {
            self.has_too_many.notified().await;
        }
    }

    /// Some of the oldest files, by directory, without open ones (`is_open`) and those that were opened lately.
    pub(crate) fn oldest(&self, is_open: impl Fn(InodeNo) -> bool) -> HashMap<InodeNo, Vec<KnownName>> {
        let mut tables = self.lock();
        let mut wanted = (tables.versions.len() + self.limit / 8).saturating_sub(self.limit).min(AT_ONCE);
        let lately = u32::try_from(self.limit / 2).unwrap_or(u32::MAX);
        let mut oldest: HashMap<InodeNo, Vec<KnownName>> = HashMap::new();
        for _ in 0..tables.by_age.len().min(LOOKED_AT) {
            if wanted == 0 {
                break;
            }
            let Some(ino) = tables.by_age.pop_front() else { break };
            let Some(known) = tables.versions.get(&ino) else {
                if tables.drafts.contains_key(&ino) {
                    // The file becomes a version again.
                    tables.by_age.push_back(ino);
                }
                continue;
            };
            let was_opened_lately = known.opened.was_ever() && tables.opens.since(known.opened) < lately;
            if !was_opened_lately && !is_open(ino) {
                oldest
                    .entry(known.parent)
                    .or_default()
                    .push(KnownName { ino: Some(ino), name: known.name().into() });
                wanted -= 1;
            }
            tables.by_age.push_back(ino);
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};

    use super::super::{InodeTable, ROOT};
    use super::AT_ONCE;
    use crate::names::Target;
    use s3mount_names::File;

    #[test]
    fn the_oldest_that_are_not_in_use_are_asked_for() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 800);
        let version = Target::File(File {
            object: ObjectId::new("a", ETag::new("1")),
            size: 1,
            mtime: SystemTime::UNIX_EPOCH,
        });
        let give = |index: u64| table.lookup_or_insert(ROOT, "", &index.to_string(), &version).ino;
        let mut inodes: Vec<_> = (0..800).map(give).collect();
        assert!(!table.lock().are_too_many);
        inodes.extend((800..900).map(give));
        assert!(table.lock().are_too_many);
        // One file is open, the next was just opened.
        table.open(inodes[1]);
        let asked: Vec<_> = table
            .oldest(|ino| ino == inodes[0])
            .remove(&ROOT)
            .expect("files")
            .into_iter()
            .filter_map(|file| file.ino)
            .collect();
        assert_eq!(asked, inodes[2..202], "an eighth less than the limit");
        asked.iter().for_each(|ino| table.forget(*ino, 1));
        assert!(!table.lock().are_too_many);
        assert_eq!(table.oldest(|_| false).len(), 0);
        // Files that are added and forgotten leave nothing behind.
        for index in 1000..100_000 {
            table.forget(give(index), 1);
        }
        assert!(table.lock().by_age.len() <= 2 * 700 + AT_ONCE);
    }
}
