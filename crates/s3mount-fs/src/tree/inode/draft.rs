//! Inodes of files that are being written.
//!
//! A version that this mount begins to write becomes a draft, and the draft becomes a version again, under the same
//! number.

use std::sync::Arc;

use s3mount_object::ETag;

use super::{DraftNode, InodeNo, InodeTable, Tables, Version};
use crate::attributes::known::CachedAttr;
use crate::drafts::DraftFile;
use crate::drafts::life::Life;
use crate::names::Target;
use s3mount_names::File;
use s3mount_names::time::millis;

impl DraftNode {
    /// Drops `count` look-ups of the kernel. Returns whether it does not know the inode any more.
    pub(super) fn forget(&mut self, count: u64) -> bool {
        self.lookups = self.lookups.saturating_sub(count);
        self.lookups == 0
    }
}

impl Tables {
    /// Finds the inode of a draft that has the name `name` in `parent`, or makes one.
    pub(super) fn draft(&mut self, parent: InodeNo, name: &str, file: &Arc<DraftFile>) -> InodeNo {
        if let Some(ino) = file.ino()
            && let Some(known) = self.drafts.get_mut(&ino)
            && (known.parent, &*known.name) == (parent, name)
            && Arc::ptr_eq(&known.file, file)
        {
            known.lookups += 1;
            known.is_outdated = false;
            if self.newest(parent, name) != Some(ino) {
                self.set_newest(ino, parent, name);
            }
            return ino;
        }
        // Another draft of this name is another file.
        self.drafts_made += 1;
        let ino = self.take_number(parent, name, Some(&format!("\0{}", self.drafts_made)));
        self.add_draft(ino, (parent, name), file, (None, false));
        ino
    }

    /// Adds the newest inode of a name, which is that of a draft. `stored`: the length of the version that the store has, if
    /// any, and when that was written, in milliseconds since 1970. `was_open`: whether a program has had it open.
    fn add_draft(
        &mut self,
        ino: InodeNo,
        (parent, name): (InodeNo, &str),
        file: &Arc<DraftFile>,
        (stored, was_open): (Option<(u64, i64)>, bool),
    ) {
        let known = DraftNode {
            parent,
            name: Arc::from(name),
            file: file.clone(),
            lookups: 1,
            is_outdated: false,
            has_age: false,
            stored,
            was_open,
        };
        self.set_newest(ino, parent, name);
        self.drafts.insert(ino, known);
        self.record(ino);
        file.note_ino(ino);
    }

    /// Makes the inode of a version refer to a draft. Returns whether it does.
    fn become_draft(&mut self, ino: InodeNo, file: &Arc<DraftFile>) -> bool {
        let Some(known) = self.versions.remove(&ino) else { return false };
        let draft = DraftNode {
            parent: known.parent,
            name: Arc::from(known.name()),
            file: file.clone(),
            lookups: known.lookups.into(),
            is_outdated: known.is_outdated,
            has_age: true,
            stored: Some((known.size, known.modified)),
            was_open: true,
        };
        self.drafts.insert(ino, draft);
        self.record(ino);
        file.note_ino(ino);
        true
    }

    /// Whether the newest inode of a name is one of a draft, and `target` is from before or after that draft.
    pub(super) fn is_overtaken(&self, newest: Option<InodeNo>, target: &Target) -> bool {
        match target {
            Target::Directory => false,
            Target::Draft(file) => matches!(file.life(), Life::Sealed | Life::Failed | Life::GivenUp),
            Target::File(_) => newest
                .and_then(|ino| self.drafts.get(&ino))
                .is_some_and(|known| matches!(known.file.life(), Life::Dirty | Life::Clean)),
        }
    }
}

/// What an inode refers to, compared with the version at its open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Still the same version.
    Same,
    /// A file that is being written.
    Draft,
    /// Another version.
    Other,
}

impl InodeTable {
    /// Makes the newest inode of `name` in `parent` refer to a draft, if it refers to the version with this ETag.
    /// Returns the inode.
    pub(crate) fn become_draft(
        &self,
        (parent, name): (InodeNo, &str),
        etag: &ETag,
        file: &Arc<DraftFile>,
    ) -> Option<InodeNo> {
        let mut tables = self.lock();
        let ino = tables.newest(parent, name)?;
        tables.versions.get(&ino).filter(|known| known.etag() == etag.as_str())?;
        tables.become_draft(ino, file).then_some(ino)
    }

