//! Files that are being written and that the next daemon goes on with: their changes lie in the spool.

use std::io;
use std::sync::{Arc, Weak};

use s3mount_object::{Condition, ETag, ObjectId};
use s3mount_write::{KeptChanges, KeptDraft, Ranges, SpoolBytes};

use super::Filesystem;
use super::open_file::OpenFile;
use crate::FsError;
use crate::control::Control;
use crate::drafts::DraftFile;
use crate::drafts::writers::WriterId;
use crate::handover::record::{Changes, KnownNode, NodeRecord, StoredVersion};
use crate::handover::spooled::SpooledDraft;
use crate::handover::{Handover, Left};
use crate::numbers::{FileHandle, InodeNo};

/// Notes the changes of one file for the next daemon.
#[derive(Debug)]
struct Noter {
    handover: Arc<Handover>,
    file: Weak<DraftFile>,
}

impl Noter {
    fn ino(&self) -> Option<InodeNo> {
        self.file.upgrade()?.ino()
    }

    /// The inode, unless the next daemon can't go on with the file: it may have lost its name.
    fn kept_ino(&self) -> Option<InodeNo> {
        self.file.upgrade().filter(|file| file.is_kept())?.ino()
    }
}

impl KeptChanges for Noter {
    fn begin(&self, bytes: &Arc<dyn SpoolBytes>, base_bytes: u64, size: u64) -> io::Result<bool> {
        let Some(ino) = self.kept_ino() else { return Ok(false) };
        self.handover.begin_spooled(ino, bytes, (base_bytes, size)).map(|()| true)
    }

    fn wrote(&self, start: u64, end: u64) {
        if let Some(file) = self.file.upgrade()
            && !file.ino().is_some_and(|ino| self.handover.note_spooled(ino, start, end))
        {
            file.give_up_kept();
        }
    }

    fn resized(&self, size: u64) {
        self.ino().into_iter().for_each(|ino| self.handover.resize_spooled(ino, size));
    }

    fn given_up(&self) {
        let Some(file) = self.file.upgrade() else { return };
        file.give_up_kept();
        file.ino().into_iter().for_each(|ino| self.handover.end_spooled(ino));
    }
}

/// A file of the daemon before whose changes are not lost.
#[derive(Debug)]
pub(super) struct GoingOn {
    ino: InodeNo,
    parent: InodeNo,
    name: Box<str>,
    stored: Option<StoredVersion>,
    /// Set if it has changes that are not published.
    unpublished: Option<Unpublished>,
}

#[derive(Debug)]
struct Unpublished {
    /// `None`: it was about to change.
    changes: Option<InSpool>,
    is_said: bool,
}

/// What the spool has of a draft.
#[derive(Debug)]
struct InSpool {
    file: Arc<dyn SpoolBytes>,
    base_bytes: u64,
    size: u64,
    ranges: Ranges,
}

impl GoingOn {
    pub(super) fn ino(&self) -> InodeNo {
        self.ino
    }

    /// Whether it has changes that are not published.
    pub(super) fn is_unpublished(&self) -> bool {
        self.unpublished.is_some()
    }
}

impl Filesystem {
    /// Has the changes of a file kept in the spool, if the next daemon may need them. Call it before the first.
    pub(super) fn keep_changes(&self, file: &Arc<DraftFile>) {
        let Some(handover) = self.handover.as_ref().filter(|handover| handover.keeps_files()) else { return };
        // The attributes of an open file are only in the memory of its daemon.
        if self.attributes.kept.is_none() {
            file.set_noted();
            file.draft().keep(Arc::new(Noter { handover: handover.clone(), file: Arc::downgrade(file) }));
        }
    }

    /// Notes that a draft is published, or that the next daemon can't go on with it.
    pub(super) fn end_kept(&self, file: &DraftFile) {
        if let (Some(handover), Some(ino)) = (&self.handover, file.ino()) {
            handover.end_spooled(ino);
        }
    }

    /// Notes that a thread is about to change a draft through a handle.
    pub(super) fn note_thread(&self, file: &DraftFile, writer: WriterId, thread: u32) {
        if let (Some(handover), Some(ino), true) = (&self.handover, file.ino(), file.is_kept())
            && let Some(handle) = file.handle(writer)
        {
            handover.note_thread(ino, (handle, thread));
        }
    }

    /// Notes that the next daemon can't go on with a draft.
    pub(super) fn give_up_kept(&self, file: &DraftFile) {
        file.give_up_kept();
        self.end_kept(file);
    }

    /// Takes the name of a draft away. The next daemon does not go on with it.
    pub(super) fn unlink_draft(&self, file: &DraftFile) {
        file.unlink();
        self.end_in_outbox(file);
        self.give_up_kept(file);
        file.ino().into_iter().for_each(|ino| self.inodes.record(ino));
    }

    /// Notes that a program was told that its changes of a draft are safe, and has closed the handle of this writer.
    pub(super) fn note_said(&self, file: &DraftFile, writer: Option<WriterId>) {
        if let (Some(handover), Some(ino), true) = (&self.handover, file.ino(), file.is_kept()) {
            handover.note_said(ino, writer.and_then(|writer| file.handle(writer)));
        }
    }

