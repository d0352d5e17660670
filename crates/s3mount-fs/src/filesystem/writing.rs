//! Writing files: creating them, writing, cutting. [`super::drafting`] opens them, and [`super::closing`] makes objects
//! of them.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_object::{Condition, NewObject, UserMetadata};
use s3mount_write::{Published, Writer};

use super::Filesystem;
use super::open_file::{OpenFile, Opened};
use crate::FsError;
use crate::attr::{Attr, Entry};
use crate::attributes::stored::StoredAttr;
use crate::control::{self, Control, memory_file};
use crate::drafts::DraftFile;
use crate::drafts::life::{Step, Verdict};
use crate::drafts::writers::WriterId;
use crate::names::{Fact, Target};
use crate::numbers::{FileHandle, InodeNo, ROOT, RequestId};
use crate::tree::inode::Node;
use crate::tree::tree_locks::NamesGuard;
use crate::writes::{Deferred, DeferredWrite, Opener, To, WriteOpen};
use s3mount_names::{File, SetDraft, is_file_name};

impl Filesystem {
    pub(super) fn writer(&self) -> Result<&Writer, FsError> {
        self.writing.writes.as_ref().map(|writes| &writes.writer).ok_or(FsError::ReadOnly)
    }

    /// Makes a file and opens it, or opens the existing one.
    ///
    /// # Errors
    /// `ReadOnly`, `Exists`, `IsDirectory`, `NotAllowed`, or those of looking the name up.
    pub async fn create(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        how: WriteOpen,
    ) -> Result<(Entry, Opened), FsError> {
        self.create_as(parent, name, how, StoredAttr::default()).await
    }

