//! The journal of this mount, and what the journals of others say that is left.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use s3mount_bucket::WritableBucket;
use s3mount_fs::Filesystem;
use s3mount_settings::resolved::store::Store;
use s3mount_settings::resolved::writes::JournalConfig;
use s3mount_write::{FoundJournal, Intent, Journal, Left, Owner, Recovered, Recovery};
use tokio::runtime::Handle;

use crate::stat::Stat;

/// How long the renames of a mount whose daemon is dead wait for the next one.
const SUCCESSOR: Duration = Duration::from_secs(60);

/// Opens a journal of the mount of this `family`. Only a folder that the command line names has to be usable.
pub(super) fn open(config: &JournalConfig, store: &Store, family: Option<u32>) -> anyhow::Result<Journal> {
    let mut owner = Owner::this(store.address(), SystemTime::now());
    owner.family = family;
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
    fn found(&self, is_dead: impl Fn(&Owner) -> bool) -> Vec<FoundJournal> {
        FoundJournal::all_of(&self.dir, is_dead).unwrap_or_else(|error| {
            tracing::warn!(%error, dir = %self.dir.display(), "the journals can't be read");
            Vec::new()
        })
    }

    fn is_own(&self, left: &Left) -> bool {
        Store::at(&left.owner().store).identity() == self.store.identity()
    }

    /// Has `fs` go on with the renames of folders that the daemon before has not answered.
    pub(super) fn hand_renames(&self, fs: &Arc<Filesystem>) {
        let Some(family) = fs.handover().map(|handover| handover.family_before()) else { return };
        // Whoever keeps the mount knows that the daemon before is dead, also one that still writes its core dump.
        let is_before = |owner: &Owner| owner.family == Some(family) && owner.pid != std::process::id();
        for found in self.found(is_before) {
            let FoundJournal::Dead(mut left) = found else { continue };
            if left.owner().family != Some(family) || !self.is_own(&left) {
                continue;
            }
            let begun =
                left.records().iter().filter_map(|(slot, record)| Some((*slot, record.begun_rename()?)));
            let (slots, renames): (Vec<_>, Vec<_>) = begun.unzip();
            // They are in the journal of this daemon before they are in none.
            fs.expect_renames(renames);
            if let Some(error) = slots.into_iter().find_map(|slot| left.done(slot).err()) {
                tracing::warn!(%error, "a journal can't be written");
            }
        }
    }

    /// Puts in order what is left, in the background.
    pub(super) fn put_in_order(self, fs: Arc<Filesystem>, runtime: &Handle) {
        runtime.spawn(async move {
            let leftovers = Arc::new(self);
            for waits_for_others in [true, false] {
                let reader = leftovers.clone();
                let found = tokio::task::spawn_blocking(move || reader.found(has_ended)).await;
                let mut are_left = false;
                for found in found.unwrap_or_default() {
                    match found {
                        FoundJournal::Dead(left) if leftovers.is_own(&left) => {
                            are_left |= !leftovers.clean(left, &fs, waits_for_others).await;
                        }
                        FoundJournal::Unreadable(path, error) => {
                            tracing::warn!(%error, path = %path.display(), "a journal can't be read");
                        }
                        FoundJournal::Dead(_) | FoundJournal::Live(..) | FoundJournal::Foreign(_) => {}
                    }
                }
                if !are_left {
                    return;
                }
                tokio::time::sleep(SUCCESSOR).await;
            }
        });
    }

    /// Returns whether nothing is left for another daemon: with `waits_for_others`, the renames of a mount that is kept are.
    async fn clean(&self, mut left: Left, fs: &Filesystem, waits_for_others: bool) -> bool {
        let mut is_all = true;
        let recovery = Recovery::new(self.bucket.clone(), self.timeout, false);
        let (pid, is_kept) = (left.owner().pid, left.owner().family.is_some());
        for (slot, record) in left.records().to_vec() {
            let intent = &record.intent;
            let mut _folders = None;
            if let Intent::Rename { from, to, is_answered, .. } = intent {
                if !self.may_rename {
                    tracing::warn!(pid, ?intent, "a rename was cut off: `s3mount cleanup` puts it in order");
                    continue;
                }
                if is_kept && !is_answered && waits_for_others {
                    is_all = false;
                    continue;
                }
                _folders = Some(fs.hold_folders([from.clone(), to.clone()]).await);
            }
            match recovery.recover(&record).await {
                Ok(Recovered::Unsure(_)) => {
                    tracing::warn!(pid, ?intent, "an upload may be left: see `s3mount cleanup`");
                }
                Ok(recovered) => {
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
        is_all
    }
}
