//! What the process before was publishing when it died, and the store has taken since.
//!
//! That version has replaced the one that the draft is made of. Where the draft still has a byte of its own version, the new
//! one has the same byte at the same place: each change since is in the spool, and what was cut off never comes back.

use std::sync::atomic::Ordering;

use s3mount_object::ObjectId;

use super::Draft;

impl Draft {
    /// The number of the file, by which another process knows its publications
    /// ([`Bucket::expect_late`](s3mount_bucket::Bucket::expect_late)).
    pub fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// The process before may have been publishing the draft, in place of the version `base`.
    pub(crate) fn expect_late(&self, base: Option<ObjectId>) {
        *self.late_of() = base.into_iter().collect();
    }

    /// What is published at the key of the draft from now on is no more of this draft: another file has its name.
    pub fn forget_late(&self) {
        self.late_of().clear();
    }

    /// Looks whether such a version has replaced the one that the draft is made of. The draft takes its bytes from there
    /// then, and may replace only that.
    pub(super) async fn find_late(&self) -> Option<ObjectId> {
        let base = self.late_of().last()?.clone();
        let found = match self.shared.store.bucket.late_version(base.key()).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!(key = base.key(), %error, "what the daemon before has published can't be found out");
                return None;
            }
        };
        let mut late_of = self.late_of();
        if found != base && late_of.last() == Some(&base) {
            tracing::info!(key = found.key(), "the daemon before has published the file at its end");
            self.state().follow(&base, &found);
            late_of.push(found);
        }
        late_of.last().cloned()
    }

    /// The version that has the bytes of one that is `gone`, if that was replaced so.
    pub(super) async fn late_in_place_of(&self, gone: &ObjectId) -> Option<ObjectId> {
        let was_replaced = |late_of: &[ObjectId]| late_of.contains(gone) && late_of.last() != Some(gone);
        if !was_replaced(&self.late_of()) {
            self.find_late().await;
        }
        let late_of = self.late_of();
        late_of.last().filter(|_| was_replaced(&late_of)).cloned()
    }
}
