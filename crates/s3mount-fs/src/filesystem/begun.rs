//! Renames of folders that the daemon before has begun, and not answered.
//!
//! The kernel sends each of them again. What the daemon before has sent may be under way at the store until then, and
//! after. So this daemon undoes nothing: it goes on with the copies that are there
//! ([`Writer::go_on_with_rename`](s3mount_write::Writer::go_on_with_rename)), and holds the names in both folders from
//! its begin.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use s3mount_write::{BegunRename, Phase};

use super::Filesystem;
use super::folders::{Names, Renaming};
use crate::FsError;
use crate::sync::lock;
use crate::tree::tree_locks::TreesGuard;
use crate::writes::Place;

/// How long a rename may take to come again. The kernel sends all requests again at once.
const PATIENCE: Duration = Duration::from_secs(10);

fn trees_of(begun: &BegunRename) -> [String; 2] {
    begun.prefixes().map(str::to_owned)
}

impl Filesystem {
    /// Goes on with renames once they come again: each has its two prefixes. One that does not come is undone, or finished.
    /// Must be called before the first request.
    pub fn expect_renames(self: &Arc<Self>, renames: Vec<(String, String, Phase)>) {
        let Ok(writer) = self.writer() else { return };
        let (mut begun, mut others) = (Vec::new(), Vec::new());
        for (from, to, phase) in renames {
            let rename = writer.take_rename(from, to, phase);
            match self.writing.tree_locks.hold_trees(trees_of(&rename)).now_or_never() {
                Some(trees) => {
                    trees.leave();
                    begun.push(rename);
                }
                // Two that overlap were not under way at the same time: nobody waits for one of them.
                None => others.push(rename),
            }
        }
        if begun.is_empty() {
            return;
        }
        *lock(&self.writing.begun_renames) = begun;
        let fs = self.clone();
        self.namespace.requests().runtime().spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let begun = std::mem::take(&mut *lock(&fs.writing.begun_renames));
            for rename in begun {
                let trees = fs.writing.tree_locks.adopt(trees_of(&rename));
                fs.give_up_rename(rename, trees).await;
            }
            for rename in others {
                let trees = fs.writing.tree_locks.hold_trees(trees_of(&rename)).await;
                fs.give_up_rename(rename, trees).await;
            }
        });
    }

    async fn give_up_rename(&self, rename: BegunRename, _trees: TreesGuard<'_>) {
        if let Ok(writer) = self.writer() {
            writer.give_up_rename(rename).await;
        }
    }

    /// Goes on with a rename that comes again, if the daemon before has begun it. Returns whether it had.
    ///
    /// # Errors
    /// As of [`rename`](Self::rename).
    pub(super) async fn go_on_renaming(&self, from: Place<'_>, to: Place<'_>) -> Result<bool, FsError> {
        let parents = (self.inodes.prefix(from.parent)?, self.inodes.prefix(to.parent)?);
        let renaming = Renaming::new(from, to, &parents);
        let rename = {
            let mut begun = lock(&self.writing.begun_renames);
            let is_this = |rename: &BegunRename| rename.prefixes() == [&*renaming.old, &*renaming.new];
            let Some(at) = begun.iter().position(is_this) else { return Ok(false) };
            begun.swap_remove(at)
        };
        let _trees = self.writing.tree_locks.adopt(trees_of(&rename));
        let _parent = self.emptying(from.parent);
        tracing::debug!(from = renaming.old, to = renaming.new, "goes on with the rename of a folder");
        self.writer()?.go_on_with_rename(rename, &Names { fs: self, renaming: &renaming }).await?;
        Ok(true)
    }

    /// Waits until no name below these two prefixes is being changed. None is until the result is dropped.
    pub async fn hold_folders(&self, prefixes: [String; 2]) -> impl Drop + Send + use<'_> {
        self.writing.tree_locks.hold_trees(prefixes).await
    }
}