    /// What this daemon goes on with of the files that the one before was writing. `has_writers` tells whether a program
    /// has one open to write. The other files that have unsaved bytes are lost.
    pub(super) fn going_on(
        &self,
        nodes: &[(InodeNo, NodeRecord)],
        left: &mut Left,
        has_writers: impl Fn(InodeNo) -> bool,
    ) -> Vec<GoingOn> {
        let mut all = Vec::new();
        let Some(handover) = self.handover.as_ref() else { return all };
        let can_go_on = self.writing.writes.is_some() && self.attributes.kept.is_none();
        let mut ended: Vec<_> = handover.spooled();
        for (ino, NodeRecord { parent, name, is_newest, node }) in nodes {
            let KnownNode::Draft { stored, is_saved } = node else { continue };
            let of_spool = |known: &SpooledDraft| {
                let changes = match known.record.changes {
                    // Whoever was about to make the file asks again.
                    Changes::None if stored.is_none() && !has_writers(*ino) => return None,
                    Changes::None => None,
                    Changes::InFile { base_bytes, .. } if base_bytes > 0 && stored.is_none() => return None,
                    Changes::InFile { file, base_bytes, .. } => {
                        let file = left.files.get(&file)?.clone();
                        Some(InSpool {
                            file,
                            base_bytes,
                            size: known.size(),
                            ranges: known.ranges().collect(),
                        })
                    }
                };
                Some(Unpublished { changes, is_said: known.record.is_said })
            };
            let goes_on = match is_saved {
                true => has_writers(*ino).then_some(None),
                false => handover.look_spooled(*ino, of_spool).flatten().map(Some),
            };
            if let Some(unpublished) = goes_on.filter(|_| *is_newest && can_go_on) {
                ended.retain(|ended| unpublished.is_none() || ended != ino);
                let (stored, name) = (stored.clone(), name.clone());
                all.push(GoingOn { ino: *ino, parent: *parent, name, stored, unpublished });
            }
        }
        let used: Vec<u64> = all
            .iter()
            .filter_map(|going_on| handover.look_spooled(going_on.ino, |known| known.file()).flatten())
            .collect();
        ended.into_iter().for_each(|ino| handover.end_spooled(ino));
        let files = std::mem::take(&mut left.files).into_keys();
        handover.leave_files(files.filter(|file| !used.contains(file)));
        all
    }

    /// The daemon before may have been publishing a file, and the store may take that late.
    pub(super) fn expect_late(&self, ino: InodeNo, record: &NodeRecord) {
        let (NodeRecord { parent, name, node, .. }, Some(handover)) = (record, &self.handover) else {
            return;
        };
        if let (KnownNode::Draft { stored, .. }, Ok(writer), Ok(prefix)) =
            (node, self.writer(), self.inodes.prefix(*parent))
        {
            let awaited = stored.as_ref().map(|stored| ETag::new(&stored.etag));
            let key = format!("{prefix}{name}");
            let marks = (handover.family_before(), ino.in_marks());
            writer.bucket().expect_late(&key, marks, awaited.as_ref());
        }
    }

    /// Makes a draft again of a file that the daemon before was writing.
    pub(super) fn go_on(self: &Arc<Self>, going_on: GoingOn) -> Option<Arc<DraftFile>> {
        let GoingOn { ino, parent, name, stored, unpublished } = going_on;
        let (Ok(prefix), Ok(writer)) = (self.inodes.prefix(parent), self.writer()) else {
            tracing::error!(%ino, %name, "a file was being written when the daemon ended: its bytes are lost");
            return None;
        };
        let (key, object) = (format!("{prefix}{name}"), self.new_object(&name));
        let version = stored
            .as_ref()
            .map(|StoredVersion { etag, size, .. }| (ObjectId::new(key.as_str(), ETag::new(etag)), *size));
        let stored = stored.map(|StoredVersion { size, modified, .. }| (size, modified));
        let condition = version
            .as_ref()
            .map_or(Condition::Absent, |(version, _)| Condition::Matches(version.etag().clone()));
        let is_said = unpublished.as_ref().is_some_and(|unpublished| unpublished.is_said);
        let changes = unpublished.and_then(|unpublished| unpublished.changes);
        let is_new = version.is_none() && changes.is_none();
        let is_unpublished = changes.is_some() || is_new;
        let draft = match (changes, &version) {
            (Some(InSpool { file, base_bytes, size, ranges: spooled }), _) => {
                let base = version.clone().filter(|_| base_bytes > 0);
                let kept = KeptDraft { file, base, base_bytes, size, spooled };
                writer.go_on(&key, kept, Some(condition), object)
            }
            (None, Some((version, size))) => writer.edit(version, *size, object),
            (None, None) => {
                let draft = writer.create(&key, object);
                draft.set_condition(Some(condition));
                draft
            }
        };
        let file = DraftFile::new(draft, &prefix, &name, version.map(|(version, _)| version));
        // The kernel may have pages from before a write around them.
        file.note_direct();
        if is_said {
            file.note_closed(None);
        }
        file.draft().set_number(ino.in_marks());
        file.set_changing(is_unpublished);
        self.keep_changes(&file);
        self.inodes.restore_draft(ino, (parent, &name), &file, stored);
        if !is_unpublished {
            self.end_kept(&file);
        }
        self.namespace.note_draft(&prefix, &name, &file);
        tracing::info!(key, is_unpublished, "goes on with a file that is being written");
        Some(file)
    }

    /// # Errors
    /// `LostDaemon` for a file whose bytes are lost with the daemon that had it open.
    pub(super) fn check_lost(&self, handle: FileHandle) -> Result<(), FsError> {
        match self.files.get(handle) {
            Some(OpenFile::Lost(ino)) if Control::of(ino).is_none() => Err(FsError::LostDaemon),
            _ => Ok(()),
        }
    }

    /// Why nothing is written through a handle: the daemon that had opened it to write is gone, or it never was.
    pub(super) fn no_writer(&self, handle: FileHandle) -> FsError {
        match self.files.get(handle) {
            Some(OpenFile::Lost(_)) => FsError::LostDaemon,
            Some(OpenFile::Object(open)) if open.was_written() => FsError::LostDaemon,
            _ => FsError::ReadOnly,
        }
    }
}
