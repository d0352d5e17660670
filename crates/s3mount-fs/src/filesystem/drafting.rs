//! Begins and ends drafts. A draft, its name and its inode change together here, or not at all.
//!
//! The inode of a version that is opened for writing becomes the inode of a draft, and that of a version again once the
//! last writer has closed the draft. So locks, maps and open handles stay valid. Two opens are exceptions, and give the
//! name another inode: an open that empties a file leaves its readers the version that they opened, and a file that the
//! kernel reads by itself can't be opened in another way. Such an open fails with `ESTALE`, and the kernel looks the
//! name up again, once.

use std::sync::Arc;

use s3mount_object::{Condition, ObjectId, UserMetadata};
use s3mount_write::WriteError;

use super::Filesystem;
use super::open_file::{OpenFile, Opened};
use crate::FsError;
use crate::attributes::stored::StoredAttr;
use crate::drafts::DraftFile;
use crate::drafts::life::{Life, Step, Verdict};
use crate::drafts::writers::WriterId;
use crate::handover::record::{Asked, DraftHandle, OpenAs, OpenRecord};
use crate::names::{Fact, Target};
use crate::numbers::{FileHandle, InodeNo, ROOT};
use crate::tree::inode::Node;
use crate::tree::tree_locks::NamesGuard;
use crate::writes::{OpenDraft, Opener, WriteOpen};
use s3mount_names::{File, SetDraft};

impl Filesystem {
    /// Opens a file for writing.
    ///
    /// # Errors
    /// As of [`open_to_write_by`](Self::open_to_write_by).
    pub async fn open_to_write(self: &Arc<Self>, ino: InodeNo, how: WriteOpen) -> Result<Opened, FsError> {
        self.open_to_write_by(ino, how, 0_u32).await
    }

    /// Opens a file for writing, or to empty it.
    ///
    /// # Errors
    /// `Outdated` if the kernel has to look the name up again. `NotAllowed` if objects may not be overwritten.
    pub async fn open_to_write_by(
        self: &Arc<Self>,
        ino: InodeNo,
        how: WriteOpen,
        opener: impl Into<Opener>,
    ) -> Result<Opened, FsError> {
        let opener = &opener.into();
        if how.writes || how.truncates {
            self.writer()?;
        }
        if let Some((_, opened)) = self.opened_before(opener) {
            return Ok(opened);
        }
        let opened = self.open_inode_to_write(ino, how, opener).await;
        self.note_repeated(ino, opener.thread, &opened);
        opened
    }

    /// Notes whether a thread must repeat its open of an inode.
    pub(super) fn note_repeated<T>(&self, ino: InodeNo, thread: u32, opened: &Result<T, FsError>) {
        if !self.allows_writes() {
            return;
        }
        match opened {
            // The daemon before has given the kernel this inode. Its name is not known here.
            Err(FsError::UnknownInode(_)) => self.writing.detached.note(ROOT, &Arc::from(""), thread),
            Err(FsError::Outdated) => {
                if let Some((parent, name)) = self.inodes.parent_and_name(ino) {
                    self.writing.detached.note(parent, &name, thread);
                }
            }
            Ok(_) | Err(_) => self.writing.detached.end(thread),
        }
    }

    async fn open_inode_to_write(
        self: &Arc<Self>,
        ino: InodeNo,
        how: WriteOpen,
        opener: &Opener,
    ) -> Result<Opened, FsError> {
        loop {
            let file = match self.inodes.node(ino) {
                Some(Node::Draft(file)) if file.life() == Life::GivenUp && self.is_repeated(opener) => {
                    let (prefix, name) = file.place();
                    let stored = file.object().map(|object| (object, file.size()));
                    self.begin_nameless(ino, (&prefix, &name), stored, how.truncates)?
                }
                Some(Node::Draft(file)) => Some(file),
                Some(Node::Directory(_)) => return Err(FsError::IsDirectory),
                None => return Err(FsError::UnknownInode(ino)),
                Some(Node::File(_)) => self.draft_of_inode(ino, how.truncates, opener).await?,
            };
            if let Some(file) = file
                && let Some(opened) = self.open_draft(ino, (&file, false), how, opener, None).await?
            {
                return Ok(opened);
            }
            // The file has become a draft, or a version, in between.
            tokio::task::yield_now().await;
        }
    }

