//! The end of mounts that no pod uses.
//!
//! A mount ends in steps: what is known of it is noted, it is unmounted, its daemon ends, and its folder is removed. The
//! daemon lives as long as anybody uses the file system: another namespace of mounts may have a copy of it, and a program
//! an open file. If nothing is left to write, nobody has to wait for that: the mount counts as one that ends, no pod gets
//! it any more, and the rest is done in the background.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use s3mount_system::mounts;

use super::asked::Asked;
use super::holders::{self, has_daemon};
use super::record::{Ending, Home, Record};
use super::targets::mount_at;
use crate::host::Group;
use crate::programs::Programs;

/// How long the last daemon of a mount may take to publish what programs have written, before Kubernetes has to ask again.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How long a daemon may take to end that has nothing to publish. Other calls for the volume wait a bit longer.
const LEAVE_LIMIT: Duration = Duration::from_secs(4);

/// How often it is looked whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked who else uses the file system: that reads the mounts of all namespaces.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Ends mounts.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Held by who makes the folder of a mount, or removes it.
    folders: Mutex<()>,
    /// The mounts of which the log says that they stay.
    told: Mutex<BTreeSet<String>>,
}

impl Ends {
    /// Keeps others from making or removing the folder of a mount.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the mount of `record`, which no pod uses any more. Returns as soon as what programs have closed is in the
    /// bucket. Whoever calls has the volume to himself.
    ///
    /// # Errors
    /// Those of unmounting; what is not yet in the bucket.
    pub(super) fn end(&self, record: &Record, asked: &Asked, programs: &Programs) -> anyhow::Result<()> {
        let (home, source, delays) =
            (record.home(), &record.volume().source, record.volume().delays_writes());
        // A mount that could not be made leaves no more than its folder.
        if home.ending().is_none() && self.finish(home)? {
            return Ok(());
        }
        let mut ending = home.ending().map_or_else(|| look(record, asked), Ok)?;
        // On a full disk it can't be noted, and need not be if the mount ends at once.
        let noted = home.note_ending(ending);
        match unmount(home, programs) {
            Err(error) if ending.is_written => return Err(error),
            Err(error) => self.tell(home, &format!("it is unmounted later: {error:#}")),
            Ok(()) => {}
        }
        let (began, mut looked, mut holder) = (Instant::now(), Instant::now(), None);
        while !self.finish(home)? {
            if looked.elapsed() >= LOOK_PAUSE {
                looked = Instant::now();
                holder = ending.device.and_then(holders::find);
                let root = holder.as_ref().and_then(holders::Holder::root);
                if ending.is_written && root.is_some_and(|root| !asked.may_have_unwritten(&root, delays)) {
                    ending.is_written = false;
                }
                if let Some(holder) = &holder
                    && !ending.is_written
                {
                    tracing::info!(
                        source,
                        "no pod has the mount, but {holder}: it ends when it is gone there"
                    );
                    return home.note_ending(ending);
                }
            }
            if !ending.is_written && began.elapsed() >= LEAVE_LIMIT {
                tracing::info!(
                    source,
                    "no pod has the mount, but a program has something of it open: it ends later"
                );
                return noted;
            }
            if began.elapsed() >= END_LIMIT {
                match holder {
                    Some(holder) => bail!(
                        "programs have left something in {source} that is not in the bucket, or have a file of it open; \
                         no pod has the mount any more, but {holder}"
                    ),
                    None => bail!(
                        "the daemon of {source} has not ended: it still writes to the bucket what programs have left, or \
                         a program on the node has a file of it open, or it is stopped"
                    ),
                }
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Goes on with the end of a mount that no pod uses, or begins it, and waits for nobody. Whoever calls has the volume
    /// to himself.
    pub(super) fn go_on(&self, record: &Record, asked: &Asked, programs: &Programs) {
        let step = || {
            if record.home().ending().is_none() {
                if self.finish(record.home())? {
                    return Ok(());
                }
                record.home().note_ending(look(record, asked)?)?;
            }
            self.step(record.home(), programs)
        };
        if let Err(error) = step() {
            self.tell(record.home(), &format!("it can't be taken down: {error:#}"));
        }
    }

    /// The same for a mount whose record can't be read.
    pub(super) fn go_on_damaged(&self, home: &Home, programs: &Programs) {
        let step = || {
            let is_shown =
                mount_at(&home.folder())?.is_some_and(|mount| !mounts::others_of(&mount).is_empty());
            if is_shown {
                self.tell(home, "its record can't be read; it stays until its pods are gone");
                return Ok(());
            }
            self.step(home, programs)
        };
        if let Err(error) = step() {
            self.tell(home, &format!("its record can't be read, and it can't be taken down: {error:#}"));
        }
    }

    fn step(&self, home: &Home, programs: &Programs) -> anyhow::Result<()> {
        unmount(home, programs)?;
        if self.finish(home)? {
            tracing::info!(mount = home.name(), "a mount that no pod had has ended");
        }
        Ok(())
    }

    /// Removes what is left of a mount that is not there any more. Returns whether nothing is left.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn finish(&self, home: &Home) -> anyhow::Result<bool> {
        let folder = home.folder();
        if mount_at(&folder)?.is_some() || has_daemon(&folder)? {
            return Ok(false);
        }
        let _alone = self.alone();
        Group::remove(home.name());
        home.delete()?;
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(home.name());
        Ok(true)
    }

    /// Says once of a mount why it stays.
    fn tell(&self, home: &Home, why: &str) {
        let is_new = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(home.name().to_owned());
        if is_new {
            tracing::warn!(folder = %home.folder().display(), "a mount stays: {why}");
        }
    }
}

/// What has to be known of a mount that ends, before it is unmounted.
fn look(record: &Record, asked: &Asked) -> anyhow::Result<Ending> {
    let folder = record.folder();
    let mount = mount_at(&folder)?;
    let volume = record.volume();
    let is_written =
        volume.is_written() && (mount.is_none() || asked.may_have_unwritten(&folder, volume.delays_writes()));
    Ok(Ending { device: mount.map(|mount| mount.device), is_written })
}

fn unmount(home: &Home, programs: &Programs) -> anyhow::Result<()> {
    let folder = home.folder();
    if mount_at(&folder)?.is_some() { programs.umount(&folder) } else { Ok(()) }
}
