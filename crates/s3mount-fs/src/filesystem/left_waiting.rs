//! What the daemon before has left in the outbox: each entry is a draft again, and is uploaded.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use s3mount_object::{Condition, ObjectError, ObjectId};
use s3mount_outbox::{Entry, Waiting};
use s3mount_write::RestingDraft;

use super::Filesystem;
use super::behind::{OfEntry, expect};
use crate::FsError;
use crate::behind::{Behind, InOutbox, UPLOADS};
use crate::drafts::DraftFile;
use crate::sync::spawn;

impl Filesystem {
    /// Shows what the daemon before has left in the outbox, and has it uploaded. To be called before there is a mount.
    ///
    /// What that daemon may have removed or replaced in the store is asked for first: a file that is gone there never shows.
    pub async fn take_left(self: &Arc<Self>, left: Vec<Waiting>) {
        let ended = |waiting: Waiting| async move { (!self.has_ended(&waiting).await).then_some(waiting) };
        let going_on = stream::iter(left).map(ended).buffered(UPLOADS);
        // Nobody else makes files yet.
        drop(self.take_waiting(going_on.filter_map(std::future::ready).collect().await));
    }

    /// Whether an entry is over: it was about to end, and the store has been told why.
    async fn has_ended(&self, waiting: &Waiting) -> bool {
        let (Some(behind), true) = (&self.writing.behind, waiting.is_ending && waiting.failed.is_none())
        else {
            return false;
        };
        let (id, key) = (waiting.id, &*waiting.entry.key);
        match self.is_as_expected(&waiting.entry).await {
            Ok(true) => behind.outbox.ending(id, false),
            Ok(false) => {
                tracing::info!(key, "a file that a mount before has replaced or removed is not uploaded");
                behind.outbox.done(id);
                return true;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(key, error, "whether a mount before has removed a file is not known yet");
            }
        }
        false
    }

    /// Whether the store has what an entry is to replace, or what a daemon before has made of the entry.
    async fn is_as_expected(&self, entry: &Entry) -> Result<bool, ObjectError> {
        let Ok(writer) = self.writer() else { return Ok(true) };
        let Entry { key, condition, mark, .. } = entry;
        let bucket = writer.bucket();
        expect(bucket, key, *mark, condition.as_ref());
        if bucket.late_version(key).await?.is_some() {
            return Ok(true);
        }
        let found = bucket.head(key).await?;
        Ok(match condition {
            Some(Condition::Matches(etag)) => found.is_some_and(|found| found.etag == *etag),
            Some(Condition::Absent) => found.is_none(),
            None => true,
        })
    }

    /// Shows what waits in the outbox without a draft, and has it uploaded. Returns what is not shown because another file
    /// that is not stored yet has its name.
    #[must_use]
    pub(super) fn take_waiting(self: &Arc<Self>, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let Ok(writer) = self.writer() else { return waiting };
        let (mut hidden, mut renamed, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
        let leaves = |waiting: &Waiting| waiting.entry.leaves.as_ref().map(|leaves| leaves.key().to_owned());
        let left: HashSet<String> = waiting.iter().filter_map(leaves).collect();
        for waiting in waiting {
            let key = &waiting.entry.key;
            if let Some(why) = waiting.failed {
                tracing::warn!(
                    key,
                    why,
                    "a file of a mount before waits in the outbox until somebody decides (s3mount pending)"
                );
                self.writing.logs.note_lost(key.clone(), FsError::Undecided(why));
                continue;
            }
            let Some((prefix, name)) = self.place_of(key) else {
                tracing::error!(key, "a file in the outbox can't be shown in this mount, and waits on");
                continue;
            };
            let held = self.writing.tree_locks.hold_names(&[(&prefix, &name)]).now_or_never();
            if held.is_none() || !self.namespace.drafts_of(&prefix, Some(&name)).is_empty() {
                hidden.push(waiting);
                continue;
            }
            let Waiting { id, entry, size, is_ending, bytes, .. } = waiting;
            let Entry { key, condition, object, leaves, modified, mark } = entry;
            let replaced = condition.as_ref().and_then(Condition::etag);
            let replaced = replaced.map(|etag| ObjectId::new(&key, etag.clone()));
            let resting =
                RestingDraft { bytes: Arc::new(OfEntry(bytes)), size, modified, replaced: replaced.clone() };
            let draft = writer.go_on_resting(&key, resting, condition, object);
            draft.set_number(mark.file);
            let file = DraftFile::new(draft, &prefix, &name, replaced);
            file.note_closed(None);
            file.set_in_outbox(Some(InOutbox { id, left: Some(mark), is_ending }));
            self.namespace.note_draft(&prefix, &name, &file);
            tracing::info!(key, "a file of a mount before is uploaded");
            match leaves {
                Some(leaves) => renamed.push((leaves, file)),
                // The store has another version there until that is deleted.
                None if left.contains(&key) => blocked.push(file),
                None => self.upload_after(&file, Duration::ZERO),
            }
        }
        if !renamed.is_empty() || !blocked.is_empty() {
            self.end_renames(renamed, blocked);
        }
        hidden
    }

    /// Deletes the versions that renamed files have left at their keys before, if they are still there. Then uploads these
    /// files, and those that have got such a key.
    fn end_renames(self: &Arc<Self>, renamed: Vec<(ObjectId, Arc<DraftFile>)>, blocked: Vec<Arc<DraftFile>>) {
        let fs = self.clone();
        // It counts from now on.
        let task = self.writing.behind.as_ref().map(Behind::begin);
        spawn(self.namespace.requests().runtime(), async move {
            let _task = task;
            let delete = |(leaves, _): &(ObjectId, _)| fs.delete_left(leaves.clone());
            stream::iter(renamed.iter().map(delete)).buffer_unordered(UPLOADS).collect::<()>().await;
            for file in renamed.iter().map(|(_, file)| file).chain(&blocked) {
                fs.upload_after(file, Duration::ZERO);
            }
        });
    }

    /// Deletes a version that a renamed file has left at its key before, if it is still there.
    async fn delete_left(self: &Arc<Self>, leaves: ObjectId) {
        let (Ok(writer), Some((prefix, name))) = (self.writer(), self.place_of(leaves.key())) else { return };
        // Nobody makes a new file of that version meanwhile.
        let _held = self.writing.tree_locks.hold_names(&[(&prefix, &name)]).await;
        match writer.bucket().delete(&leaves).await {
            Err(error) => {
                tracing::warn!(key = leaves.key(), %error, "a file that was renamed is left at its key before");
            }
            // Another file may have got the name.
            Ok(_) if self.namespace.drafts_of(&prefix, Some(&name)).is_empty() => {
                self.namespace.note_gone(&prefix, &name);
            }
            Ok(_) => {}
        }
    }

    /// The folder of a key of this mount, and the name there. The folders above are there from now on.
    fn place_of(&self, key: &str) -> Option<(Arc<str>, String)> {
        let root = self.namespace.root();
        let below = key.strip_prefix(root)?;
        let names: Vec<&str> = below.split('/').collect();
        if !names.iter().all(|name| s3mount_names::is_file_name(name)) {
            return None;
        }
        let (name, folders) = names.split_last()?;
        let mut prefix = root.to_owned();
        for folder in folders {
            self.namespace.note_new_folder(&Arc::from(&*prefix), folder);
            prefix = format!("{prefix}{folder}/");
        }
        Some((prefix.into(), (*name).to_owned()))
    }
}
