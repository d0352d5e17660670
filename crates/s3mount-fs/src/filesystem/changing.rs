//! Changing names: making and removing folders, deleting and renaming files. [`super::folders`] renames folders.

use std::sync::{Arc, Once};

use s3mount_bucket::Deleted;
use s3mount_object::{Condition, ObjectId};

use super::Filesystem;
use super::writing::version_of;
use crate::FsError;
use crate::attr::Entry;
use crate::attributes::stored::StoredAttr;
use crate::drafts::DraftFile;
use crate::names::Target;
use crate::numbers::InodeNo;
use crate::tree::inode::renamed::Renamed;
use crate::writes::{Place, Rights, Writes};
use s3mount_names::{Emptying, File, NamesError, StoredIn};

/// How often a deletion tries again because the file was replaced.
const MOST_REPLACED: usize = 3;

static REFUSED: Once = Once::new();

impl Filesystem {
    pub(super) fn rights(&self) -> Rights {
        self.writing.writes.as_ref().map(|writes| writes.rights).unwrap_or_default()
    }

    pub(super) fn writes(&self) -> Result<&Writes, FsError> {
        self.writing.writes.as_ref().ok_or(FsError::ReadOnly)
    }

    /// Makes a folder. Without markers, it is not in the store until a file is in it.
    ///
    /// # Errors
    /// `Exists`, `ReadOnly`, those of looking the name up, or those of writing the marker.
    pub async fn mkdir(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        attr: StoredAttr,
    ) -> Result<Entry, FsError> {
        self.writes()?;
        let (prefix, _name) = self.hold_name(parent, name).await?;
        match self.namespace.get(&prefix, name).await {
            Err(NamesError::NotFound) => {}
            Ok(_) => return Err(FsError::Exists),
            Err(error) => return Err(error.into()),
        }
        let marked = self.put_marker(&format!("{prefix}{name}/"), attr).await;
        if matches!(marked, Err(FsError::Exists)) {
            // Somebody has made it since.
            self.namespace.forget(&prefix, name);
        }
        marked?;
        self.namespace.note_new_folder(&prefix, name);
        let attr = self.inodes.lookup_or_insert(parent, &prefix, name, &Target::Directory);
        Ok(Entry { attr, name_ttl: self.namespace.name_ttl(self.namespace.ttl()) })
    }

    /// Removes an empty folder, and its marker object if there is one.
    ///
    /// # Errors
    /// `NotEmpty`, `NotDirectory`, `NotAllowed` for a marker object, or an error of the store.
    pub async fn rmdir(self: &Arc<Self>, parent: InodeNo, name: &str) -> Result<(), FsError> {
        let writes = self.writes()?;
        let (prefix, _name) = self.hold_name(parent, name).await?;
        match self.namespace.get(&prefix, name).await?.0 {
            Target::Directory => {}
            Target::File(_) | Target::Draft(_) => return Err(FsError::NotDirectory),
        }
        let folder = format!("{prefix}{name}/");
        // A draft may become an object after the request to the store, and be no draft any more when the answer comes.
        if self.namespace.has_local_names(&folder) {
            return Err(FsError::NotEmpty);
        }
        let stored = self.namespace.stored_in(&folder).await?;
        if stored == StoredIn::Objects || self.namespace.has_local_names(&folder) {
            return Err(FsError::NotEmpty);
        }
        let _parent = self.emptying(parent);
        if stored == StoredIn::Marker {
            writes.rights.delete()?;
            writes.writer.bucket().delete_whatever(&folder).await?;
        }
        self.namespace.note_gone(&prefix, name);
        self.inodes.note_removed(parent, name);
        Ok(())
    }

