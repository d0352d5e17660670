//! Writing files: creating, opening, writing, publishing.
//!
//! A file is written into a draft. The first open for writing of a version makes a draft for its name and fails
//! with `ESTALE`: then the kernel looks the name up again, and opens the draft's inode. An OPEN could not give the
//! kernel another inode.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_object::{Condition, NewObject, UserMetadata};
use s3mount_write::{Published, Writer};
use tokio::sync::MutexGuard;

use super::Filesystem;
use super::open_file::{OpenFile, Opened};
use crate::FsError;
use crate::attr::{Attr, Entry};
use crate::attributes::stored::StoredAttr;
use crate::control::{self, Control};
use crate::drafts::DraftFile;
use crate::inode::Node;
use crate::namespace::names::{File, Target, is_file_name};
use crate::numbers::{FileHandle, InodeNo, ROOT};
use crate::tree_locks::NamesGuard;
use crate::writes::{Later, LaterWrite, OpenDraft, WriteOpen, WritePlace};

impl Filesystem {
    pub(super) fn writer(&self) -> Result<&Writer, FsError> {
        self.writes.as_ref().map(|writes| &writes.writer).ok_or(FsError::ReadOnly)
    }

    /// Makes a file and opens it, or opens the one that is there.
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
        let writer = self.writer()?;
        let (prefix, _name) = self.hold_name(parent, name).await?;
        self.logs.check(&format!("{prefix}{name}"))?;
        let file = match self.namespace.get(&prefix, name).await {
            Ok(_) if how.is_exclusive => return Err(FsError::Exists),
            Ok((Target::Directory, _)) => return Err(FsError::IsDirectory),
            Ok((Target::Draft(file), _)) => file,
            Ok((Target::File(file), _)) => self.draft_of(&prefix, name, &file, how.truncates).await?,
            Err(FsError::NotFound) => {
                let draft = writer.create(&format!("{prefix}{name}"), self.new_object(name));
                draft.set_condition(Some(Condition::Absent));
                let file = DraftFile::new(draft, &prefix, name, None);
                if self.attrs.is_some() {
                    file.keep_attr(attr, UserMetadata::new());
                }
                self.namespace.note_draft(&prefix, name, &file);
                file
            }
            Err(error) => return Err(error),
        };
        let handle = self.open_draft(&file, how).await?;
        let attr = self.inodes.lookup_or_insert(parent, &prefix, name, &Target::Draft(file));
        Ok((Entry { attr, name_ttl: attr.ttl }, Opened::own(handle)))
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

    /// The prefix of a directory in which `name` may be changed. The directory keeps it as long as the guard lives.
    pub(super) async fn hold_name(
        &self,
        parent: InodeNo,
        name: &str,
    ) -> Result<(Arc<str>, NamesGuard<'_>), FsError> {
        loop {
            let prefix = self.writable_directory(parent, name)?;
            let guard = self.tree_locks.hold_names(&[(&prefix, name)]).await;
            // The directory may have been renamed meanwhile.
            if self.writable_directory(parent, name)? == prefix {
                return Ok((prefix, guard));
            }
        }
    }

    /// A draft in the place of a version, empty if it `is_truncated`.
    async fn draft_of(
        &self,
        prefix: &Arc<str>,
        name: &str,
        version: &File,
        is_truncated: bool,
    ) -> Result<Arc<DraftFile>, FsError> {
        let (writer, rights) = (self.writer()?, self.rights());
        rights.overwrite()?;
        let kept_draft = || if is_truncated { None } else { self.logs.take(version) };
        if let Some(file) = self.namespace.note_draft_of_version(prefix, name, kept_draft) {
            return Ok(file);
        }
        let kept = self.kept_of(version).await?;
        let object = match &kept {
            Some(kept) if !is_truncated => kept.object(self.new_object(name)),
            _ => self.new_object(name),
        };
        let draft = if is_truncated {
            writer.create(version.object.key(), object)
        } else {
            writer.edit(&version.object, version.size, object)
        };
        draft.set_condition(Some(Condition::Matches(version.object.etag().clone())));
        let file = DraftFile::new(draft, prefix, name, Some(version.object.clone()));
        if let Some(kept) = kept {
            if is_truncated {
                file.keep_attr(StoredAttr { mtime: None, ..kept.attr }, UserMetadata::new());
            } else {
                file.keep_attr(kept.attr, kept.object.metadata);
            }
        }
        let noted = self.namespace.note_draft_of_version(prefix, name, || Some(file.clone()));
        Ok(noted.unwrap_or(file))
    }

    async fn open_draft(&self, file: &Arc<DraftFile>, how: WriteOpen) -> Result<FileHandle, FsError> {
        if how.writes {
            self.add_writer(file, how.appends).await?;
        }
        if how.writes && how.appends {
            file.note_log();
        }
        if how.truncates
            && file.size() > 0
            && let Err(error) = file.draft().truncate(0).await
        {
            if how.writes {
                file.remove_writer(how.appends);
            }
            return Err(error.into());
        }
        Ok(self.files.insert(OpenFile::Draft(Arc::new(OpenDraft { file: file.clone(), how }))))
    }

