//! A daemon that takes over the mount of one that has died.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use s3mount_bucket::WritableBucket;
use s3mount_fs::Handover;
use s3mount_write::{FoundJournal, Intent, Phase, Record, Recovery};
use tempfile::TempDir;
use tokio::time::sleep;

use super::left::{Left, copied, seed};
use super::{Begin, Disks, LIVES, Place, SimMount, TIMEOUT};
use crate::store::client::MountClient;

/// How often to look whether the store has done all that a daemon has sent.
const LOOK: Duration = Duration::from_millis(10);

impl Place {
    fn left(&self) -> MutexGuard<'_, Left> {
        let left = self.left.as_ref().expect("a place whose daemons take over from one another");
        left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether daemons take over from one another here.
    pub fn is_kept(&self) -> bool {
        self.left.is_some()
    }

    /// The daemon dies, and another is to take over: what it has sent may still be done, and nothing else.
    ///
    /// # Panics
    /// When its journal can't be read, or the machine has no memory.
    pub fn lose(&self) {
        let mount = self.mount();
        mount.client.die();
        mount.kernel.lose_daemon();
        if let Some(disk) = &mount.disk {
            disk.kill();
        }
        let mut left = self.left();
        left.state = copied(&left.state);
        left.spool = left.spool.as_ref().map(|files| Arc::new(files.copied()));
        left.deaths += 1;
        left.clients.push(mount.client.clone());
        for found in FoundJournal::all(left.journals()).expect("a folder of journals") {
            // The daemon was in this process, so the lock says that it lives.
            if let FoundJournal::Live(_, records) = found {
                left.intents.extend(records);
            }
        }
        left.journals = TempDir::new().expect("a folder");
    }

    /// Another daemon takes over from the one that has died.
    ///
    /// # Errors
    /// What it can't put in order before.
    ///
    /// # Panics
    /// When the state can't be read.
    pub async fn take_over(&self) -> Result<(), String> {
        let (deaths, state, journals, files) = {
            let left = self.left();
            let state = left.state.try_clone().expect("a descriptor");
            (left.deaths, state, left.journals().to_owned(), left.spool.clone())
        };
        let begun = self.begun_renames();
        let (before, number) = (self.number + LIVES * (deaths - 1), self.number + LIVES * deaths);
        self.store.pass_on(before, number);
        let (handover, mut left) = Handover::open(state, seed(&self.draw)).expect("the state of a daemon");
        if let Some(files) = files {
            handover.keep_files(files.clone());
            left = left.with_files(files.all());
        }
        let next = SimMount::new(
            (&self.store, number),
            &self.plan,
            self.draw.clone(),
            Disks { journals: Some(&journals), ..self.disks(None) },
            Begin::TakenOver(handover, left, self.mount().kernel.clone(), begun),
        )
        .await;
        *self.mount.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.recover_renames().await
    }

    /// Waits until nothing is under way any more that daemons have sent that are dead.
    pub async fn is_settled(&self) {
        let clients = self.left().clients.clone();
        while clients.iter().any(|client| client.is_changing()) {
            sleep(LOOK).await;
        }
    }

    /// The renames that the daemon before has begun, and not answered.
    fn begun_renames(&self) -> Vec<(String, String, Phase)> {
        let is_begun = |record: &mut Record| record.begun_rename().is_some();
        let begun: Vec<Record> = self.left().intents.extract_if(.., is_begun).collect();
        begun.iter().filter_map(Record::begun_rename).collect()
    }

    /// Puts in order the renames of folders that have failed.
    async fn recover_renames(&self) -> Result<(), String> {
        let is_rename = |record: &mut Record| matches!(record.intent, Intent::Rename { .. });
        let renames: Vec<Record> = self.left().intents.extract_if(.., is_rename).collect();
        let fs = self.mount().fs.clone();
        for record in renames {
            let Intent::Rename { from, to, .. } = &record.intent else { continue };
            let _folders = fs.hold_folders([from.clone(), to.clone()]).await;
            self.put_in_order(&self.recovery(), vec![record]).await?;
        }
        Ok(())
    }

    /// Puts in order the uploads that were under way when daemons died.
    ///
    /// # Errors
    /// What could not be put in order.
    pub async fn recover_uploads(&self) -> Result<(), String> {
        let intents = std::mem::take(&mut self.left().intents);
        self.put_in_order(&self.recovery(), intents).await
    }

    fn recovery(&self) -> Recovery {
        let client = MountClient::new(self.store.clone(), self.number + LIVES / 2);
        Recovery::new(WritableBucket::seeded(client, 64, self.draw.next()), TIMEOUT, false)
    }
}