    /// The kernel knows this inode from the daemon before, which was writing the file. The inode may be that of a version.
    /// `stored` is as of [`add_draft`](Tables::add_draft).
    pub(crate) fn restore_draft(
        &self,
        ino: InodeNo,
        place: (InodeNo, &str),
        file: &Arc<DraftFile>,
        stored: Option<(u64, i64)>,
    ) {
        let mut tables = self.lock();
        if !tables.become_draft(ino, file) {
            tables.add_draft(ino, place, file, (stored, true));
        }
    }

    /// Makes an inode of a version, or of a draft that was given up, refer to this draft, whatever its name refers to.
    /// Returns whether it does.
    pub(crate) fn become_nameless(&self, ino: InodeNo, file: &Arc<DraftFile>) -> bool {
        let mut tables = self.lock();
        let Some(known) = tables.drafts.get_mut(&ino) else { return tables.become_draft(ino, file) };
        if known.file.life() != Life::GivenUp {
            return false;
        }
        file.note_ino(ino);
        let given_up = std::mem::replace(&mut known.file, file.clone());
        drop(tables);
        // This may drop the last reference to a draft, which gives its memory back: hold no lock here.
        drop(given_up);
        true
    }

    /// Ends a draft, unless it has writers, and makes its inode refer to the version that it has become: no caller sees
    /// the one without the other. With `keeps_pages`, the kernel's pages of the inode are right. Returns whether the
    /// draft has ended.
    pub(crate) fn become_version(
        &self,
        file: &DraftFile,
        version: &File,
        found: Option<CachedAttr>,
        keeps_pages: bool,
    ) -> bool {
        let mut tables = self.lock();
        if !file.seal() {
            return false;
        }
        let Some(ino) = file.ino() else { return true };
        if tables.drafts.get(&ino).is_none_or(|known| *known.file != *file) {
            return true;
        }
        let Some(known) = tables.drafts.remove(&ino) else { return true };
        tables.opens = tables.opens.next();
        let now = Version {
            parent: known.parent,
            text: format!("{}{}", known.name, version.object.etag().as_str()).into(),
            size: version.size,
            modified: millis(version.mtime),
            lookups: u32::try_from(known.lookups).unwrap_or(u32::MAX),
            name_len: u16::try_from(known.name.len()).expect("a name of at most 255 bytes"),
            is_outdated: false,
            may_have_old_pages: !keeps_pages,
            opened: tables.opens,
            found: found.map(Box::new),
        };
        tables.versions.insert(ino, now);
        tables.record(ino);
        if !known.has_age && tables.note_new(ino, self.limit) {
            self.has_too_many.notify_one();
        }
        drop(tables);
        // This may drop the last reference to a draft, which gives its memory back: hold no lock here.
        drop(known);
        true
    }

    /// What an inode refers to now that referred to the version with this ETag.
    pub(crate) fn since(&self, ino: InodeNo, etag: &ETag) -> Since {
        let tables = self.lock();
        match tables.versions.get(&ino) {
            Some(known) if known.etag() == etag.as_str() => Since::Same,
            Some(_) => Since::Other,
            None if tables.drafts.contains_key(&ino) => Since::Draft,
            // The kernel has forgotten the inode, which it does not do while the inode is open.
            None => Since::Same,
        }
    }

    /// Whether the kernel may have pages of the inode from before its version was written. Clears the mark.
    pub(crate) fn take_old_pages(&self, ino: InodeNo) -> bool {
        let mut tables = self.lock();
        let known = tables.versions.get_mut(&ino);
        let has_old = known.is_some_and(|known| std::mem::take(&mut known.may_have_old_pages));
        if has_old {
            tables.record(ino);
        }
        has_old
    }

    /// Whether look-ups of its name return this inode.
    pub(crate) fn is_newest(&self, ino: InodeNo) -> bool {
        let tables = self.lock();
        tables.parent_and_name(ino).is_some_and(|(parent, name)| tables.newest(parent, name) == Some(ino))
    }

    /// The newest inode of `name` in `parent`, if the kernel knows any.
    pub(crate) fn newest(&self, parent: InodeNo, name: &str) -> Option<InodeNo> {
        self.lock().newest(parent, name)
    }

    /// Takes the name from an inode: look-ups return another inode from now on, and the kernel is notified.
    pub(crate) fn detach(&self, ino: InodeNo) {
        let mut tables = self.lock();
        let place = tables.parent_and_name(ino).map(|(parent, name)| (parent, name.to_owned()));
        if let Some((parent, name)) = place
            && tables.newest(parent, &name) == Some(ino)
        {
            tables.remove_newest(parent, &name);
        }
        drop(tables);
        self.outdate_version(ino);
    }
}