    /// Turns the version of an inode into a draft. Returns `None` if a program of this mount has done so, or has
    /// published another version: then the inode refers to that.
    pub(super) async fn draft_of_inode(
        &self,
        ino: InodeNo,
        is_truncated: bool,
        opener: &Opener,
    ) -> Result<Option<Arc<DraftFile>>, FsError> {
        self.writer()?;
        let (parent, name) = self.inodes.parent_and_name(ino).ok_or(FsError::UnknownInode(ino))?;
        let (prefix, _name) = self.hold_name(parent, &name).await?;
        self.writing.logs.check(&format!("{prefix}{name}"))?;
        let is_repeated = self.is_repeated(opener);
        if self.inodes.is_outdated(ino) && !is_repeated {
            return Err(FsError::Outdated);
        }
        let fact = self.namespace.ask(&prefix, &name).await?;
        match (&fact.target, self.inodes.node(ino)) {
            // A program of this mount has begun to write the file.
            (_, Some(Node::Draft(_))) => Ok(None),
            (Some(Target::File(newest)), Some(Node::File(version)))
                if newest.object.etag() == version.object.etag() =>
            {
                if self.inodes.is_outdated(ino) && !is_repeated {
                    return Err(FsError::Outdated);
                }
                self.rights().overwrite()?;
                let is_newest = self.inodes.is_newest(ino);
                if is_newest && self.has_to_detach(ino, (parent, &name), is_truncated && !is_repeated) {
                    self.inodes.detach(ino);
                    return Err(FsError::Outdated);
                }
                if !is_newest {
                    return Err(FsError::Outdated);
                }
                self.begin_draft((parent, &prefix, &name), (newest, &fact), is_truncated, opener).await
            }
            _ if self.namespace.unless_overtaken(&prefix, &name, &fact, || Some(())).is_none() => Ok(None),
            (_, Some(Node::File(version)))
                if is_repeated && self.namespace.has_made(&prefix, &name, fact.target.as_ref()) =>
            {
                let stored = (version.object, version.size);
                self.begin_nameless(ino, (&prefix, &name), Some(stored), is_truncated)
            }
            // The kernel looks the name up again.
            _ => Err(FsError::Outdated),
        }
    }

    /// Whether the opener is already repeating its open. The kernel repeats it only once.
    fn is_repeated(&self, opener: &Opener) -> bool {
        opener.thread != 0 && self.writing.detached.is_repeated(opener.thread)
    }

    /// Begins a draft without a name, for the inode of a file that this mount has removed, and whose object had some
    /// size. It is empty if it `is_truncated`. The kernel has looked the name up twice for the opener, and does not do
    /// so again: the open counts as one before the removal, as on any file system. Returns `None` if the inode refers
    /// to another file by now.
    fn begin_nameless(
        &self,
        ino: InodeNo,
        (prefix, name): (&Arc<str>, &Arc<str>),
        stored: Option<(ObjectId, u64)>,
        is_truncated: bool,
    ) -> Result<Option<Arc<DraftFile>>, FsError> {
        self.rights().overwrite()?;
        let (writer, object) = (self.writer()?, self.new_object(name));
        let draft = match &stored {
            _ if is_truncated => writer.create(&format!("{prefix}{name}"), object),
            Some((version, size)) => writer.edit(version, *size, object),
            None => return Err(FsError::Outdated),
        };
        let file = DraftFile::new(draft, prefix, name, stored.map(|(version, _)| version));
        file.unlink();
        let is_it = self.inodes.become_nameless(ino, &file);
        if is_it {
            self.tell_readers(ino);
        }
        Ok(is_it.then_some(file))
    }

