//! Undoes or finishes the rename of a daemon that is gone.
//!
//! It is undone if it was still copying: then nothing was deleted, and its copies go. It is finished if it was deleting:
//! then all copies were there. In both cases an object is only deleted while its twin is there, so nothing can be lost,
//! whatever has happened since. What was written at the old name after its twin at the new one stays: a program has made
//! the folder anew.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use s3mount_object::{ListedObject, ObjectId, ObjectMeta};

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

/// What is found below the two prefixes of a rename.
pub(super) struct FoundObjects {
    /// Objects and their copies.
    pub(super) twins: Vec<(ListedObject, ListedObject)>,
    /// What has no copy below the new prefix.
    pub(super) sources: Vec<ListedObject>,
    /// What is no copy of an object below the old prefix.
    pub(super) copies: Vec<ListedObject>,
}

/// Looks below both prefixes. In the second phase, what was written after its twin is not what was copied: somebody has made
/// it since.
pub(super) async fn find(
    folder: &FolderObjects,
    (from, to): (&str, &str),
    phase: Phase,
) -> Result<FoundObjects, MoveError> {
    let listed = folder.list(from, usize::MAX).await?;
    let mut copies: HashMap<String, ObjectMeta> =
        folder.list(to, usize::MAX).await?.into_iter().map(|copy| (copy.key, copy.meta)).collect();
    let (mut pairs, mut sources) = (Vec::new(), Vec::new());
    for source in listed {
        let key = folder.new_key(&source.key);
        let is_older = |copy: &&ObjectMeta| source.meta.last_modified <= copy.last_modified;
        match copies.get(&key).filter(|copy| phase == Phase::Copying || is_older(copy)) {
            Some(copy) => pairs.push((source, ListedObject { key, meta: copy.clone() })),
            None => sources.push(source),
        }
    }
    let compared = stream::iter(pairs).map(|(source, copy)| async move {
        let is_twin = folder.is_twin(&source, &copy).await;
        is_twin.map(|is_twin| (source, copy, is_twin))
    });
    let mut compared = std::pin::pin!(compared.buffer_unordered(AT_ONCE));
    let mut twins = Vec::new();
    while let Some(compared) = compared.next().await {
        let (source, copy, is_twin) = compared?;
        if is_twin {
            copies.remove(&copy.key);
            twins.push((source, copy));
        } else {
            sources.push(source);
        }
    }
    let copies = copies.into_iter().map(|(key, meta)| ListedObject { key, meta }).collect();
    Ok(FoundObjects { twins, sources, copies })
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
    let FoundObjects { twins, sources, copies } = find(&folder, (from, to), phase).await?;
    let deleted = twins.len();
    let kept = match phase {
        Phase::Copying => copies.len(),
        Phase::Deleting => sources.len(),
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
