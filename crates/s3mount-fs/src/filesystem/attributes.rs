//! Owner, mode and time of files, where the mount keeps them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use s3mount_bucket::WritableBucket;
use s3mount_object::{Description, ErrorKind, NewObject, ObjectId};
use tokio::time::timeout;

use super::Filesystem;
use super::writing::version_of;
use crate::FsError;
use crate::attr::{Attr, FileKind};
use crate::attributes::known::{CachedAttr, KnownAttrs};
use crate::attributes::stored::{AttrChange, StoredAttr};
use crate::directory::DirEntry;
use crate::drafts::DraftFile;
use crate::drafts::life::{Life, Step, Verdict};
use crate::names::Target;
use crate::numbers::{DirOffset, FileHandle, InodeNo};
use crate::sync::spawn;
use crate::tree::inode::Node;
use s3mount_names::File;

/// How long a written file stays a draft after its close. Programs that copy a file close it, then set its attributes
/// one by one, and then rename it.
const LINGER: Duration = Duration::from_secs(1);

/// The longest target of a link, in bytes: `PATH_MAX` of Linux.
pub(super) const MOST_TARGET: u64 = 4096;

/// The metadata of an object.
pub(super) struct Kept {
    pub(super) attr: StoredAttr,
    pub(super) description: Description,
}

impl Filesystem {
    /// Shows the attributes that are stored with objects, and stores those that programs set.
    #[must_use]
    pub fn with_attributes(mut self, bucket: impl Into<WritableBucket>) -> Self {
        let config = &self.config;
        let attrs = Arc::new(KnownAttrs::new(bucket.into(), config.timeout, config.started_at));
        self.inodes.show_attrs(attrs.clone());
        self.attributes.kept = Some(attrs);
        self
    }

    /// Whether the mount keeps attributes.
    pub fn keeps_attributes(&self) -> bool {
        self.attributes.kept.is_some()
    }

    /// Whether [`getattr`](Self::getattr) has all attributes of an inode. It has not where the daemon before has given the
    /// kernel an inode, and this one has not asked the store for its attributes yet.
    pub fn knows_attributes(&self, ino: InodeNo) -> bool {
        self.attributes.kept.is_none() || self.inodes.has_found(ino)
    }

    /// As [`getattr`](Self::getattr), and asks the store for attributes that are not known. Those that it does not tell are
    /// those of the flags.
    ///
    /// # Errors
    /// Those of `getattr`.
    pub async fn ask_attributes(&self, ino: InodeNo) -> Result<Attr, FsError> {
        if let Some(attrs) = &self.attributes.kept
            && !self.inodes.has_found(ino)
            && let Some(Node::File(version)) = self.inodes.node(ino)
        {
            if attrs.get(&version).is_none()
                && let Err(error) = self.namespace.in_time(attrs.ask(&version)).await
            {
                tracing::debug!(key = version.object.key(), %error, "the attributes are not known");
            }
            if let Some(found) = attrs.get(&version) {
                self.inodes.note_found(ino, &version, found);
            }
        }
        self.getattr(ino)
    }