    /// Counts one more handle that may write; one that `appends` changes no byte that is there. A draft that has
    /// just become a version is a draft again: were its OPEN to fail with `ESTALE`, the OPEN of the version after
    /// it would fail so once more, and the kernel tries only once.
    pub(super) async fn add_writer(&self, file: &Arc<DraftFile>, appends: bool) -> Result<(), FsError> {
        let (prefix, name) = file.place();
        while !file.add_writer(appends) {
            let known = file.object();
            match self.namespace.get(&prefix, &name).await?.0 {
                // Its name stands for the version in a moment.
                Target::Draft(draft) if draft == *file => tokio::task::yield_now().await,
                Target::File(newest) => {
                    self.rights().overwrite()?;
                    let revived = || file.revive(&newest.object).then(|| file.clone());
                    self.namespace.note_draft_of_version(&prefix, &name, revived);
                    // Others may have made a draft of it, and a version again, in between.
                    if known.as_ref() != Some(&newest.object) && known == file.object() {
                        return Err(FsError::Outdated);
                    }
                }
                Target::Draft(_) | Target::Directory => return Err(FsError::Outdated),
            }
        }
        Ok(())
    }

    /// Opens a file for writing, or a draft in any way.
    ///
    /// # Errors
    /// `Outdated` for a version: its name stands for a draft now, and the kernel has to look it up again.
    /// `NotAllowed` if objects may not be overwritten.
    pub async fn open_to_write(self: &Arc<Self>, ino: InodeNo, how: WriteOpen) -> Result<Opened, FsError> {
        let file = self.draft_to_write(ino).await?;
        if how.writes {
            self.writer()?;
        }
        Ok(Opened::own(self.open_draft(&file, how).await?))
    }

