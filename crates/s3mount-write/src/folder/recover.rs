//! Undoes or finishes the rename of a daemon that is gone.
//!
//! It is undone if it was still copying: then nothing was deleted, and its copies go. It is finished if it was deleting:
//! then all copies were there. In both cases an object is only deleted while its twin is there, so nothing can be lost,
//! whatever has happened since. What was written at the old name after its twin at the new one stays: a program has made
//! the folder anew.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use s3mount_object::{ListedObject, ObjectError, ObjectId, ObjectMeta};

use super::moved::MoveError;
use super::objects::FolderObjects;
use crate::journal::Phase;
use crate::store::Store;

/// How many pairs of objects are compared at a time.
const AT_ONCE: usize = 64;

/// The two sides of a rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// How many objects were deleted, because their twins are on the other side.
    pub deleted: usize,
    /// How many objects are on the wrong side: on the other one is nothing of this name, or another object.
    pub kept: usize,
}

/// Undoes or finishes the rename of `from` to `to`, as its `phase` says. A dry run changes nothing.
///
/// # Errors
/// Those of the store.
pub(crate) async fn recover(
    store: &Arc<Store>,
    from: &str,
    to: &str,
    phase: Phase,
    is_dry: bool,
) -> Result<Sides, MoveError> {
    let folder = FolderObjects::new(store.clone(), from, to);
    let sources = folder.list(from, usize::MAX).await?;
    let copies: HashMap<String, ObjectMeta> =
        folder.list(to, usize::MAX).await?.into_iter().map(|copy| (copy.key, copy.meta)).collect();
    let total = sources.len();
    let mut pairs = Vec::new();
    for source in sources {
        let key = folder.new_key(&source.key);
        // What was written after its twin is not what was copied: somebody has made it since.
        let is_older = |copy: &&ObjectMeta| source.meta.last_modified <= copy.last_modified;
        if let Some(copy) = copies.get(&key).filter(|copy| phase == Phase::Copying || is_older(copy)) {
            pairs.push((source, ListedObject { key, meta: copy.clone() }));
        }
    }
    let compared = stream::iter(pairs).map(|(source, copy)| {
        let folder = &folder;
        async move {
            let is_twin = folder.is_twin(&source, &copy).await;
            is_twin.map(|is_twin| is_twin.then_some((source, copy)))
        }
    });
    let compared: Vec<Result<_, ObjectError>> = compared.buffer_unordered(AT_ONCE).collect().await;
    let twins: Vec<(ListedObject, ListedObject)> =
        compared.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let deleted = twins.len();
    // Of the old folder, what has a twin in the new one stays only to be deleted.
    let kept = match phase {
        Phase::Copying => copies.len() - deleted,
        Phase::Deleting => total - deleted,
    };
    if !is_dry {
        let version = |object: ListedObject| ObjectId::new(&object.key, object.meta.etag);
        let doomed = twins.into_iter().map(|(source, copy)| match phase {
            Phase::Copying => version(copy),
            Phase::Deleting => version(source),
        });
        if let Some((_, error)) = folder.delete(doomed.collect()).await.into_iter().next() {
            return Err(error.into());
        }
    }
    Ok(Sides { deleted, kept })
}
