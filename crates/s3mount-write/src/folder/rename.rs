//! The steps of a rename, in their order.

use std::collections::HashSet;

use s3mount_object::{ErrorKind, ListedObject, ObjectError, ObjectId};

use super::moved::{MoveError, Moved};
use super::objects::{CopyFailed, FolderObjects};
use super::recover::{FoundObjects, find, recover};
use crate::journal::{Intent, Noted, Phase};
use crate::writer::Writer;

/// A folder that gets another name.
#[derive(Clone, Copy, Debug)]
pub struct FolderRename<'a> {
    /// The prefix of its keys. It ends in `/`.
    pub from: &'a str,
    /// The prefix that they get. It ends in `/`.
    pub to: &'a str,
    /// Whether a marker object is at the new prefix. It stays, and the folder's own is only deleted.
    pub has_marker: bool,
    /// How many objects the folder may hold.
    pub most: usize,
}

impl FolderRename<'_> {
    fn intent(&self, phase: Phase, is_answered: bool) -> Intent {
        Intent::Rename { from: self.from.to_owned(), to: self.to.to_owned(), phase, is_answered }
    }

    /// The objects to move, and that which only has to go.
    async fn sources(
        &self,
        objects: &FolderObjects,
    ) -> Result<(Vec<ListedObject>, Option<ListedObject>), MoveError> {
        let mut sources = objects.sources(self.most).await.inspect_err(|error| {
            let Self { from, to, .. } = self;
            tracing::warn!(from, to, %error, "a folder is not renamed inside the store");
        })?;
        let marker = sources.iter().position(|object| self.has_marker && object.key == self.from);
        let marker = marker.map(|at| sources.remove(at));
        Ok((sources, marker))
    }

    /// Takes the rename out of the journal, unless old objects are `left`.
    fn end(&self, noted: Noted, left: &[(ObjectId, ObjectError)]) {
        let Some((object, error)) = left.first() else { return noted.done() };
        let (Self { from, to, .. }, count, key) = (self, left.len(), object.key());
        tracing::error!(from, to, count, key, %error, "old objects of a renamed folder are left");
        noted.change(self.intent(Phase::Deleting, true));
    }
}

/// A rename that a daemon before has begun, and not answered. It is in the journal of this one.
#[derive(Debug)]
pub struct BegunRename {
    from: String,
    to: String,
    phase: Phase,
    noted: Noted,
}

impl BegunRename {
    /// The two prefixes.
    pub fn prefixes(&self) -> [&str; 2] {
        [&self.from, &self.to]
    }
}

/// The names of a mount, as far as a folder's rename changes them.
pub trait FolderNames: Sync {
    /// Keeps the folder in which the copies lie from being taken for gone.
    type Guard: Send;

    /// The objects below the old prefix have copies below the new one: from now on the copies are what the names stand
    /// for.
    fn switch(&self, moved: &[Moved]) -> impl Future<Output = ()> + Send;

    /// The old objects are deleted. A program may have listed the folder meanwhile.
    fn note_deleted(&self, moved: &[Moved]);

    /// The store refuses to delete the old objects: the names stand for these again. `moved` has the way back. The guard
    /// is dropped once the copies are deleted.
    fn switch_back(&self, moved: &[Moved]) -> impl Future<Output = Self::Guard> + Send;
}

impl Writer {
    /// Moves all objects below one prefix to another. When this fails, the folder is where it was. Old objects that
    /// can't be deleted are logged, and no failure.
    ///
    /// # Errors
    /// `TooMany`, `KeyTooLong`, `Taken`, `Lost`, `Parts`, or an error of the store.
    pub async fn rename_folder(
        &self,
        rename: FolderRename<'_>,
        names: &impl FolderNames,
    ) -> Result<(), MoveError> {
        let objects = FolderObjects::new(self.store().clone(), rename.from, rename.to);
        let (sources, marker) = rename.sources(&objects).await?;
        let noted = self.note(rename.intent(Phase::Copying, false));
        match objects.copy(&sources, &self.copier()).await {
            Ok(moved) => self.delete_old((rename, noted), &objects, (moved, marker), names).await,
            Err(CopyFailed { error, has_left }) => {
                if has_left {
                    noted.change(rename.intent(Phase::Copying, true));
                } else {
                    noted.done();
                }
                Err(error)
            }
        }
    }

    /// Notes a rename that a daemon before has begun: this one is to go on with it, or to give it up.
    pub fn take_rename(&self, from: String, to: String, phase: Phase) -> BegunRename {
        let intent = Intent::Rename { from: from.clone(), to: to.clone(), phase, is_answered: false };
        BegunRename { noted: self.note(intent), from, to, phase }
    }

    /// Goes on with a rename that a daemon before has begun. Copies that it has made are taken for what they are, also
    /// those that the store makes only now. As for [`rename_folder`](Self::rename_folder) otherwise.
    ///
    /// # Errors
    /// As of [`rename_folder`](Self::rename_folder).
    pub async fn go_on_with_rename(
        &self,
        begun: BegunRename,
        names: &impl FolderNames,
    ) -> Result<(), MoveError> {
        let BegunRename { from, to, phase, noted } = begun;
        let objects = FolderObjects::new(self.store().clone(), &from, &to).going_on();
        // The daemon before has counted its objects.
        let mut rename = FolderRename { from: &from, to: &to, has_marker: false, most: usize::MAX };
        if phase == Phase::Deleting {
            return self.finish_rename((rename, noted), &objects, names).await;
        }
        let copied = async {
            rename.has_marker = objects.has(&to).await?;
            let (sources, marker) = rename.sources(&objects).await?;
            let moved = objects.copy(&sources, &self.copier()).await.map_err(|failed| failed.error)?;
            Ok((moved, marker))
        };
        match copied.await {
            Ok(copied) => self.delete_old((rename, noted), &objects, copied, names).await,
            Err(error) => {
                self.give_up((rename, noted), phase).await;
                Err(error)
            }
        }
    }