    /// The draft of an inode. A version that is the newest of its name gets one, and the answer is `Outdated`. Such a
    /// draft has the version's bytes, whatever the caller wants: should the caller not come again, nothing has
    /// changed.
    async fn draft_to_write(&self, ino: InodeNo) -> Result<Arc<DraftFile>, FsError> {
        match self.inodes.node(ino) {
            Some(Node::Draft(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(FsError::IsDirectory),
            None => Err(FsError::UnknownInode(ino)),
            Some(Node::File(_)) => {
                self.writer()?;
                let (parent, name) = self.inodes.parent_and_name(ino).ok_or(FsError::UnknownInode(ino))?;
                let (prefix, _name) = self.hold_name(parent, &name).await?;
                self.logs.check(&format!("{prefix}{name}"))?;
                loop {
                    let file = match self.namespace.get(&prefix, &name).await?.0 {
                        // It may be a newer version by now. Its inode would tell the caller to come again once more,
                        // and the kernel tries only once.
                        Target::File(newest) => self.draft_of(&prefix, &name, &newest, false).await?,
                        Target::Draft(file) => file,
                        // The kernel will find what is there.
                        Target::Directory => return Err(FsError::Outdated),
                    };
                    if file.expect_writer() {
                        return Err(FsError::Outdated);
                    }
                    // Its name stands for the version in a moment.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Whether an inode is a draft.
    pub fn is_draft(&self, ino: InodeNo) -> bool {
        matches!(self.inodes.node(ino), Some(Node::Draft(_)))
    }

    /// Whether objects may be written.
    pub fn allows_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// Takes bytes for the file of the daemon's own, or for a draft, where they go to `offset`. What can't be done at
    /// once is returned for [`finish_write`](Self::finish_write), and the writer waits for that. `thread` has written.
    ///
    /// # Errors
    /// `ReadOnly` for any other file, and those of writing to a draft.
    pub fn write(
        self: &Arc<Self>,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Later>, FsError> {
        self.take_bytes(handle, Some(offset), data, thread)
    }

    /// As [`write`](Self::write), but the bytes go to the end of the file, wherever that is by now: the kernel may not
    /// know yet what another program has written.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(
        self: &Arc<Self>,
        handle: FileHandle,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Later>, FsError> {
        self.take_bytes(handle, None, data, thread)
    }

    /// Takes bytes for an offset, or for the end.
    fn take_bytes(
        self: &Arc<Self>,
        handle: FileHandle,
        offset: Option<u64>,
        data: &[u8],
        thread: u32,
    ) -> Result<Option<Later>, FsError> {
        match self.files.get(handle) {
            Some(OpenFile::Hints(writer)) => {
                self.fetcher.take_hints(&writer, data);
                Ok(None)
            }
            Some(OpenFile::Keep(writer)) => Ok(Some(Later::Keep(writer.push(data)))),
            Some(OpenFile::Draft(open)) if open.how.writes => {
                let (file, draft) = (&open.file, open.file.draft());
                file.note_writer(thread);
                let place = match offset {
                    Some(offset) => WritePlace::At(offset),
                    None => match file.try_append_turn() {
                        Some(turn) => WritePlace::Appended(draft.size(), turn),
                        None => WritePlace::End,
                    },
                };
                if let WritePlace::At(offset) | WritePlace::Appended(offset, _) = place
                    && let Some(written) = draft.try_write(offset, data)
                {
                    return written.map(|()| None).map_err(FsError::from);
                }
                let data = Bytes::copy_from_slice(data);
                Ok(Some(Later::Write(LaterWrite { file: file.clone(), place, data })))
            }
            Some(OpenFile::Draft(_) | OpenFile::Object(_) | OpenFile::Snapshot(_) | OpenFile::Events(_))
            | None => Err(FsError::ReadOnly),
        }
    }

    /// Does what [`write`](Self::write) has left.
    ///
    /// # Errors
    /// Those of [`keep`](Self::keep), and of writing to a draft.
    pub async fn finish_write(self: Arc<Self>, later: Later) -> Result<(), FsError> {
        match later {
            Later::Keep(to_keep) => self.keep(to_keep).await,
            Later::Write(LaterWrite { file, place, data }) => {
                let draft = file.draft();
                let (offset, _turn) = match place {
                    WritePlace::At(offset) => (offset, None),
                    WritePlace::Appended(offset, turn) => (offset, Some(turn)),
                    WritePlace::End => {
                        let turn = file.append_turn().await;
                        (draft.size(), Some(turn))
                    }
                };
                Ok(draft.write(offset, data).await?)
            }
        }
    }

    /// The draft that is open under a handle for writing.
    pub(super) fn written(&self, handle: FileHandle) -> Option<Arc<DraftFile>> {
        self.open_to_writer(handle).map(|open| open.file.clone())
    }

    fn open_to_writer(&self, handle: FileHandle) -> Option<Arc<OpenDraft>> {
        match self.files.get(handle) {
            Some(OpenFile::Draft(open)) if open.how.writes => Some(open),
            _ => None,
        }
    }

    /// A process closes one of its descriptors. What it has written last is an object once this returns. A process
    /// that has only inherited the descriptor publishes nothing: `is_of` tells whether the closing process is the
    /// one of a thread.
    ///
    /// # Errors
    /// Why it is no object, or what has failed before.
    pub async fn flush(
        self: Arc<Self>,
        handle: FileHandle,
        is_of: impl Fn(u32) -> bool + Send,
    ) -> Result<(), FsError> {
        let Some(open) = self.open_to_writer(handle) else { return Ok(()) };
        let file = &open.file;
        if !file.last_writer().is_some_and(is_of) {
            return Ok(());
        }
        let _name = self.hold_draft(file).await;
        if file.is_unlinked() || !file.draft().is_dirty() {
            return Ok(());
        }
        if let Some(delay) = self.append_delay().filter(|_| open.how.appends && !file.draft().has_failed()) {
            self.publish_later(file, delay);
            return Ok(());
        }
        file.note_object(&file.publish().await?.object);
        Ok(())
    }

    /// Keeps the name of a draft, and what it stands for, as it is until the guards are dropped.
    pub(super) async fn hold_draft<'a>(
        &'a self,
        file: &'a DraftFile,
    ) -> (NamesGuard<'a>, MutexGuard<'a, ()>) {
        loop {
            let place = file.place();
            let names = self.tree_locks.hold_names(&[(&place.0, &place.1)]).await;
            let alone = file.hold_name().await;
            if file.place() == place {
                return (names, alone);
            }
        }
    }

    /// What was written to a handle is safe once this returns.
    ///
    /// # Errors
    /// Why it is not, or what has failed before.
    pub async fn fsync(self: Arc<Self>, handle: FileHandle) -> Result<(), FsError> {
        let Some(file) = self.written(handle) else { return Ok(()) };
        let _name = self.hold_draft(&file).await;
        if file.is_unlinked() {
            return Ok(());
        }
        file.describe();
        if !self.writes.as_ref().is_some_and(|writes| writes.publishes_on_fsync) {
            file.draft().sync().await?;
            if file.draft().is_dirty() {
                return Ok(());
            }
        }
        file.note_object(&file.publish().await?.object);
        Ok(())
    }

    /// Sets the size of a file. Without a handle, the file is published at once.
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
        let open = handle.and_then(|handle| self.written(handle));
        let file = match open {
            Some(file) => file,
            None => self.draft_to_write(ino).await?,
        };
        self.add_writer(&file, false).await?;
        file.note_writer(thread);
        let result = file.draft().truncate(size).await;
        if file.remove_writer(false) {
            self.clone().end_draft(file).await?;
        }
        result?;
        self.getattr(ino)
    }

    /// What a new object of this name has beside its bytes.
    pub(super) fn new_object(&self, name: &str) -> NewObject {
        let object = self.writes.as_ref().map(|writes| writes.object.clone()).unwrap_or_default();
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