    /// Whether an open of the inode for writing needs another inode.
    fn has_to_detach(&self, ino: InodeNo, (parent, name): (InodeNo, &Arc<str>), is_truncated: bool) -> bool {
        let is_passed = self
            .files
            .any(|file| matches!(file, OpenFile::Object(open) if open.ino == ino && open.is_passthrough));
        // An opener is told only once to look the name up again: the kernel repeats it only once.
        is_passed || (is_truncated && !self.writing.detached.has(parent, name) && self.has_readers(ino))
    }

    /// Gives a name another inode before its version becomes a draft, if needed. CREATE returns an inode with its
    /// answer.
    pub(super) fn make_way(&self, (parent, name): (InodeNo, &str), is_truncated: bool) {
        if let Some(ino) = self.inodes.newest(parent, name)
            && self.has_to_detach(ino, (parent, &Arc::from(name)), is_truncated)
        {
            self.inodes.detach(ino);
        }
    }

    /// Whether an inode is open for reading alone.
    fn has_readers(&self, ino: InodeNo) -> bool {
        self.files.any(|file| match file {
            OpenFile::Object(open) => open.ino == ino,
            OpenFile::Draft(open) => open.ino == ino && !open.how.writes,
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => false,
        })
    }

    /// Gives the name of an inode to another inode, because the thread `opener` is to open the file anew. The kernel
    /// finds it when it looks the name up again. Handles of the old inode keep the version that they opened.
    pub fn detach(&self, ino: InodeNo, opener: u32) {
        if let Some((parent, name)) = self.inodes.parent_and_name(ino) {
            self.writing.detached.note(parent, &name, opener);
        }
        self.inodes.detach(ino);
    }

    /// Begins a draft in place of the known version of a name, empty if it `is_truncated`. The inode refers to the
    /// draft from now on, and its open handles see the draft. Returns `None` if the name has changed by now.
    pub(super) async fn begin_draft(
        &self,
        (parent, prefix, name): (InodeNo, &Arc<str>, &str),
        (version, fact): (&File, &Fact),
        is_truncated: bool,
        opener: &Opener,
    ) -> Result<Option<Arc<DraftFile>>, FsError> {
        let (writer, rights) = (self.writer()?, self.rights());
        rights.overwrite()?;
        let place = (parent, name);
        let begin = |file: &Arc<DraftFile>| {
            self.inodes.become_draft(place, version.object.etag(), file);
        };
        let is_to_be_described = !is_truncated && self.writing.logs.is_to_be_described(&version.object);
        let found = if is_to_be_described { self.kept_of(version).await? } else { None };
        let kept_draft = || {
            let file = if is_truncated { None } else { self.writing.logs.take(version).inspect(begin) }?;
            if is_to_be_described {
                self.describe(&file, &version.object, found, self.new_object(name));
            }
            Some(file)
        };
        let file = match self.namespace.begin_draft(prefix, name, fact, kept_draft) {
            SetDraft::Draft(file) => file,
            SetDraft::Overtaken => return Ok(None),
            SetDraft::Nothing => {
                let kept = self.kept_of(version).await?;
                opener.check()?;
                let object = self.new_object(name);
                let draft = match &kept {
                    _ if is_truncated => writer.create(version.object.key(), object),
                    Some(kept) => writer.edit_described(&version.object, &kept.description, object),
                    None => writer.edit(&version.object, version.size, object),
                };
                draft.set_condition(Some(Condition::Matches(version.object.etag().clone())));
                let file = DraftFile::new(draft, prefix, name, Some(version.object.clone()));
                self.keep_changes(&file);
                if let Some(kept) = kept {
                    if is_truncated {
                        file.keep_attr(StoredAttr { mtime: None, ..kept.attr }, UserMetadata::new());
                    } else {
                        file.keep_attr(kept.attr, kept.description.object.metadata);
                    }
                }
                let made = || Some(file).inspect(begin);
                match self.namespace.begin_draft(prefix, name, fact, made) {
                    SetDraft::Draft(file) => file,
                    SetDraft::Overtaken | SetDraft::Nothing => return Ok(None),
                }
            }
        };
        if let Some(ino) = file.ino() {
            self.tell_readers(ino);
        }
        Ok(Some(file))
    }