    /// As [`create`](Self::create). A file that is new gets these attributes, if the mount keeps any.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn create_as(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        how: WriteOpen,
        attr: StoredAttr,
    ) -> Result<(Entry, Opened), FsError> {
        self.create_by(parent, name, how, attr, 0_u32).await
    }

    /// As [`create_as`](Self::create_as), for the thread `opener`. The number 0 is an unknown thread.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn create_by(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        how: WriteOpen,
        attr: StoredAttr,
        opener: impl Into<Opener>,
    ) -> Result<(Entry, Opened), FsError> {
        let opener = &opener.into();
        self.writer()?;
        self.writing.detached.end(opener.thread);
        let (prefix, held) = self.hold_name(parent, name).await?;
        if let Some(created) = self.created_before(parent, (&prefix, name), opener) {
            return Ok(created);
        }
        self.writing.logs.check(&format!("{prefix}{name}"))?;
        loop {
            let fact = self.namespace.ask(&prefix, name).await?;
            let file = match &fact.target {
                Some(_) if how.is_exclusive => return Err(FsError::Exists),
                Some(Target::Directory) => return Err(FsError::IsDirectory),
                Some(Target::Draft(file)) => Some(file.clone()),
                Some(Target::File(version)) => {
                    self.make_way((parent, name), how.truncates);
                    let place = (parent, &prefix, name);
                    self.begin_draft(place, (version, &fact), how.truncates, opener).await?
                }
                None => {
                    self.writer()?.free(&format!("{prefix}{name}"), None).await;
                    opener.check()?;
                    self.new_draft(&prefix, name, &fact, attr)?
                }
            };
            let is_new = fact.target.is_none();
            let Some(file) = file else {
                tokio::task::yield_now().await;
                continue;
            };
            let target = Target::Draft(file.clone());
            if let Some(given) = self.inodes.look_up(parent, &prefix, name, &target) {
                let opened = self.open_draft(given.ino, (&file, is_new), how, opener, Some(&held)).await;
                if let Ok(Some(opened)) = opened {
                    let attr = file.attr(given.ino);
                    return Ok((Entry { attr, name_ttl: attr.ttl }, opened));
                }
                // The kernel does not get the inode.
                self.inodes.forget(given.ino, 1);
                opened?;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A draft of a file without an object in the store, unless the name has one by now. The kernel makes one file of a
    /// name at a time, but it does not wait for a killed caller, and then the next one may have made the file.
    fn new_draft(
        &self,
        prefix: &Arc<str>,
        name: &str,
        fact: &Fact,
        attr: StoredAttr,
    ) -> Result<Option<Arc<DraftFile>>, FsError> {
        let draft = self.writer()?.create(&format!("{prefix}{name}"), self.new_object(name));
        draft.set_condition(Some(Condition::Absent));
        let file = DraftFile::new(draft, prefix, name, None);
        if self.attributes.kept.is_some() {
            file.keep_attr(attr, UserMetadata::new());
        }
        self.keep_changes(&file);
        match self.namespace.begin_draft(prefix, name, fact, || Some(file.clone())) {
            SetDraft::Draft(begun) => Ok(Some(begun).filter(|begun| Arc::ptr_eq(begun, &file))),
            SetDraft::Overtaken | SetDraft::Nothing => Ok(None),
        }
    }

    /// The prefix of a directory in which `name` may be changed.
    pub(super) fn writable_directory(&self, parent: InodeNo, name: &str) -> Result<Arc<str>, FsError> {
        let is_own = Control::of(parent).is_some() || (parent == ROOT && name == control::NAME);
        if is_own {
            return Err(FsError::ReadOnly);
        }
        let prefix = self.inodes.prefix(parent)?;
        // S3's limit for keys.
        if !is_file_name(name) || prefix.len() + name.len() > 1024 {
            return Err(FsError::NameTooLong);
        }
        Ok(prefix)
    }

    /// The prefix of a directory in which `name` may be changed. The directory keeps its prefix as long as the guard
    /// lives.
    pub(super) async fn hold_name(
        &self,
        parent: InodeNo,
        name: &str,
    ) -> Result<(Arc<str>, NamesGuard<'_>), FsError> {
        loop {
            let prefix = self.writable_directory(parent, name)?;
            let guard = self.writing.tree_locks.hold_names(&[(&prefix, name)]).await;
            // The directory may have been renamed in between.
            if self.writable_directory(parent, name)? == prefix {
                return Ok((prefix, guard));
            }
        }
    }

    /// Whether an inode refers to a draft.
    pub fn is_draft(&self, ino: InodeNo) -> bool {
        matches!(self.inodes.node(ino), Some(Node::Draft(_)))
    }

    /// Whether objects may be written.
    pub fn allows_writes(&self) -> bool {
        self.writing.writes.is_some()
    }

    /// Writes bytes to one of the daemon's own files, or to a draft, at `offset`. Returns the work that can't be done
    /// at once for [`finish_write`](Self::finish_write), and the writer waits for that. `thread` counts as the writer.
    ///
    /// # Errors
    /// `ReadOnly` for any other file, and those of writing to a draft.
    pub fn write(
        self: &Arc<Self>,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Deferred>, FsError> {
        self.take_bytes(handle, To::Offset(offset), data, thread)
    }

    /// As [`write`](Self::write), but appends the bytes at the present end of the file: the kernel may not know yet
    /// what another program has written.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(
        self: &Arc<Self>,
        handle: FileHandle,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Deferred>, FsError> {
        self.take_bytes(handle, To::End(None), data, thread)
    }

    /// As [`append`](Self::append), for a request that comes again if this daemon is killed before it has answered. If it
    /// `is_repeated`, a daemon before may have appended the bytes, and it appends them once.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append_once(
        self: &Arc<Self>,
        handle: FileHandle,
        data: &[u8],
        thread: u32,
        (id, is_repeated): (RequestId, bool),
    ) -> Result<Option<Deferred>, FsError> {
        let Some(handover) = &self.handover else { return self.append(handle, data, thread) };
        if is_repeated && handover.has_appended(id) {
            return self.check_lost(handle).map(|()| None);
        }
        self.take_bytes(handle, To::End(Some(id)), data, thread)
    }

    /// Notes that bytes are about to be appended up to the offset `end`, in the draft's turn.
    fn note_append(&self, file: &DraftFile, to: To, end: u64) {
        if let (To::End(Some(id)), Some(handover), Some(ino)) = (to, &self.handover, file.ino()) {
            handover.note_append(id, ino, end);
        }
    }

    /// As [`write`](Self::write), for pages that a map has changed. A map never makes a file longer: the kernel drops
    /// bytes beyond the end, but the file may have been cut since. So this drops them, too.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write_back(
        self: &Arc<Self>,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Deferred>, FsError> {
        self.take_bytes(handle, To::Pages(offset), data, thread)
    }

    /// Takes the limit on the memory that a program writes.
    fn set_memory_limit(&self, data: &[u8]) -> Result<(), FsError> {
        let bytes = memory_file::parse(data, self.config.memory_beside_bytes).ok_or(FsError::NotNumber)?;
        self.prefetcher.set_memory_limit(bytes);
        Ok(())
    }

    /// Handles the bytes of a WRITE.
    fn take_bytes(
        self: &Arc<Self>,
        handle: FileHandle,
        to: To,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Deferred>, FsError> {
        match self.files.get(handle) {
            Some(OpenFile::Hints(writer)) => {
                self.ahead.take_hints(&writer, data);
                Ok(None)
            }
            Some(OpenFile::Keep(writer)) => Ok(Some(Deferred::Warm(writer.push(data)))),
            Some(OpenFile::Settable(Control::Pending, _)) => self.decide_in_outbox(data).map(|()| None),
            Some(OpenFile::Settable(..)) => self.set_memory_limit(data).map(|()| None),
            Some(OpenFile::Draft(open)) if open.how.writes => {
                let Some(writer) = open.writer else { return Err(FsError::ReadOnly) };
                self.write_draft(&open.file, writer, to, data, thread)
            }
            Some(OpenFile::Draft(_) | OpenFile::Snapshot(_) | OpenFile::Events(_)) => Err(FsError::ReadOnly),
            Some(OpenFile::Object(_) | OpenFile::Lost(_)) | None => Err(self.no_writer(handle)),
        }
    }

    /// Handles the bytes of a WRITE to a draft.
    fn write_draft(
        &self,
        file: &Arc<DraftFile>,
        writer: WriterId,
        to: To,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Deferred>, FsError> {
        let turn = file.try_turn();
        let (mut to, mut data) = (to, data);
        if turn.is_some() {
            let draft = file.draft();
            let (at, len) = to.range(|| draft.size(), data.len());
            data = &data[..len];
            if to.is_behind(len) && !draft.has_failed() {
                return Ok(None);
            }
            self.note_change(file, writer, thread, matches!(to, To::End(_)))?;
            self.note_append(file, to, at + len as u64);
            let written = draft.try_write(at, data).map_err(|error| self.failed(file, error))?;
            if written == data.len() {
                return Ok(None);
            }
            (to, data) = (To::Offset(at + written as u64), &data[written..]);
        }
        let (start, end) = match to {
            To::Offset(offset) | To::Pages(offset) => (offset, offset.saturating_add(data.len() as u64)),
            To::End(_) => (file.draft().size(), u64::MAX),
        };
        let underway = file.underway.begin(start, end);
        let (file, data) = (file.clone(), Bytes::copy_from_slice(data));
        Ok(Some(Deferred::Write(DeferredWrite { file, writer, thread, to, turn, underway, data })))
    }

    /// Does the work that [`write`](Self::write) has deferred.
    ///
    /// # Errors
    /// Those of [`warm_cache`](Self::warm_cache), and of writing to a draft.
    pub async fn finish_write(self: Arc<Self>, deferred: Deferred) -> Result<(), FsError> {
        match deferred {
            Deferred::Warm(request) => self.warm_cache(request).await,
            Deferred::Write(DeferredWrite {
                file,
                writer,
                thread,
                to,
                turn,
                underway: _underway,
                mut data,
            }) => {
                let is_noted = turn.is_some();
                let _turn = match turn {
                    Some(turn) => turn,
                    None => file.turn().await,
                };
                let draft = file.draft();
                let (at, len) = to.range(|| draft.size(), data.len());
                data.truncate(len);
                if to.is_behind(len) && !draft.has_failed() {
                    return Ok(());
                }
                if !is_noted {
                    self.note_change(&file, writer, thread, matches!(to, To::End(_)))?;
                }
                self.note_append(&file, to, at + len as u64);
                draft.write(at, data).await.map_err(|error| self.failed(&file, error))
            }
        }
    }

    /// Sets the size of a file. Without a handle, publishes the file at once, unless another handle is changing it.
    ///
    /// # Errors
    /// `Outdated` as of [`open_to_write`](Self::open_to_write).
    pub async fn set_size(
        self: Arc<Self>,
        ino: InodeNo,
        handle: Option<FileHandle>,
        size: u64,
        thread: u32,
    ) -> Result<Attr, FsError> {
        if let Some((open, writer)) = handle.and_then(|handle| self.open_to_writer(handle)) {
            self.cut(&open.file, writer, size, thread).await?;
            return self.getattr(ino);
        }
        let (file, writer) = self.add_writer(ino, false, thread).await?;
        let result = match self.cut(&file, writer, size, thread).await {
            Ok(()) => self.publish_closed(&file, Some(writer)).await,
            Err(error) => Err(error),
        };
        if file.remove_writer(writer) && !file.waits() {
            let ended = self.clone().end_draft(file).await;
            result.and(ended)?;
        } else {
            result?;
        }
        self.getattr(ino)
    }

    /// Cuts or extends a draft to `size` bytes.
    async fn cut(
        &self,
        file: &Arc<DraftFile>,
        writer: WriterId,
        size: u64,
        thread: u32,
    ) -> Result<(), FsError> {
        let _turn = file.turn().await;
        self.note_change(file, writer, thread, false)?;
        file.draft().truncate(size).await.map_err(|error| self.failed(file, error))
    }

    /// Notes that a thread changes a draft through a handle, in the draft's turn; one that `appends` changes no existing
    /// byte.
    ///
    /// # Errors
    /// `Outdated` for a draft that can't be changed any more. A failed one returns its own error.
    pub(super) fn note_change(
        &self,
        file: &DraftFile,
        writer: WriterId,
        thread: u32,
        appends: bool,
    ) -> Result<(), FsError> {
        match file.verdict(Step::Change) {
            Verdict::LookAgain => return Err(FsError::Outdated),
            Verdict::Go | Verdict::Skip | Verdict::Fail => {}
        }
        self.note_changing(file);
        self.note_thread(file, writer, thread);
        file.note_write(writer, thread, appends);
        Ok(())
    }

    /// Notes for the next daemon that a draft is about to have bytes that nobody else has.
    pub(super) fn note_changing(&self, file: &DraftFile) {
        let (Some(handover), Some(ino)) = (&self.handover, file.ino()) else { return };
        if !file.set_changing(true) {
            file.draft().set_number(ino.in_marks());
            if file.is_kept() {
                handover.note_unchanged(ino);
            }
            if !file.is_kept() {
                // It may have been given up just now.
                handover.end_spooled(ino);
            }
            self.inodes.record(ino);
        }
    }

    /// Counts one more handle that may write to the file of an inode; one that `appends` changes no existing byte.
    pub(super) async fn add_writer(
        &self,
        ino: InodeNo,
        appends: bool,
        opener: u32,
    ) -> Result<(Arc<DraftFile>, WriterId), FsError> {
        loop {
            let file = match self.inodes.node(ino) {
                Some(Node::Draft(file)) => Some(file),
                Some(Node::Directory(_)) => return Err(FsError::IsDirectory),
                None => return Err(FsError::UnknownInode(ino)),
                Some(Node::File(_)) => self.draft_of_inode(ino, false, &opener.into()).await?,
            };
            if let Some(file) = file {
                if let Some(writer) = file.add_writer(appends, opener) {
                    return Ok((file, writer));
                }
                if !file.is_sealed() {
                    return Err(FsError::Outdated);
                }
            }
            // It has become a draft, or a version, in between.
            tokio::task::yield_now().await;
        }
    }

    /// The metadata of a new object of this name.
    pub(super) fn new_object(&self, name: &str) -> NewObject {
        let object = self.writing.writes.as_ref().map(|writes| writes.object.clone()).unwrap_or_default();
        let by_name = || content_type(name);
        NewObject { content_type: object.content_type.clone().or_else(by_name), ..object }
    }
}

/// The media type by the name's extension, as the AWS CLI sets it.
fn content_type(name: &str) -> Option<String> {
    mime_guess::from_path(name).first_raw().map(str::to_owned)
}

/// The version that a draft has become.
pub(super) fn version_of(published: Published) -> File {
    File { object: published.object, size: published.size, mtime: published.modified }
}