    /// Asks the store for the attributes of a version before the kernel gets its inode. Returns whether they are known.
    pub(super) async fn ask_attr(
        &self,
        parent: InodeNo,
        prefix: &Arc<str>,
        name: &str,
        target: &Target,
    ) -> Result<bool, FsError> {
        let (Some(attrs), Target::File(file)) = (&self.attributes.kept, target) else { return Ok(true) };
        let found = self.inodes.found(parent, name, file).or_else(|| attrs.get(file));
        if let Some(found) = found.filter(CachedAttr::holds) {
            attrs.keep(file, found);
            return Ok(true);
        }
        match self.namespace.in_time(attrs.ask(file)).await {
            Ok(()) => Ok(true),
            // The name has another version by now, or none. The next open finds that out.
            Err(FsError::Outdated | FsError::NotFound) => {
                self.namespace.forget(prefix, name);
                Ok(false)
            }
            // The credentials may allow LIST and not HEAD.
            Err(FsError::Object(error)) if *error.kind() == ErrorKind::Forbidden => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds out which names of a directory are symbolic links. Only short files can be.
    pub(super) async fn ask_kinds(&self, handle: FileHandle, names: &mut [DirEntry]) {
        let Some(attrs) = &self.attributes.kept else { return };
        let files = self.ask_names(attrs, handle, names, |file| (1..=MOST_TARGET).contains(&file.size)).await;
        for (index, file) in files {
            if let Some(found) = attrs.get(&file) {
                names[index].kind = found.attr.kind();
            }
        }
    }

    /// The names of an open directory, as [`readdir`](Self::readdir) returns them. If attributes are shown, the store
    /// is asked for those of all these names in parallel, so that [`entry_before`](Self::entry_before) has them.
    ///
    /// # Errors
    /// Those of `readdir`.
    pub async fn readdir_with_attributes(
        &self,
        handle: FileHandle,
        offset: DirOffset,
        max_names: usize,
    ) -> Result<Vec<DirEntry>, FsError> {
        self.before_listing(handle, offset).await;
        let names = self.directories.read(handle, offset, max_names).await?;
        if let Some(attrs) = &self.attributes.kept {
            self.ask_names(attrs, handle, &names, |_| true).await;
        }
        Ok(names)
    }

    async fn ask_names(
        &self,
        attrs: &KnownAttrs,
        handle: FileHandle,
        names: &[DirEntry],
        is_wanted: impl Fn(&File) -> bool,
    ) -> Vec<(usize, File)> {
        let mut files = Vec::new();
        let mut unknown = Vec::new();
        for (index, entry) in names.iter().enumerate().filter(|(_, entry)| entry.kind != FileKind::Directory)
        {
            let Some((parent, Target::File(file))) = self.directories.target_before(handle, entry.next).await
            else {
                continue;
            };
            if is_wanted(&file) {
                match self.inodes.found(parent, &entry.name, &file).or_else(|| attrs.get(&file)) {
                    Some(found) if found.holds() => attrs.keep(&file, found),
                    _ => unknown.push(file.clone()),
                }
                files.push((index, file));
            }
        }
        attrs.ask_all(unknown).await;
        files
    }

    /// Notes the attributes of a version that this mount has written.
    pub(super) fn note_attr(&self, file: &File, attr: Option<StoredAttr>) {
        if let (Some(attrs), Some(attr)) = (&self.attributes.kept, attr) {
            let _ = attrs.note(file, attr);
        }
    }

    /// The known attributes of a version.
    pub(super) fn attr_of(&self, parent: InodeNo, name: &str, file: &File) -> Option<StoredAttr> {
        let attrs = self.attributes.kept.as_ref()?;
        Some(self.inodes.found(parent, name, file).or_else(|| attrs.get(file))?.attr)
    }

    /// The metadata of a version that is about to be changed, if attributes are kept.
    pub(super) async fn kept_of(&self, version: &File) -> Result<Option<Kept>, FsError> {
        if self.attributes.kept.is_none() {
            return Ok(None);
        }
        let described = self.writer()?.describe(version.object.key()).await?;
        if described.meta.etag != *version.object.etag() {
            return Err(FsError::Outdated);
        }
        let attr = StoredAttr::of(&described.object.metadata);
        let mtime = attr.mtime.or(Some(crate::attributes::stored::seconds(version.mtime)));
        Ok(Some(Kept { attr: StoredAttr { mtime, ..attr }, description: described }))
    }

    /// Sets attributes of a file. If the mount keeps none, and for folders, it accepts and ignores them: programs that
    /// set them would fail otherwise.
    ///
    /// # Errors
    /// `NotAllowed` for an object that is there, if objects may not be overwritten; `Outdated` if it is another
    /// version by now; those of the store.
    pub async fn set_attributes(self: Arc<Self>, ino: InodeNo, change: AttrChange) -> Result<Attr, FsError> {
        let Some(attrs) = self.attributes.kept.clone() else { return self.getattr(ino) };
        let shown = self.ask_attributes(ino).await?;
        let config = &self.config;
        let change = change.beyond(shown, config.file_mode, config.uid, config.gid);
        match self.inodes.node(ino) {
            _ if change.is_empty() => {}
            Some(Node::Draft(_)) => {
                let (file, writer) = self.add_writer(ino, true, 0).await?;
                let turn = file.turn().await;
                file.change_attr(change, attrs.now());
                drop(turn);
                if file.remove_writer(writer) {
                    self.end_later(file, LINGER);
                }
            }
            Some(Node::File(version)) => self.change_version(&attrs, ino, &version, change).await?,
            Some(Node::Directory(_)) | None => {}
        }
        self.getattr(ino)
    }

    /// Changes the attributes of a version without a draft. The store copies it onto itself.
    async fn change_version(
        &self,
        attrs: &KnownAttrs,
        ino: InodeNo,
        version: &File,
        change: AttrChange,
    ) -> Result<(), FsError> {
        self.rights().overwrite()?;
        let (parent, name) = self.inodes.parent_and_name(ino).ok_or(FsError::UnknownInode(ino))?;
        let (prefix, _name) = self.hold_name(parent, &name).await?;
        match self.namespace.get(&prefix, &name).await?.0 {
            Target::File(newest) if newest.object == version.object => {}
            _ => return Err(FsError::Outdated),
        }
        let Some(kept) = self.kept_of(version).await? else { return Ok(()) };
        let found = kept.description;
        // The copy is a new object. The file keeps its time, also where only the object's date said it.
        let stored = StoredAttr { mtime: kept.attr.mtime, ..StoredAttr::of(&found.object.metadata) };
        let attr = change.applied_to(stored, attrs.now());
        let mut metadata = found.object.metadata.clone();
        // Attributes that are not set keep the text that is there.
        attr.put_into(&mut metadata);
        let draft = self.writer()?.edit_described(&version.object, &found, NewObject::default());
        draft.change_metadata(metadata);
        let file = File { mtime: attrs.now(), ..version_of(draft.publish().await?) };
        drop(self.writing.logs.forget(&version.object));
        let _replacing = self.inodes.replace_version(ino, &file, attrs.note(&file, attr));
        self.namespace.note_file(&prefix, &name, &file);
        Ok(())
    }

    /// Sets the metadata of a draft's object: as `found`, if attributes are kept. Else the store is asked before the
    /// draft is published.
    pub(super) fn describe(
        &self,
        file: &DraftFile,
        version: &ObjectId,
        found: Option<Kept>,
        object: NewObject,
    ) {
        file.draft().describe_as(version, found.as_ref().map(|found| &found.description), object);
        if let Some(Kept { attr, description }) = found {
            file.keep_attr(attr, description.object.metadata);
        }
    }

    /// Publishes a closed draft. If attributes are kept, it stays a draft for a moment.
    ///
    /// # Errors
    /// The reason why it can't be published.
    pub(super) async fn end_closed_draft(self: Arc<Self>, file: Arc<DraftFile>) -> Result<(), FsError> {
        let is_to_be_published =
            |file: &DraftFile| file.verdict(Step::Publish) == Verdict::Go && !file.has_writers();
        if self.attributes.kept.is_none() || !matches!(file.life(), Life::Dirty | Life::Clean) {
            return self.end_draft(file).await;
        }
        let published = {
            let _held = self.hold_draft(&file).await;
            if is_to_be_published(&file) { self.publish(&file).await.map(drop) } else { Ok(()) }
        };
        if published.is_err() {
            self.discard_unused(&file).await;
            return published;
        }
        tokio::time::sleep(LINGER).await;
        if file.has_writers() { Ok(()) } else { self.end_draft(file).await }
    }

    /// Ends drafts that linger only because their attributes may still be set: of the file `name` in the directory
    /// `prefix`, or of all files there. A later request to the store then shows what others have changed.
    pub(super) async fn end_lingering(&self, prefix: &Arc<str>, name: Option<&str>) {
        if self.attributes.kept.is_none() {
            return;
        }
        let mut files = self.namespace.drafts_of(prefix, name);
        files.retain(|file| file.is_idle());
        let ended: BoxFuture<'_, ()> = Box::pin(async {
            for file in files {
                self.end_idle(&file, None).await;
            }
        });
        // A rename or a deletion may hold the turn of a draft. Other drafts end by themselves.
        let _ = timeout(LINGER, ended).await;
    }

    /// Calls [`end_lingering`](Self::end_lingering) for all files of an open directory before it is listed anew.
    pub(super) async fn before_listing(&self, handle: FileHandle, offset: DirOffset) {
        if offset == DirOffset::START
            && let Some(prefix) = self.directories.prefix(handle)
        {
            self.end_lingering(&prefix, None).await;
        }
    }

    /// Calls [`end_lingering`](Self::end_lingering) for a name before its look-up, if names are cached for less than
    /// that time.
    pub(super) async fn before_look_up(&self, prefix: &Arc<str>, name: &str) {
        if self.namespace.ttl() < LINGER {
            self.end_lingering(prefix, Some(name)).await;
        }
    }

    /// Ends a draft after `delay`, unless it is opened before.
    pub(super) fn end_later(self: &Arc<Self>, file: Arc<DraftFile>, delay: Duration) {
        let fs = self.clone();
        spawn(self.namespace.requests().runtime(), async move {
            tokio::time::sleep(delay).await;
            if file.has_writers() {
                return;
            }
            let (prefix, name) = file.place();
            if let Err(error) = fs.end_draft(file).await {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    key = format!("{prefix}{name}"),
                    error,
                    "the attributes that were set last are lost"
                );
            }
        });
    }
}
