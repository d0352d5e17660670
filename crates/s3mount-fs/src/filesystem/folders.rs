//! Renaming folders.
//!
//! A folder of which the store knows nothing only gets another name. The objects below any other folder are copied
//! inside the store, and the old ones deleted ([`FolderMove`]). This is not atomic, so its order matters: all
//! copies are made and found again; then the names of this mount change, at once; then the old objects are deleted.
//! No name in either folder is changed meanwhile ([`tree_locks`](crate::tree::tree_locks)), and files that are being
//! written move with it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use s3mount_object::{Condition, ErrorKind, ObjectError, ObjectId};
use s3mount_write::{FolderMove, Intent, MoveError, Moved, Phase};

use super::Filesystem;
use crate::FsError;
use crate::drafts::DraftFile;
use crate::names::Target;
use crate::tree::inode::renamed::Renamed;
use crate::tree::tree_locks::TreesGuard;
use crate::writes::Place;
use s3mount_names::{MovedFile, NamesError, StoredIn};

impl From<MoveError> for FsError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Object(error) => FsError::Object(error),
            MoveError::TooMany(_) => FsError::CrossDevice,
            MoveError::KeyTooLong(_) => FsError::NameTooLong,
            MoveError::Taken(_) => FsError::NotEmpty,
            MoveError::Parts(error) => error.into(),
            MoveError::Lost(key) => ObjectError::new(ErrorKind::Integrity, "CopyObject", &key).into(),
        }
    }
}

/// A folder that gets another name.
struct Renaming<'a> {
    from: Place<'a>,
    to: Place<'a>,
    /// The prefixes of the two parents.
    parents: (&'a Arc<str>, &'a Arc<str>),
    /// The prefixes of the folder, before and after.
    old: String,
    new: String,
}

impl Renaming<'_> {
    /// The way back.
    fn back(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            parents: (self.parents.1, self.parents.0),
            old: self.new.clone(),
            new: self.old.clone(),
        }
    }
}

impl Filesystem {
    /// Renames a folder. One that has the new name is replaced if it is empty, unless `keeps_target`. No name in
    /// them is changed meanwhile, because the caller holds both trees.
    pub(super) async fn rename_folder(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        parents: &(Arc<str>, Arc<str>),
        keeps_target: bool,
        _trees: &TreesGuard<'_>,
    ) -> Result<(), FsError> {
        let (old, new) = (format!("{}{}/", parents.0, from.name), format!("{}{}/", parents.1, to.name));
        let renaming = Renaming { from, to, parents: (&parents.0, &parents.1), old, new };
        let target = match self.namespace.get(&parents.1, to.name).await {
            Ok(_) if keeps_target => return Err(FsError::Exists),
            Ok((Target::Directory, _)) => self.namespace.stored_in(&renaming.new).await?,
            Ok((Target::File(_) | Target::Draft(_), _)) => return Err(FsError::NotDirectory),
            Err(NamesError::NotFound) => StoredIn::Nothing,
            Err(error) => return Err(error.into()),
        };
        let is_empty = target != StoredIn::Objects && !self.namespace.has_local_names(&renaming.new);
        if !is_empty || self.has_drafts_below(&renaming.new) {
            return Err(FsError::NotEmpty);
        }
        let source = self.namespace.stored_in(&renaming.old).await?;
        let _parent = self.emptying(from.parent);
        if source == StoredIn::Nothing && !self.has_drafts_below(&renaming.old) {
            self.switch(&renaming, &[]);
            return Ok(());
        }
        self.move_folder(&renaming, target == StoredIn::Marker).await
    }

    /// Whether a name below the directory `prefix` stands for a draft.
    fn has_drafts_below(&self, prefix: &str) -> bool {
        self.namespace.drafts().iter().any(|draft| draft.place().0.starts_with(prefix))
    }

