//! The numbers of inodes, and what the next daemon is told of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::lost::LostDraft;
use super::recent::Noted;
use super::{Directory, DraftNode, InodeNo, InodeTable, OpenClock, Tables, Version};
use crate::drafts::life::Life;
use crate::handover::Handover;
use crate::handover::record::{KnownNode, NodeRecord, StoredVersion};
use crate::numbers::ROOT;
use s3mount_names::time::millis;

impl DraftNode {
    /// Whether a name still refers to the file.
    fn has_name(&self) -> bool {
        !matches!(self.file.life(), Life::Unlinked | Life::GivenUp)
    }

    /// The version that the store has of the file, under the name that the file has.
    fn stored_version(&self) -> Option<StoredVersion> {
        if !matches!(self.file.life(), Life::Dirty | Life::Clean | Life::Failed) {
            return None;
        }
        let ((size, modified), object) = (self.stored?, self.file.object()?);
        Some(StoredVersion { etag: object.etag().as_str().into(), size, modified })
    }
}

impl Tables {
    /// A number for a directory (no ETag), or for a version. Without a next daemon, numbers count up. Else a look-up by
    /// the next daemon finds the same one.
    pub(super) fn take_number(&mut self, parent: InodeNo, name: &str, etag: Option<&str>) -> InodeNo {
        let Some(handover) = &self.handover else {
            let number = self.next;
            self.next.0 += 1;
            return number;
        };
        let numbers = handover.numbers();
        let mut tries = 0;
        loop {
            let number = numbers.of(parent, name, etag, tries);
            if !self.is_taken(number) {
                return number;
            }
            tries += 1;
        }
    }

    /// How often an inode was given to the kernel, if it is known.
    pub(super) fn lookups(&self, ino: InodeNo) -> Option<u64> {
        let of_version = self.versions.get(&ino).map(|known| known.lookups.into());
        let of_directory = || self.directories.get(&ino).map(|known| known.lookups);
        of_version.or_else(of_directory).or_else(|| self.drafts.get(&ino).map(|known| known.lookups))
    }

    fn is_taken(&self, ino: InodeNo) -> bool {
        self.versions.contains_key(&ino)
            || self.directories.contains_key(&ino)
            || self.drafts.contains_key(&ino)
            || self.lost.contains_key(&ino)
    }

    /// Whether no look-up gives the kernel this inode without a record: files that this mount has written have other
    /// numbers than look-ups give them, and directories have records.
    pub(super) fn needs_record(&self, ino: InodeNo) -> bool {
        let (Some(handover), Some(version)) = (&self.handover, self.versions.get(&ino)) else { return true };
        let found = handover.numbers().of(version.parent, version.name(), Some(version.etag()), 0);
        found != ino
    }

    /// Whether the next daemon has to know a draft, also one that the kernel has forgotten: it has what `close` has left
    /// unpublished. So it is with the directories around it.
    pub(super) fn is_unsaved(&self, ino: InodeNo) -> bool {
        let is_unsaved = |known: &DraftNode| known.has_name() && !known.file.is_saved();
        let is_around = |directory: &Directory| {
            let is_inside =
                |known: &DraftNode| is_unsaved(known) && known.file.place().0.starts_with(&*directory.prefix);
            self.drafts.values().any(is_inside)
        };
        self.handover.is_some()
            && (self.drafts.get(&ino).is_some_and(is_unsaved)
                || self.directories.get(&ino).is_some_and(is_around))
    }

    /// Notes for the next daemon what an inode refers to now, if that needs a record.
    pub(super) fn record(&self, ino: InodeNo) {
        let Some(handover) = &self.handover else { return };
        if ino == ROOT || self.lost.contains_key(&ino) {
            return;
        }
        let is_needed = handover.is_open(ino) || self.recent.has(ino);
        let Some(record) = self.record_of(handover, ino, is_needed) else {
            return handover.set_node(ino, None, false);
        };
        handover.set_node(ino, Some(&record), is_needed);
        if is_needed {
            self.record_folders(handover, record.parent);
        }
    }

    /// Forgets the files of the daemon before whose bytes are lost and that no program has open. That daemon may have had
    /// their FORGET.
    pub(super) fn forget_lost(&mut self) {
        let Some(handover) = self.handover.clone() else { return };
        let closed: Vec<_> = self.lost.keys().copied().filter(|ino| !handover.is_open(*ino)).collect();
        for ino in closed {
            self.lost.remove(&ino);
            self.record(ino);
        }
    }

    /// Notes that the kernel is given a file, for the next daemon.
    pub(super) fn note_recent(&mut self, ino: InodeNo) {
        if self.handover.is_none() || !self.versions.contains_key(&ino) {
            return;
        }
        let Noted { is_new, dropped } = self.recent.note(ino);
        is_new.then_some(ino).into_iter().chain(dropped).for_each(|ino| self.record(ino));
    }

    /// Records all directories above something that has to be known.
    fn record_folders(&self, handover: &Handover, mut folder: InodeNo) {
        while folder != ROOT
            && !handover.has_node(folder)
            && let Some(record) = self.record_of(handover, folder, true)
        {
            handover.set_node(folder, Some(&record), true);
            folder = record.parent;
        }
    }