    /// Tells the open handles of an inode that it no longer refers to the version that they opened.
    fn tell_readers(&self, ino: InodeNo) {
        let open: Vec<_> = self.files.filter_map(|file| match file {
            OpenFile::Object(open) if open.ino == ino => Some(open.clone()),
            _ => None,
        });
        for reader in open {
            reader.set_written();
        }
    }

    /// Opens a draft, whose name the caller may have `held`; one that `is_new` is made by this open. Returns `None` if
    /// its name refers to a version by now.
    pub(super) async fn open_draft(
        &self,
        ino: InodeNo,
        (file, is_new): (&Arc<DraftFile>, bool),
        how: WriteOpen,
        opener: &Opener,
        held: Option<&NamesGuard<'_>>,
    ) -> Result<Option<Opened>, FsError> {
        if how.truncates && file.is_idle() && self.has_readers(ino) && self.end_idle(file, held).await {
            // Their handles keep the version.
            return Ok(None);
        }
        if file.verdict(Step::Open) != Verdict::Go {
            return if file.is_sealed() { Ok(None) } else { Err(FsError::Outdated) };
        }
        // A handle that makes an empty file and only reads it has an object to publish, too.
        let writer = if how.writes || how.truncates || is_new {
            let leaves_bytes = how.appends || !how.writes;
            let Some(writer) = file.add_writer(leaves_bytes, opener.thread) else { return Ok(None) };
            Some(writer)
        } else {
            None
        };
        if let Some(writer) = writer {
            if how.appends {
                file.note_log();
            }
            if is_new {
                self.note_changing(file);
                file.note_emptied(writer);
            } else if how.truncates
                && let Err(error) = self.empty(file, writer, opener).await
            {
                file.remove_writer(writer);
                self.discard_unused(file).await;
                return Err(error);
            }
        }
        let asked = Asked { request: opener.request, thread: opener.thread };
        let opened = self.opened_draft(ino, file, (how, asked), writer)?;
        if let Some(handover) = self.handover.as_ref().filter(|_| is_new || how.truncates) {
            handover.note_emptied(ino, opened.handle);
        }
        Ok(Some(opened))
    }

    /// A handle of a draft.
    ///
    /// # Errors
    /// `Outdated` if its bytes were given up meanwhile.
    pub(super) fn opened_draft(
        &self,
        ino: InodeNo,
        file: &Arc<DraftFile>,
        (how, asked): (WriteOpen, Asked),
        writer: Option<WriterId>,
    ) -> Result<Opened, FsError> {
        // A WRITE around the page cache drops the pages before it is sent, so a reader through the page cache could
        // bring the old ones back. A WRITE through the page cache changes them.
        let is_cached = how.writes && self.has_cached(ino);
        if how.writes && !is_cached {
            file.note_direct();
        }
        let is_writer = how.writes || writer.is_some();
        let noted = DraftHandle { writes: how.writes, appends: how.appends, is_writer, is_cached };
        let open = OpenDraft::new(ino, file.clone(), how, writer, is_cached);
        let handle = file.open(|| self.files.insert(OpenFile::Draft(Arc::new(open))));
        if let Some(handle) = handle {
            writer.into_iter().for_each(|writer| file.note_handle(writer, handle));
            self.note_open_as(handle, OpenRecord { ino, as_what: OpenAs::Draft(noted), asked });
        }
        Ok(Opened::draft(handle.ok_or(FsError::Outdated)?, how, is_cached))
    }

    /// Whether an inode is open through the kernel's page cache, or may be mapped.
    fn has_cached(&self, ino: InodeNo) -> bool {
        self.files.any(|file| match file {
            OpenFile::Object(open) => open.ino == ino && !open.is_passthrough,
            OpenFile::Draft(open) => open.ino == ino && open.is_cached,
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => false,
        })
    }