    /// Moves the objects and the drafts of a folder. If there is a marker object at the new prefix, it stays, and the
    /// folder's own is only deleted.
    async fn move_folder(&self, renaming: &Renaming<'_>, has_marker: bool) -> Result<(), FsError> {
        let writes = self.writes()?;
        let limit = writes.rights.folder_rename_limit;
        if limit == 0 {
            return Err(FsError::CrossDevice);
        }
        let Renaming { old, new, .. } = renaming;
        let objects = FolderMove::new(writes.writer.bucket().clone(), self.config.timeout, old, new);
        let mut sources = objects.sources(limit).await.inspect_err(|error| {
            tracing::warn!(from = old, to = new, %error, "a folder is not renamed inside the store");
        })?;
        let marker = sources.iter().position(|object| has_marker && object.key == *old);
        let marker = marker.map(|at| sources.remove(at));
        let intent = |phase| Intent::Rename { from: old.clone(), to: new.clone(), phase };
        let noted = writes.writer.note(intent(Phase::Copying));
        let moved = match objects.copy(&sources, &writes.writer.copier()).await {
            Ok(moved) => moved,
            Err(failed) => {
                if !failed.has_left {
                    noted.done();
                }
                return Err(failed.error.into());
            }
        };
        // From here on, whoever finds the folder half moved finishes the move.
        noted.change_surely(intent(Phase::Deleting)).await;
        self.move_drafts(renaming, &moved).await;
        self.switch(renaming, &moved);
        let mut gone: Vec<ObjectId> = moved.iter().map(|copy| copy.from.clone()).collect();
        // Which object is deleted first does not depend on which copy ended last.
        gone.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        gone.extend(marker.map(|object| ObjectId::new(&object.key, object.meta.etag)));
        let Some(first) = gone.pop() else {
            noted.done();
            return Ok(());
        };
        let mut left = objects.delete(vec![first]).await;
        if left.first().is_some_and(|(_, error)| *error.kind() == ErrorKind::Forbidden) {
            // Nothing may be deleted here.
            let _parent = self.emptying(renaming.to.parent);
            noted.change(intent(Phase::Copying));
            let back: Vec<Moved> = moved.into_iter().map(Moved::back).collect();
            self.move_drafts(&renaming.back(), &back).await;
            self.switch(&renaming.back(), &back);
            let copies = objects.delete(back.into_iter().map(|copy| copy.from).collect()).await.len();
            if copies > 0 {
                tracing::error!(
                    from = old,
                    to = new,
                    copies,
                    "a folder was not renamed, and copies are left"
                );
            } else {
                noted.done();
            }
            return Err(left.remove(0).1.into());
        }
        left.extend(objects.delete(gone).await);
        match left.first() {
            None => noted.done(),
            Some((object, error)) => {
                let (count, key) = (left.len(), object.key());
                tracing::error!(from = old, to = new, count, key, %error, "old objects of a renamed folder are left");
            }
        }
        Ok(())
    }

    /// Gives all drafts of a folder their new keys. The copies of their objects become their own.
    async fn move_drafts(&self, renaming: &Renaming<'_>, moved: &[Moved]) {
        let copies: HashMap<&str, &Moved> = moved.iter().map(|copy| (copy.from.key(), copy)).collect();
        for file in self.drafts_below(&renaming.old) {
            let (prefix, name) = file.place();
            let below = prefix.strip_prefix(&*renaming.old).unwrap_or_default();
            let prefix_now: Arc<str> = format!("{}{below}", renaming.new).into();
            let copy = copies.get(&*format!("{prefix}{name}"));
            let copy = copy.filter(|copy| Some(&copy.from) == file.stored().as_ref());
            if let Some(copy) = copy.filter(|copy| Some(&copy.from) == file.object().as_ref()) {
                let Ok(_) =
                    file.draft().follow(&copy.from, async { Ok::<_, Infallible>(copy.to.clone()) }).await;
                file.note_object(&copy.to);
            } else if !file.is_sealed() {
                // If somebody else has replaced or deleted the object, the draft can't be published.
                let there = copy.map(|copy| copy.to.clone()).or_else(|| file.stored());
                let condition =
                    there.map_or(Condition::Absent, |object| Condition::Matches(object.etag().clone()));
                file.draft().rename(&format!("{prefix_now}{name}"), Some(condition)).await;
            }
            file.rename(&prefix_now, &name, None, copy.map(|copy| copy.to.clone()));
        }
    }

    /// The drafts below a prefix: those that have names, and those that ended and are still open.
    fn drafts_below(&self, prefix: &str) -> Vec<Arc<DraftFile>> {
        let mut drafts = self.inodes.drafts();
        for draft in self.namespace.drafts() {
            if !drafts.iter().any(|known| Arc::ptr_eq(known, &draft)) {
                drafts.push(draft);
            }
        }
        drafts.retain(|file| !file.is_unlinked() && file.place().0.starts_with(prefix));
        drafts
    }

    /// Changes the names of this mount.
    fn switch(&self, renaming: &Renaming<'_>, moved: &[Moved]) {
        let Renaming { from, to, parents, old, new } = renaming;
        let _moving = self.inodes.moving();
        let files = moved.iter().map(|copy| MovedFile {
            old_key: copy.from.key(),
            object: &copy.to,
            size: copy.size,
            mtime: copy.modified,
        });
        self.namespace.folder_moved((old, new), files);
        self.attributes.modes.move_below(old, new);
        if let Some(writes) = &self.writing.writes {
            moved.iter().for_each(|copy| writes.writer.note_written(&copy.to));
        }
        self.namespace.note_gone(parents.0, from.name);
        self.namespace.note_moved_folder(parents.1, to.name, !moved.is_empty());
        self.inodes.rename((from.parent, from.name), (to.parent, to.name), Renamed::Folder);
        self.inodes.set_etags(self.namespace.root(), moved);
    }
}