    fn record_of(&self, handover: &Handover, ino: InodeNo, is_needed: bool) -> Option<NodeRecord> {
        let (parent, name) = self.parent_and_name(ino)?;
        let mut has_name = true;
        let node = if let Some(version) = self.versions.get(&ino) {
            let is_found = || ino == handover.numbers().of(parent, name, Some(version.etag()), 0);
            if !is_needed && !version.may_have_old_pages && is_found() {
                return None;
            }
            KnownNode::Version {
                etag: version.etag().into(),
                size: version.size,
                modified: version.modified,
                may_have_old_pages: version.may_have_old_pages,
            }
        } else if let Some(draft) = self.drafts.get(&ino) {
            has_name = draft.has_name();
            let stored = draft.stored_version();
            if stored.is_none() && !draft.was_open {
                return None;
            }
            KnownNode::Draft { is_saved: stored.is_some() && draft.file.is_saved(), stored }
        } else {
            KnownNode::Folder
        };
        let is_newest = has_name && self.newest(parent, name) == Some(ino);
        Some(NodeRecord { parent, name: name.into(), is_newest, node })
    }

    /// The prefix of a directory that has a record, and of those above it.
    fn restore_folder(&mut self, ino: InodeNo, folders: &HashMap<InodeNo, NodeRecord>) -> Option<Arc<str>> {
        if let Some(known) = self.directories.get(&ino) {
            return Some(known.prefix.clone());
        }
        let record = folders.get(&ino)?;
        let prefix: Arc<str> = match self.restore_folder(record.parent, folders) {
            Some(above) => format!("{above}{}/", record.name).into(),
            None => return None,
        };
        let known = Directory {
            prefix: prefix.clone(),
            parent: record.parent,
            name: Arc::from(&*record.name),
            lookups: 1,
            is_outdated: false,
        };
        if record.is_newest {
            self.set_newest(ino, record.parent, &record.name);
        }
        self.directories.insert(ino, known);
        Some(prefix)
    }
}

impl InodeTable {
    /// Takes notes for a next daemon from now on. The kernel must know no inode yet.
    pub(crate) fn hand_over(&self, handover: Arc<Handover>) {
        self.lock().handover = Some(handover);
    }

    /// Notes that a draft was published.
    pub(crate) fn record_published(&self, ino: InodeNo) {
        let mut tables = self.lock();
        if let Some(draft) = tables.drafts.get_mut(&ino)
            && let Some(version) = draft.file.whole_version()
        {
            draft.stored = Some((version.size, millis(version.mtime)));
        }
        tables.record(ino);
    }

    /// Notes that a look-up gives an inode to the kernel.
    pub(crate) fn note_recent(&self, ino: InodeNo) {
        self.lock().note_recent(ino);
    }

    /// Notes that an inode was opened or closed.
    pub(crate) fn record(&self, ino: InodeNo) {
        let mut tables = self.lock();
        tables.note_recent(ino);
        let Tables { drafts, handover, .. } = &mut *tables;
        if let (Some(draft), Some(handover)) = (drafts.get_mut(&ino), handover) {
            draft.was_open |= handover.is_open(ino);
        }
        tables.record(ino);
    }

    /// Forgets the inodes that the kernel has not looked up again, once the first minute is over. The housekeeper calls it.
    pub(crate) fn settle(&self) {
        let mut tables = self.lock();
        let mut drafts = Vec::new();
        for ino in tables.settling.end_round() {
            if tables.lookups(ino) != Some(0) {
                continue;
            }
            if tables.handover.as_ref().is_some_and(|handover| handover.is_open(ino))
                || tables.is_unsaved(ino)
            {
                tables.settling.keep_on(ino);
            } else {
                drafts.push(tables.remove(ino, self.limit));
            }
        }
        if !tables.settling.goes_on() {
            tables.forget_lost();
        }
        drop(tables);
        // This may drop the last references to files, which gives their memory back: hold no lock here.
        drop(drafts);
    }