    /// Empties a draft that is being opened. An empty one changes, too: it gets the present time, and the store may
    /// have other bytes by now.
    async fn empty(&self, file: &Arc<DraftFile>, writer: WriterId, opener: &Opener) -> Result<(), FsError> {
        let _turn = file.turn().await;
        opener.check()?;
        self.note_changing(file);
        let cut = file.draft().empty().await;
        cut.map_err(|error| self.failed(file, error))?;
        file.begin_anew(self.new_object(&file.place().1));
        file.note_emptied(writer);
        Ok(())
    }

    /// Makes the name of a draft refer to the version that the draft has become, unless it is open for writing. The
    /// caller holds the draft's turn.
    pub(super) fn seal(&self, file: &Arc<DraftFile>, version: &File) -> bool {
        self.note_attr(version, file.published_attr());
        let found = self.attributes.kept.as_ref().and_then(|attrs| attrs.get(version));
        let (prefix, name) = file.place();
        let mut gone = Vec::new();
        let is_sealed = self.namespace.note_sealed((&prefix, &name), file, version, || {
            let is_sealed = self.inodes.become_version(file, version, found, !file.was_direct());
            if is_sealed && file.is_log() {
                // The next appender continues the draft, and finds it as soon as it finds its version.
                gone = self.writing.logs.keep(file.clone());
            }
            is_sealed
        });
        drop(gone);
        is_sealed
    }

    /// Notes that a draft can never be published, if the error says so. Its name refers to the version in the store
    /// from now on, and its handles keep the error. The caller holds the draft's turn.
    pub(super) fn failed(&self, file: &Arc<DraftFile>, error: WriteError) -> FsError {
        if file.draft().has_failed() && file.fail() {
            let is_lost = self.give_up_failed(file, &error);
            let (prefix, name) = file.place();
            self.namespace.forget_draft(&prefix, &name, file);
            self.namespace.forget(&prefix, &name);
            if let Some(ino) = file.ino() {
                self.inodes.detach(ino);
            }
            if let WriteError::Failed(cause) = &error
                && (is_lost && file.has_closed())
            {
                let lost = FsError::Write(WriteError::Failed(cause.clone()));
                self.writing.logs.note_lost(format!("{prefix}{name}"), lost);
            }
        }
        error.into()
    }

    /// Drops the bytes of a draft that can't become an object any more, once no handle has it open or is about to.
    pub(super) async fn discard_unused(&self, file: &Arc<DraftFile>) {
        if file.give_up(|| self.is_open(file)) {
            self.end_kept(file);
            file.draft().discard().await;
        }
    }

    /// Whether any handle reads or writes a draft.
    fn is_open(&self, file: &Arc<DraftFile>) -> bool {
        let ino = file.ino();
        self.files.any(|open| match open {
            OpenFile::Draft(open) => Arc::ptr_eq(&open.file, file) || Some(open.ino) == ino,
            OpenFile::Object(open) => Some(open.ino) == ino,
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => false,
        })
    }

    /// The open draft of a handle that may change it, or has made it, and the handle's writer.
    pub(super) fn open_to_writer(&self, handle: FileHandle) -> Option<(Arc<OpenDraft>, WriterId)> {
        match self.files.get(handle) {
            Some(OpenFile::Draft(open)) => {
                let writer = open.writer?;
                Some((open, writer))
            }
            _ => None,
        }
    }

    /// The inode and the draft that a handle has open in any way, and the open draft, if it was opened as one.
    pub(super) fn draft_of_handle(
        &self,
        handle: FileHandle,
    ) -> Option<(InodeNo, Arc<DraftFile>, Option<Arc<OpenDraft>>)> {
        let ino = match self.files.get(handle)? {
            OpenFile::Draft(open) if open.writer.is_some() || open.how.writes => {
                return Some((open.ino, open.file.clone(), Some(open)));
            }
            OpenFile::Draft(open) => open.ino,
            OpenFile::Object(open) => open.ino,
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => {
                return None;
            }
        };
        match self.inodes.node(ino)? {
            Node::Draft(file) => Some((ino, file, None)),
            Node::File(_) | Node::Directory(_) => None,
        }
    }
}
