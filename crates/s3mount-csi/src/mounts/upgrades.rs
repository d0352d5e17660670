//! Daemons that run another program than the driver's are replaced by it.
//!
//! A daemon may be unable to make way for another one: files of its mount are open for writing, or it is stopped. A driver
//! may be killed after it has installed its program. So it is the daemons that are looked at, again and again, and nothing
//! is noted of who was replaced.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::holders::runs_another;
use super::record::Record;
use super::targets::mount_at;
use crate::programs::Programs;

/// Replaces daemons.
#[derive(Debug, Default)]
pub(super) struct Upgrades {
    /// The mounts whose daemons stay, and why, as the log says.
    told: Mutex<BTreeSet<(String, String)>>,
}

impl Upgrades {
    /// Has each daemon replaced that runs another program.
    ///
    /// # Errors
    /// Those of reading the records. A daemon that stays is told in the log.
    pub(super) fn run(&self, mounts: &Path, programs: &Programs) -> anyhow::Result<()> {
        for record in Record::all(mounts)? {
            let folder = record.folder();
            if mount_at(&folder)?.is_none() || !runs_another(&folder, programs.path())? {
                continue;
            }
            let source = &record.volume().source;
            match programs.upgrade(&folder) {
                Ok(()) => tracing::info!(source, "the daemon of this version goes on with the mount"),
                Err(error) if self.is_new(record.name(), &error) => {
                    tracing::warn!(source, "the daemon before goes on with the mount: {error:#}");
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Notes why the daemon of a mount stays. Returns whether it is the first time.
    fn is_new(&self, mount: &str, why: &anyhow::Error) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert((mount.to_owned(), format!("{why:#}")))
    }
}
