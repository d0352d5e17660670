//! The journal of this mount, and what the journals of others say that is left.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use s3mount_bucket::WritableBucket;
use s3mount_settings::resolved::store::Store;
use s3mount_settings::resolved::writes::JournalConfig;
use s3mount_write::{FoundJournal, Intent, Journal, Left, Owner, Recovered, Recovery};
use tokio::runtime::Handle;

use crate::stat::Stat;

/// Opens a journal. Only a folder that the command line names has to be usable.
pub(super) fn open(config: &JournalConfig, store: &Store) -> anyhow::Result<Journal> {
    let owner = Owner::this(store.address(), SystemTime::now());
    let Some(dir) = &config.dir else { return Ok(Journal::default()) };
    match Journal::open(dir, &owner) {
        Ok(journal) => Ok(journal),
        Err(error) if config.is_named => {
            Err(error).with_context(|| format!("cannot write to the folder --journal {}", dir.display()))
        }
        Err(error) => {
            let dir = dir.display();
            tracing::warn!(%error, %dir, "no journal: should this process be killed, `s3mount cleanup` won't know what is left");
            Ok(Journal::default())
        }
    }
}

/// Whether the first thread of a daemon has ended. Others may still wait in the kernel, for an answer of the next daemon.
fn has_ended(owner: &Owner) -> bool {
    Stat::of(format!("/proc/{}", owner.pid)).is_some_and(Stat::has_ended)
}

/// Puts in order what was left in the store by mounts that are gone.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) dir: PathBuf,
    pub(super) store: Store,
    pub(super) bucket: WritableBucket,
    pub(super) timeout: Duration,
    /// Whether renames of folders are undone or finished, too.
    pub(super) may_rename: bool,
}

impl Leftovers {
    /// Does so in the background.
    pub(super) fn put_in_order(self, runtime: &Handle) {
        runtime.spawn(async move {
            let dir = self.dir.clone();
            let found = match tokio::task::spawn_blocking(move || FoundJournal::all_of(&dir, has_ended)).await
            {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    return tracing::warn!(%error, dir = %self.dir.display(), "the journals can't be read");
                }
                Err(_) => return,
            };
            for found in found {
                match found {
                    FoundJournal::Dead(left)
                        if Store::at(&left.owner().store).identity() == self.store.identity() =>
                    {
                        self.clean(left).await;
                    }
                    FoundJournal::Unreadable(path, error) => {
                        tracing::warn!(%error, path = %path.display(), "a journal can't be read");
                    }
                    FoundJournal::Dead(_) | FoundJournal::Live(..) | FoundJournal::Foreign(_) => {}
                }
            }
        });
    }

    /// Finishes or undoes the renames of folders that the daemon before has begun. Its other entries are left for later.
    /// Returns the two prefixes of each that is finished.
    pub(super) async fn finish_renames(&self) -> Vec<(String, String)> {
        let mut finished = Vec::new();
        if let Ok(found) = FoundJournal::all_of(&self.dir, has_ended) {
            for found in found {
                if let FoundJournal::Dead(left) = found
                    && Store::at(&left.owner().store).identity() == self.store.identity()
                    && left.records().iter().any(|(_, record)| matches!(record.intent, Intent::Rename { .. }))
                {
                    finished.extend(self.clean(left).await);
                }
            }
        }
        finished
    }

    /// Returns the two prefixes of each rename of a folder that was finished.
    async fn clean(&self, mut left: Left) -> Vec<(String, String)> {
        let mut finished = Vec::new();
        let recovery = Recovery::new(self.bucket.clone(), self.timeout, false);
        let pid = left.owner().pid;
        for (slot, record) in left.records().to_vec() {
            let intent = &record.intent;
            if matches!(intent, Intent::Rename { .. }) && !self.may_rename {
                tracing::warn!(pid, ?intent, "a rename was cut off: `s3mount cleanup` puts it in order");
                continue;
            }
            match recovery.recover(&record).await {
                Ok(Recovered::Unsure(_)) => {
                    tracing::warn!(pid, ?intent, "an upload may be left: see `s3mount cleanup`");
                }
                Ok(recovered) => {
                    if let (Intent::Rename { from, to, .. }, Recovered::Finished(_)) = (intent, &recovered) {
                        finished.push((from.clone(), to.clone()));
                    }
                    tracing::info!(pid, ?intent, ?recovered, "cleaned up after a daemon that is gone");
                    if let Err(error) = left.done(slot) {
                        tracing::warn!(%error, "a journal can't be written");
                    }
                }
                Err(error) => {
                    tracing::warn!(pid, ?intent, %error, "cannot clean up after a daemon that is gone");
                }
            }
        }
        if let Err(error) = left.close() {
            tracing::warn!(%error, "a journal can't be deleted");
        }
        finished
    }
}