    /// Undoes a rename that a daemon before has begun, or finishes it if it was deleting the old objects.
    pub async fn give_up_rename(&self, begun: BegunRename) {
        let BegunRename { from, to, phase, noted } = begun;
        let rename = FolderRename { from: &from, to: &to, has_marker: false, most: usize::MAX };
        self.give_up((rename, noted), phase).await;
    }

    async fn give_up(&self, (rename, noted): (FolderRename<'_>, Noted), phase: Phase) {
        let FolderRename { from, to, .. } = rename;
        match recover(self.store(), from, to, phase, false).await {
            Ok(sides) => {
                tracing::info!(
                    from,
                    to,
                    ?phase,
                    ?sides,
                    "a rename that a daemon before had begun is put in order"
                );
                noted.done();
            }
            Err(error) => {
                tracing::error!(from, to, %error, "a rename that a daemon before had begun can't be put in order");
                noted.change(rename.intent(phase, true));
            }
        }
    }

    /// Goes on where a daemon before was deleting the old objects: all copies were there.
    async fn finish_rename(
        &self,
        (rename, noted): (FolderRename<'_>, Noted),
        objects: &FolderObjects,
        names: &impl FolderNames,
    ) -> Result<(), MoveError> {
        let found = find(objects, (rename.from, rename.to), Phase::Deleting).await;
        let FoundObjects { twins, sources, copies } = match found {
            Ok(found) => found,
            Err(error) => {
                noted.change(rename.intent(Phase::Deleting, true));
                return Err(error);
            }
        };
        let moved = |from: ObjectId, to: ListedObject, was_gone| Moved {
            from,
            size: to.meta.size,
            modified: to.meta.last_modified,
            to: ObjectId::new(&to.key, to.meta.etag),
            was_gone,
        };
        let kept: HashSet<&str> = sources.iter().map(|source| source.key.as_str()).collect();
        let gone = copies.into_iter().filter_map(|copy| {
            let old = objects.old_key(&copy.key);
            let is_gone = !kept.contains(old.as_str());
            is_gone.then(|| moved(ObjectId::new(&old, copy.meta.etag.clone()), copy, true))
        });
        let twins = twins
            .into_iter()
            .map(|(source, copy)| moved(ObjectId::new(&source.key, source.meta.etag), copy, false));
        let moved: Vec<Moved> = twins.chain(gone).collect();
        names.switch(&moved).await;
        let left = objects.delete(old_objects(&moved, None)).await;
        rename.end(noted, &left);
        if left.is_empty() {
            names.note_deleted(&moved);
        }
        if let Some(source) = sources.first() {
            let (FolderRename { from, to, .. }, count, key) = (rename, sources.len(), &source.key);
            tracing::warn!(from, to, count, key, "objects that have changed since stay in a renamed folder");
        }
        Ok(())
    }

    /// The copies are there: the names change, and the old objects are deleted.
    async fn delete_old(
        &self,
        (rename, noted): (FolderRename<'_>, Noted),
        objects: &FolderObjects,
        (moved, marker): (Vec<Moved>, Option<ListedObject>),
        names: &impl FolderNames,
    ) -> Result<(), MoveError> {
        let FolderRename { from, to, .. } = rename;
        noted.change_surely(rename.intent(Phase::Deleting, false)).await;
        names.switch(&moved).await;
        let mut gone = old_objects(&moved, marker);
        let Some(first) = gone.pop() else {
            noted.done();
            return Ok(());
        };
        let mut left = objects.delete(vec![first]).await;
        if left.first().is_some_and(|(_, error)| *error.kind() == ErrorKind::Forbidden) {
            noted.change(rename.intent(Phase::Copying, false));
            let back: Vec<Moved> = moved.into_iter().map(Moved::back).collect();
            let _guard = names.switch_back(&back).await;
            let copies = objects.delete(back.into_iter().map(|copy| copy.from).collect()).await.len();
            if copies > 0 {
                tracing::error!(from, to, copies, "a folder was not renamed, and copies are left");
                noted.change(rename.intent(Phase::Copying, true));
            } else {
                noted.done();
            }
            return Err(left.remove(0).1.into());
        }
        left.extend(objects.delete(gone).await);
        rename.end(noted, &left);
        if left.is_empty() {
            names.note_deleted(&moved);
        }
        Ok(())
    }
}

/// What is deleted once the copies are there, the last one first. Which that is does not depend on which copy ended last.
fn old_objects(moved: &[Moved], marker: Option<ListedObject>) -> Vec<ObjectId> {
    let there = moved.iter().filter(|copy| !copy.was_gone);
    let mut gone: Vec<ObjectId> = there.map(|copy| copy.from.clone()).collect();
    gone.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    gone.extend(marker.map(|object| ObjectId::new(&object.key, object.meta.etag)));
    gone
}
