//! The steps of a rename, in their order.

use s3mount_object::{ErrorKind, ListedObject, ObjectId};

use super::moved::{MoveError, Moved};
use super::objects::FolderObjects;
use crate::journal::{Intent, Phase};
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
    fn intent(&self, phase: Phase) -> Intent {
        Intent::Rename { from: self.from.to_owned(), to: self.to.to_owned(), phase }
    }
}

/// The names of a mount, as far as a folder's rename changes them.
pub trait FolderNames: Sync {
    /// Keeps the folder in which the copies lie from being taken for gone.
    type Guard: Send;

    /// The objects below the old prefix have copies below the new one: from now on the copies are what the names stand
    /// for.
    fn switch(&self, moved: &[Moved]) -> impl Future<Output = ()> + Send;

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
        let FolderRename { from, to, .. } = rename;
        let objects = FolderObjects::new(self.store().clone(), from, to);
        let mut sources = objects.sources(rename.most).await.inspect_err(|error| {
            tracing::warn!(from, to, %error, "a folder is not renamed inside the store");
        })?;
        let marker = sources.iter().position(|object| rename.has_marker && object.key == from);
        let marker = marker.map(|at| sources.remove(at));
        let noted = self.note(rename.intent(Phase::Copying));
        let moved = match objects.copy(&sources, &self.copier()).await {
            Ok(moved) => moved,
            Err(failed) => {
                if !failed.has_left {
                    noted.done();
                }
                return Err(failed.error);
            }
        };
        noted.change_surely(rename.intent(Phase::Deleting)).await;
        names.switch(&moved).await;
        let mut gone = old_objects(&moved, marker);
        let Some(first) = gone.pop() else {
            noted.done();
            return Ok(());
        };
        let mut left = objects.delete(vec![first]).await;
        if left.first().is_some_and(|(_, error)| *error.kind() == ErrorKind::Forbidden) {
            noted.change(rename.intent(Phase::Copying));
            let back: Vec<Moved> = moved.into_iter().map(Moved::back).collect();
            let _guard = names.switch_back(&back).await;
            let copies = objects.delete(back.into_iter().map(|copy| copy.from).collect()).await.len();
            if copies > 0 {
                tracing::error!(from, to, copies, "a folder was not renamed, and copies are left");
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
                tracing::error!(from, to, count, key, %error, "old objects of a renamed folder are left");
            }
        }
        Ok(())
    }
}

/// What is deleted once the copies are there, the last one first. Which that is does not depend on which copy ended last.
fn old_objects(moved: &[Moved], marker: Option<ListedObject>) -> Vec<ObjectId> {
    let mut gone: Vec<ObjectId> = moved.iter().map(|copy| copy.from.clone()).collect();
    gone.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    gone.extend(marker.map(|object| ObjectId::new(&object.key, object.meta.etag)));
    gone
}