    /// Deletes a file: the known version. If another client has replaced it, looks the name up again and deletes the
    /// new version, because the name is to be removed.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotAllowed`, `Outdated` if the file is replaced again and again, or an error of the
    /// store.
    pub async fn unlink(self: &Arc<Self>, parent: InodeNo, name: &str) -> Result<(), FsError> {
        self.writes()?;
        let (prefix, _name) = self.hold_name(parent, name).await?;
        let mut replaced = 0;
        while replaced < MOST_REPLACED {
            match self.namespace.get(&prefix, name).await {
                Ok((Target::Directory, _)) => return Err(FsError::IsDirectory),
                Ok((Target::File(file), _)) => {
                    let _parent = self.emptying(parent);
                    if self.delete_version(&file.object).await? {
                        self.note_removed(&prefix, name);
                        self.inodes.note_removed(parent, name);
                        return Ok(());
                    }
                }
                Ok((Target::Draft(file), _)) => {
                    let _alone = file.turn().await;
                    if !file.has_place(&prefix, name) {
                        // The draft has become a version meanwhile, or was renamed.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let _parent = self.emptying(parent);
                    self.find_uploaded(&file).await?;
                    // A draft without an object in the store is only forgotten.
                    let is_gone = match file.stored() {
                        Some(version) => self.while_ending(&file, self.delete_version(&version)).await?,
                        None => true,
                    };
                    if is_gone {
                        self.note_removed(&prefix, name);
                    } else {
                        self.namespace.forget_draft(&prefix, name, &file);
                    }
                    self.unlink_draft(&file);
                    self.discard_unused(&file).await;
                    if is_gone {
                        return Ok(());
                    }
                }
                // Another client has deleted the replacement.
                Err(NamesError::NotFound) if replaced > 0 => {
                    self.note_removed(&prefix, name);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            self.forget_names(&[(&prefix, name)]);
            replaced += 1;
        }
        Err(FsError::Outdated)
    }

    /// Notes that a file was removed from a directory.
    fn note_removed(&self, prefix: &Arc<str>, name: &str) {
        self.namespace.note_gone(prefix, name);
        self.attributes.modes.remove(&format!("{prefix}{name}"));
    }

    /// Deletes a version. Returns false if another one is there by now, which stays.
    async fn delete_version(&self, version: &ObjectId) -> Result<bool, FsError> {
        let writes = self.writes()?;
        writes.rights.delete()?;
        Ok(writes.writer.bucket().delete(version).await? == Deleted::Gone)
    }

    /// Forgets these names (a prefix and a name in it), because the store has shown that they have changed.
    fn forget_names(&self, names: &[(&str, &str)]) {
        for (prefix, name) in names {
            self.namespace.forget(prefix, name);
            self.inodes.outdate(self.namespace.root(), prefix, &[(*name).into()]);
        }
    }

    /// Marks a folder as being emptied until the guard is dropped. The folder stays when its last file is removed, as
    /// programs expect.
    pub(super) fn emptying(&self, folder: InodeNo) -> Option<Emptying<'_, DraftFile>> {
        self.inodes.prefix(folder).ok().map(|prefix| self.namespace.emptying(prefix))
    }

    /// The prefixes of the directories in which a name is changed to another.
    fn prefixes(&self, from: Place<'_>, to: Place<'_>) -> Result<(Arc<str>, Arc<str>), FsError> {
        Ok((self.writable_directory(from.parent, from.name)?, self.writable_directory(to.parent, to.name)?))
    }

    /// Renames a file or a folder. Replaces a file or a folder of the new name, unless `keeps_target`. If the store
    /// shows that another client has changed one of the names, renames nothing, and forgets both names, so that the
    /// next call looks them up anew: the kernel does so once.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `IsDirectory`, `NotDirectory`, `NotEmpty`, `NotAllowed`, or an error of the store;
    /// `CrossDevice` for a folder whose objects may not be moved.
    pub async fn rename(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        keeps_target: bool,
    ) -> Result<(), FsError> {
        self.writes()?;
        let (prefixes, _names) = loop {
            let prefixes = self.prefixes(from, to)?;
            let source = match self.namespace.get(&prefixes.0, from.name).await {
                Err(NamesError::NotFound) if self.inodes.has_moved(from.parent, &prefixes.0) => continue,
                found => found?.0,
            };
            if source == Target::Directory {
                let trees = [format!("{}{}/", prefixes.0, from.name), format!("{}{}/", prefixes.1, to.name)];
                if trees[0] == trees[1] {
                    return Ok(());
                }
                let trees = self.writing.tree_locks.hold_trees(trees).await;
                // A folder above may have been renamed meanwhile.
                if self.prefixes(from, to)? == prefixes {
                    return self.rename_folder(from, to, &prefixes, keeps_target, &trees).await;
                }
            } else {
                let names = [(&*prefixes.0, from.name), (&*prefixes.1, to.name)];
                let names = self.writing.tree_locks.hold_names(&names).await;
                if self.prefixes(from, to)? == prefixes {
                    break (prefixes, names);
                }
            }
        };
        loop {
            let source = self.namespace.get(&prefixes.0, from.name).await?.0;
            if let Target::File(file) = &source
                && self.inodes.has_other_version(from.parent, from.name, file)
            {
                // The kernel would give the new name the version that it knows. It looks the name up, and asks again.
                return Err(FsError::Outdated);
            }
            let target = match self.namespace.get(&prefixes.1, to.name).await {
                Ok((target, _)) => Some(target),
                Err(NamesError::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            // Nothing is published under either name meanwhile. The kernel renames one file at a time in a folder, so
            // no other call takes these two locks in the other order.
            let drafts = [(Some(&source), &prefixes.0, from.name), (target.as_ref(), &prefixes.1, to.name)];
            let mut alone = Vec::new();
            let mut is_as_found = true;
            for (found, prefix, name) in drafts {
                if let Some(Target::Draft(file)) = found
                    && (alone.is_empty() || Some(&source) != target.as_ref())
                {
                    alone.push(file.turn().await);
                    is_as_found &= file.has_place(prefix, name);
                }
            }
            if is_as_found {
                for found in [Some(&source), target.as_ref()] {
                    if let Some(Target::Draft(file)) = found {
                        self.find_uploaded(file).await?;
                    }
                }
                let found = ((from, &source), (to, target.as_ref()));
                let renamed = self.rename_found(found, &prefixes, keeps_target).await;
                let Err(error) = renamed else { return Ok(()) };
                if !matches!(error.errno(), libc::ESTALE | libc::ENOENT) {
                    return Err(error);
                }
                self.forget_names(&[(&prefixes.0, from.name), (&prefixes.1, to.name)]);
                let is_taken = keeps_target && self.namespace.get(&prefixes.1, to.name).await.is_ok();
                return Err(if is_taken { FsError::Exists } else { error });
            }
            drop(alone);
            tokio::task::yield_now().await;
        }
    }

    /// Renames what was found under the first name, and replaces what was found under the other.
    async fn rename_found(
        &self,
        ((from, source), (to, target)): ((Place<'_>, &Target), (Place<'_>, Option<&Target>)),
        prefixes: &(Arc<str>, Arc<str>),
        keeps_target: bool,
    ) -> Result<(), FsError> {
        let writes = self.writes()?;
        if (from.parent, from.name) == (to.parent, to.name) {
            return Ok(());
        }
        if target.is_some() && keeps_target {
            return Err(FsError::Exists);
        }
        let replaced = match target {
            None => None,
            Some(Target::Directory) => return Err(FsError::IsDirectory),
            Some(Target::Draft(file)) => file.stored(),
            Some(Target::File(file)) => Some(file.object.clone()),
        };
        if replaced.is_some() {
            writes.rights.overwrite()?;
        }
        let condition =
            replaced.as_ref().map_or(Condition::Absent, |object| Condition::Matches(object.etag().clone()));
        let key = format!("{}{}", prefixes.1, to.name);
        let draft = if let Target::Draft(file) = source { Some(file.draft()) } else { None };
        writes.writer.free(&key, draft.as_ref()).await;
        // A rename of an object inside a folder leaves the folder an object at each moment.
        let leaves = from.parent != to.parent || matches!(source, Target::Draft(_));
        let _parent = leaves.then(|| self.emptying(from.parent));
        let moved = match source {
            Target::Draft(file) => self.rename_draft(file, &key, condition).await?,
            Target::File(file) => {
                let moving = self.move_object(file, &key, &condition);
                let moved = match target {
                    Some(Target::Draft(replaced)) => self.while_ending(replaced, moving).await?,
                    Some(_) | None => moving.await?,
                };
                self.note_attr(&moved, self.attr_of(from.parent, from.name, file));
                Some(moved)
            }
            Target::Directory => return Err(FsError::IsDirectory),
        };
        if let Some(Target::Draft(file)) = target {
            if let (Target::Draft(source), None) = (source, &moved) {
                self.inherit_in_outbox(source, file);
            }
            self.unlink_draft(file);
            self.discard_unused(file).await;
        }
        self.namespace.note_gone(&prefixes.0, from.name);
        let renamed = match (source, &moved) {
            (Target::Draft(file), moved) => {
                file.rename(&prefixes.1, to.name, moved.as_ref().map(|file| &file.object), replaced);
                self.namespace.note_draft(&prefixes.1, to.name, file);
                Renamed::Draft(file)
            }
            (Target::File(file), Some(moved)) => {
                self.namespace.note_moved_file(&prefixes.1, to.name, moved);
                Renamed::Version(file, moved.object.etag())
            }
            (Target::File(_) | Target::Directory, _) => return Ok(()),
        };
        self.attributes.modes.rename(&format!("{}{}", prefixes.0, from.name), &key);
        self.inodes.rename((from.parent, from.name), (to.parent, to.name), renamed);
        // What `close` has left unpublished waits no longer. A failure is told by the log, and by the next who closes it.
        if let (Target::Draft(file), None) = (source, &moved)
            && (file.has_closed() || !file.has_writers())
            && !file.is_half_written()
            && !file.waits()
        {
            let _ = self.publish(file).await;
        }
        Ok(())
    }

    /// Gives a draft another key. If the store has an object of the draft, moves and returns it. Bytes that are written
    /// meanwhile, or through a handle that is still open, are in the draft, and become a version of the new key.
    /// Deletes an object at the old key that the draft was to replace.
    async fn rename_draft(
        &self,
        file: &Arc<DraftFile>,
        key: &str,
        condition: Condition,
    ) -> Result<Option<File>, FsError> {
        if file.in_outbox().is_some() {
            if let Some(object) = file.object() {
                self.may_move(&object)?;
            }
            return self.rename_in_outbox(file, key, condition).await.map(|()| None);
        }
        let draft = file.draft();
        let Some(object) = file.object() else {
            if let Some(replaced) = file.replaced() {
                // Another version by now is another client's, and stays.
                self.delete_version(&replaced).await?;
            }
            draft.rename(key, Some(condition)).await;
            return Ok(None);
        };
        let published = if file.has_writers() {
            // The changes of writers that have not closed the file are not complete. Until they close it, the store has
            // the former version.
            File { object, size: draft.size(), mtime: draft.modified() }
        } else {
            version_of(self.publish(file).await?)
        };
        let moving = async { self.move_object(&published, key, &condition).await.map(|moved| moved.object) };
        let object = draft.follow(&published.object, moving).await?;
        let moved = File { object, ..published };
        self.note_attr(&moved, file.published_attr());
        Ok(Some(moved))
    }

    /// Whether an object may be moved: one that this mount has not written only with the right to rename.
    fn may_move(&self, object: &ObjectId) -> Result<(), FsError> {
        let writes = self.writes()?;
        if writes.writer.has_written(object) {
            return Ok(());
        }
        writes.rights.rename().inspect_err(|_| {
            REFUSED.call_once(|| {
                tracing::warn!(
                    key = object.key(),
                    "a file that this mount has not written is renamed with --allow rename or --allow delete only, because the object \
                     at its old key is deleted; so this rename and all others are refused"
                );
            });
        })
    }

    /// Gives an object another key: by one request if the store can do so, else by a copy inside the store and a
    /// deletion. An object that this mount has not written may only be moved with the right to rename.
    async fn move_object(&self, file: &File, key: &str, condition: &Condition) -> Result<File, FsError> {
        let writes = self.writes()?;
        self.may_move(&file.object)?;
        let object = writes.writer.copier().rename(&file.object, key, Some(condition)).await?;
        writes.writer.note_written(&object);
        Ok(File { object, size: file.size, mtime: file.mtime })
    }
}