    /// The kernel knows these inodes from the daemon before. How often each was looked up is not known: the kernel
    /// forgets all look-ups at once.
    pub(crate) fn restore(&self, nodes: impl IntoIterator<Item = (InodeNo, NodeRecord)>) {
        let mut tables = self.lock();
        let (folders, files): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|(_, record)| record.node == KnownNode::Folder);
        tables.settling.begin(folders.iter().chain(&files).map(|(ino, _)| *ino).collect());
        let folders: HashMap<_, _> = folders.into_iter().collect();
        for ino in folders.keys() {
            tables.restore_folder(*ino, &folders);
        }
        for (ino, record) in files {
            let NodeRecord { parent, name, is_newest, node } = record;
            let is_unsure = matches!(node, KnownNode::Draft { is_saved: false, .. });
            let (etag, size, modified, may_have_old_pages) = match node {
                KnownNode::Version { etag, size, modified, may_have_old_pages } => {
                    (etag, size, modified, may_have_old_pages)
                }
                // It may have been written, also around the kernel's page cache. The store may have replaced the version since,
                // if the daemon was killed while it published the file.
                KnownNode::Draft { stored: Some(StoredVersion { etag, size, modified }), .. } => {
                    (etag, size, modified, true)
                }
                KnownNode::Draft { stored: None, .. }
                    if !is_newest
                        && tables.handover.as_ref().is_some_and(|handover| !handover.is_open(ino)) =>
                {
                    // Nobody is to be told any more.
                    tables.handover.iter().for_each(|handover| handover.set_node(ino, None, false));
                    continue;
                }
                KnownNode::Draft { stored: None, .. } => {
                    let lost = LostDraft { parent, name: Arc::from(name), is_outdated: false };
                    tables.lost.insert(ino, lost);
                    // The kernel shows what the draft was until it looks the name up again.
                    if is_newest {
                        tables.outdate(parent, ino);
                    }
                    continue;
                }
                KnownNode::Folder => continue,
            };
            if is_newest {
                tables.set_newest(ino, parent, &name);
            }
            let known = Version {
                parent,
                text: format!("{name}{etag}").into(),
                size,
                modified,
                lookups: 1,
                name_len: u16::try_from(name.len()).expect("a name of at most 255 bytes"),
                is_outdated: false,
                may_have_old_pages,
                opened: OpenClock::NEVER,
                found: None,
            };
            tables.versions.insert(ino, known);
            tables.note_recent(ino);
            if is_newest && is_unsure {
                tables.outdate(parent, ino);
            }
            if tables.note_new(ino, self.limit) {
                self.has_too_many.notify_one();
            }
        }
        drop(tables);
        self.has_outdated.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::super::renamed::Renamed;
    use super::super::settling::ROUNDS;
    use super::{InodeNo, InodeTable, KnownNode, NodeRecord, ROOT, StoredVersion};
    use crate::handover::Handover;
    use crate::names::Target;

    #[test]
    fn the_name_of_a_file_that_was_being_published_is_looked_up_again() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let record = |name: &str, is_saved| {
            let stored = Some(StoredVersion { etag: "1".into(), size: 1, modified: 0 });
            let node = KnownNode::Draft { stored, is_saved };
            NodeRecord { parent: ROOT, name: name.into(), is_newest: true, node }
        };
        let (saved, unsaved) = (InodeNo(100), InodeNo(101));
        table.restore([(saved, record("saved", true)), (unsaved, record("unsaved", false))]);
        assert_eq!([saved, unsaved].map(|ino| table.is_outdated(ino)), [false, true]);
    }

    /// The kernel has forgotten both of two directories. The inner one is kept for a while, because the daemon before may have
    /// given it, and then another directory gets the number of the outer one.
    #[test]
    fn a_directory_that_is_kept_is_not_found_in_another_one() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let file = tempfile::tempfile().expect("a file");
        table.hand_over(Arc::new(Handover::create(file, [7; 16]).expect("a log")));
        let inner = InodeNo(100);
        let node = KnownNode::Folder;
        table.restore([(inner, NodeRecord { parent: ROOT, name: "b".into(), is_newest: true, node })]);
        let give = |parent, prefix: &str, name: &str| {
            table.lookup_or_insert(parent, prefix, name, &Target::Directory).ino
        };
        let outer = give(ROOT, "", "c");
        table.rename((ROOT, "b"), (outer, "x"), Renamed::Folder);
        table.rename((ROOT, "c"), (ROOT, "d"), Renamed::Folder);
        assert_eq!(&*table.prefix(inner).expect("a directory"), "d/x/");
        table.forget(inner, 1);
        table.forget(outer, 1);
        assert_eq!(give(ROOT, "", "c"), outer, "the number is free");
        let other = give(outer, "c/", "x");
        assert_ne!(other, inner);
        assert_eq!(&*table.prefix(other).expect("a directory"), "c/x/");
        assert_eq!(give(outer, "c/", "x"), other);
    }

    #[test]
    fn an_inode_that_is_looked_up_again_stays() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let (kept, gone) = (InodeNo(100), InodeNo(101));
        table.restore([(kept, "kept"), (gone, "gone")].map(|(ino, name)| {
            (ino, NodeRecord { parent: ROOT, name: name.into(), is_newest: true, node: KnownNode::Folder })
        }));
        let give = |name: &str| table.lookup_or_insert(ROOT, "", name, &Target::Directory).ino;
        assert_eq!([give("kept"), give("gone")], [kept, gone]);
        // The kernel drops look-ups that the daemon before has counted.
        table.forget(kept, 3);
        table.forget(gone, 2);
        assert!(table.node(kept).is_some() && table.node(gone).is_some());
        let own = give("own");
        table.forget(own, 1);
        assert!(table.node(own).is_none(), "the daemon before did not know it");
        assert_eq!(give("kept"), kept);
        (1..ROUNDS).for_each(|_| table.settle());
        assert!(table.node(gone).is_some());
        table.settle();
        assert!(table.node(kept).is_some() && table.node(gone).is_none());
        table.forget(kept, 1);
        assert!(table.node(kept).is_none(), "the time is over");
    }
}
