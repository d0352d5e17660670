//! The mounts of a node, and the pods that use them.
//!
//! Each mount has a folder of its own, with a record of what it is. A pod's folder (its target) is a bind mount of it, and
//! has a file in `pods`, which is written before anything is done for it, and removed once nothing is left. So a driver
//! that is killed between any two steps finds all that it has begun: a call that comes again goes on with it.

mod asked;
mod ending;
mod holders;
mod memory;
mod record;
mod refusal;
mod targets;
mod upgrades;

use std::path::{Path, PathBuf};

use anyhow::Context;
use s3mount_settings::flags::size::Size;
use s3mount_system::mounts;

use self::asked::Asked;
pub(crate) use self::asked::{Answer, PATIENCE};
use self::ending::Ends;
pub(crate) use self::memory::{NoRoom, NodeMemory};
use self::record::Record;
pub(crate) use self::refusal::Refusal;
use self::targets::{KIND, bind, detach, mount_at, prepare, remove_folder, unbind};
use self::upgrades::Upgrades;
use crate::credentials::{Credentials, Given};
use crate::files;
use crate::host::{Group, Host};
use crate::programs::Programs;
use crate::volume::Volume;

/// The folder of all mounts, below the driver's.
const MOUNTS: &str = "mounts";

/// What a daemon takes beside its --memory-limit, in its control group: a quarter for names and the kernel's memory for
/// them, and this for itself.
const BESIDE: u64 = 256 << 20;

/// The mounts of this node.
#[derive(Debug)]
pub(crate) struct Mounts {
    /// The driver's folder.
    dir: PathBuf,
    host: Host,
    programs: Programs,
    /// `--memory-limit` of volumes that do not name one.
    memory_limit: Size,
    /// The memory that all mounts have together, if it is bounded.
    node_memory: Option<NodeMemory>,
    asked: Asked,
    ends: Ends,
    upgrades: Upgrades,
}

impl Mounts {
    pub(crate) fn new(
        dir: PathBuf,
        host: Host,
        programs: Programs,
        (memory_limit, node_memory): (Size, Option<NodeMemory>),
    ) -> anyhow::Result<Self> {
        host.run(|| files::private_folder(&dir.join(MOUNTS)))?;
        Ok(Self {
            dir,
            host,
            programs,
            memory_limit,
            node_memory,
            asked: Asked::default(),
            ends: Ends::default(),
            upgrades: Upgrades::default(),
        })
    }

    /// Runs `s3mount volume` with `args`, and returns what it prints.
    ///
    /// # Errors
    /// What the program says.
    pub(crate) fn run_tool(
        &self,
        args: &[String],
        credentials: (&Credentials, &Given),
    ) -> anyhow::Result<String> {
        self.host.run(|| self.programs.volume(args, credentials, &self.dir))
    }

    /// Gives the daemons what is in the files of the driver's own credentials now.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn renew_files(&self) -> anyhow::Result<()> {
        self.programs.copy_files(&self.host)
    }

    /// Has `target` show the volume. Returns whether it was not known before. Whoever calls has the volume to himself.
    ///
    /// # Errors
    /// [`Refusal`] if another volume is there, the same with other flags, or what is no empty folder. Else those of
    /// mounting.
    pub(crate) fn publish(
        &self,
        volume: &Volume,
        given: &Given,
        target: &Path,
        is_read_only: bool,
    ) -> anyhow::Result<bool> {
        self.host.run(|| {
            let (record, is_new) = self.record_for(volume, target, is_read_only)?;
            let mut files = given.files(record.dir()).into_iter();
            let published = files
                .try_for_each(|(name, text)| files::write(&record.dir().join(name), text.as_bytes()))
                .and_then(|()| self.ensure_mounted(&record))
                .and_then(|()| bind(&record.folder(), target, is_read_only));
            // Nobody has to unpublish what was not published.
            if published.is_err()
                && is_new
                && let Err(error) = self.unpublish_from(&record, target)
            {
                // The caller has to hear the first error.
                let target = target.display();
                tracing::warn!(%target, "cannot take back what was done for the volume: {error:#}");
            }
            published.map(|()| is_new)
        })
    }

    /// The mount for a volume at `target`. It knows the target from then on. Returns also whether it has not before.
    fn record_for(
        &self,
        volume: &Volume,
        target: &Path,
        is_read_only: bool,
    ) -> anyhow::Result<(Record, bool)> {
        let (mounts, shown) = (self.dir.join(MOUNTS), target.display());
        let mut records = Record::all(&mounts)?;
        // A mount that ends is nobody's any more.
        for ended in records.extract_if(.., |record| record.home().ending().is_some()) {
            ended.remove(target)?;
        }
        if let Some(record) = records.extract_if(.., |record| record.has(target)).next() {
            if let Some(before) = record.is_read_only(target).filter(|before| *before != is_read_only) {
                return Err(Refusal::AlreadyThere(format!(
                    "{shown} has {} already, and readonly differs (before: {before}, now: {is_read_only})",
                    record.volume().source
                ))
                .into());
            }
            let record = record.renewed(volume).with_context(|| format!("{shown} is taken"))?;
            // A driver before this one has not noted it.
            if record.is_read_only(target).is_none() {
                record.add(target, is_read_only)?;
            }
            return Ok((record, false));
        }
        prepare(target)?;
        let shared = records.into_iter().find(|record| record.volume() == volume);
        let new = || {
            let _alone = self.ends.alone();
            Record::new(&mounts, volume)
        };
        let record = shared.map_or_else(new, Ok)?;
        record.add(target, is_read_only)?;
        Ok((record, true))
    }

    /// Mounts what is to be at a mount's folder, unless it is there and its daemon lives.
    fn ensure_mounted(&self, record: &Record) -> anyhow::Result<()> {
        let folder = record.folder();
        match mount_at(&folder)? {
            Some(_) if !self.asked.is_dead(&folder)? => return Ok(()),
            // The holder of its daemons is gone, and whoever has it open hears ENOTCONN already.
            Some(_) => detach(&folder)?,
            None => files::private_folder(&folder)?,
        }
        // So do containers that have the mount before, whatever is mounted for them from here on.
        for target in record.targets()? {
            if mount_at(&target)?.is_some_and(|there| there.kind == KIND) {
                record.lose(&target)?;
            }
        }
        let volume = record.volume();
        let mut flags = volume.flags.clone();
        let place = |memory| NodeMemory::place_for(memory, record, &self.asked, &|| self.mounted());
        let place = self.node_memory.as_ref().map(place).transpose()?;
        let (memory_bytes, floor) = match &self.node_memory {
            Some(memory) => memory.limits(volume),
            None => (volume.memory_bytes.unwrap_or(self.memory_limit.0), 0),
        };
        if volume.memory_bytes.is_none() {
            flags.push(format!("--memory-limit={memory_bytes}"));
        }
        if self.node_memory.is_some() {
            // The kernel lets nobody write to a mount that is read-only, not even a limit. Without a right, the daemon refuses
            // all that changes the bucket.
            if flags.iter().any(|flag| flag == "--read-only") {
                flags.retain(|flag| flag != "--read-only" && !flag.starts_with("--allow"));
            }
            flags.push(format!("--memory-floor={floor}"));
        }
        let group = match &self.host {
            Host::Here => None,
            Host::Namespaces(_) => {
                let limit = memory_bytes.saturating_add(memory_bytes / 4).saturating_add(BESIDE);
                Some(Group::new(record.name(), limit)?)
            }
        };
        let credentials = (&volume.credentials, record.dir());
        let mounted = self.programs.mount((&volume.source, &folder), &flags, credentials, group.as_ref());
        drop(place);
        match mounted {
            // Another call has begun it before a driver was killed, and it is there now.
            Err(_) if mount_at(&folder)?.is_some() && !self.asked.is_dead(&folder)? => Ok(()),
            mounted => mounted.with_context(|| format!("cannot mount {}", volume.source)),
        }
    }

    /// Takes the volume `id` away from `target`, and its mount down if no other pod uses it. What is gone already is no
    /// error. Whoever calls has the volume to himself.
    ///
    /// # Errors
    /// [`Refusal`] if another volume is there. Else those of unmounting; a daemon that has not yet published what programs
    /// have written.
    pub(crate) fn unpublish(&self, id: &str, target: &Path) -> anyhow::Result<()> {
        self.host.run(|| {
            let mut records = Record::all(&self.dir.join(MOUNTS))?;
            records.retain(|record| record.has(target));
            let of_volume = records.iter().find(|record| record.volume().id == id);
            match (of_volume, records.first()) {
                (Some(record), _) => self.unpublish_from(record, target),
                (None, Some(other)) => Err(Refusal::OtherVolume(format!(
                    "the volume {id} is not at {}: the volume {} is there, and stays",
                    target.display(),
                    other.volume().id
                ))
                .into()),
                // A driver that was killed may have left a mount that no record knows.
                (None, None) => unbind(target).and_then(|()| remove_folder(target)),
            }
        })
    }

    fn unpublish_from(&self, record: &Record, target: &Path) -> anyhow::Result<()> {
        unbind(target)?;
        if targets_of(record)?.iter().all(|other| other == target) {
            self.give_memory_back(record);
            self.ends.end(record, &self.asked, &self.programs)?;
        }
        // The record of the last target is gone with that of the mount, if this has ended.
        record.remove(target)?;
        remove_folder(target)
    }

    /// Takes from a mount that no pod uses what it has beyond its floor.
    fn give_memory_back(&self, record: &Record) {
        if let Some(memory) = &self.node_memory
            && mount_at(&record.folder()).is_ok_and(|mount| mount.is_some())
        {
            let (_, floor) = memory.limits(record.volume());
            self.asked.set_memory(&record.folder(), floor);
        }
    }

    /// Puts in order what was left by a driver that was killed, or before the machine was started, as far as that takes no
    /// time. The rest is among the [`unused`](Self::unused).
    ///
    /// # Errors
    /// Those of reading the records. What can't be removed is told in the log.
    pub(crate) fn tidy(&self) -> anyhow::Result<()> {
        self.host.run(|| {
            let mounts = self.dir.join(MOUNTS);
            files::sweep(&self.dir);
            record::sweep(&mounts);
            for record in Record::all(&mounts)? {
                // Who is called for a pod has to know it.
                targets_of(&record)?;
                if record.is_of_another_boot()
                    && let Err(error) = self.ends.finish(record.home())
                {
                    let mount = record.name();
                    tracing::warn!(mount, "cannot remove what is left of a mount: {error:#}");
                }
            }
            Ok(())
        })
    }

    /// The volumes, and the names of damaged records, of which [`end_unused`](Self::end_unused) takes down mounts.
    ///
    /// # Errors
    /// Those of reading the records.
    pub(crate) fn unused(&self) -> anyhow::Result<Vec<String>> {
        self.host.run(|| {
            let mounts = self.dir.join(MOUNTS);
            let damaged = record::damaged(&mounts)?;
            let mut unused: Vec<_> = damaged.iter().map(|home| home.name().to_owned()).collect();
            for record in Record::all(&mounts)? {
                if is_unused(&record)? {
                    unused.push(record.volume().id.clone());
                }
            }
            unused.dedup();
            Ok(unused)
        })
    }

    /// Takes down the mounts of a volume, or of a damaged record, that no pod uses, as far as that takes no time. What goes
    /// wrong is told in the log. Whoever calls has the volume to himself.
    ///
    /// # Errors
    /// Those of reading the records.
    pub(crate) fn end_unused(&self, id_or_name: &str) -> anyhow::Result<()> {
        self.host.run(|| {
            let mounts = self.dir.join(MOUNTS);
            for record in Record::all(&mounts)? {
                if record.volume().id == id_or_name && is_unused(&record)? {
                    self.ends.go_on(&record, &self.asked, &self.programs);
                }
            }
            for home in record::damaged(&mounts)?.iter().filter(|home| home.name() == id_or_name) {
                self.ends.go_on_damaged(home, &self.programs);
            }
            Ok(())
        })
    }

    /// Has the daemons that run another program replaced by the one that is installed now.
    ///
    /// # Errors
    /// Those of reading the records. A daemon that stays is told in the log.
    pub(crate) fn upgrade(&self) -> anyhow::Result<()> {
        self.host.run(|| self.upgrades.run(&self.dir.join(MOUNTS), &self.programs))
    }

    /// The metrics of each mount, as text of Prometheus, if it answers.
    ///
    /// # Errors
    /// Those of reading the records.
    pub(crate) fn metrics(&self) -> anyhow::Result<Vec<Shown>> {
        self.host.run(|| {
            let mut records = Record::all(&self.dir.join(MOUNTS))?;
            records.retain(|record| record.home().ending().is_none());
            let ask = |record: Record| {
                let metrics = self.asked.metrics(&record.folder());
                let Volume { id, source, .. } = record.volume();
                let (mount, volume, source) = (record.name().to_owned(), id.clone(), source.clone());
                Shown { mount, volume, source, metrics }
            };
            Ok(std::thread::scope(|scope| {
                let asking: Vec<_> =
                    records.into_iter().map(|record| scope.spawn(move || ask(record))).collect();
                asking.into_iter().filter_map(|thread| thread.join().ok()).collect()
            }))
        })
    }

    /// Divides the node's memory among the mounts, if it has a bound for all of them. Called once a second.
    ///
    /// # Errors
    /// Those of listing the mounts.
    pub(crate) fn divide_memory(&self) -> anyhow::Result<()> {
        let Some(memory) = &self.node_memory else { return Ok(()) };
        self.host.run(|| memory.divide(&self.asked, &|| self.mounted()).map(drop))
    }

    /// The records of all mounts that are there.
    fn mounted(&self) -> anyhow::Result<Vec<Record>> {
        let mut there = Vec::new();
        for record in Record::all(&self.dir.join(MOUNTS))? {
            if mount_at(&record.folder())?.is_some() {
                there.push(record);
            }
        }
        Ok(there)
    }

    /// How full the volume `id` at `path` is. `None` if it is not there.
    ///
    /// # Errors
    /// Those of looking at the mounts.
    pub(crate) fn stats(&self, id: &str, path: &Path) -> anyhow::Result<Option<Looked>> {
        self.host.run(|| {
            let records = Record::all(&self.dir.join(MOUNTS))?;
            let is_of = |record: &Record| record.volume().id == id && record.has(path);
            if !records.iter().any(is_of) || mount_at(path)?.is_none() {
                return Ok(None);
            }
            let is_second = records.iter().any(|record| record.has_lost(path));
            Ok(Some(Looked { answer: self.asked.stats(path), is_second }))
        })
    }
}

/// What is found at the target of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) answer: Answer,
    /// Whether the mount took the place of one that had ended for good while the pod was there.
    pub(crate) is_second: bool,
}

/// What a mount shows of itself.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The name of its record.
    pub(crate) mount: String,
    pub(crate) volume: String,
    pub(crate) source: String,
    /// Its metrics. `None` if it does not answer.
    pub(crate) metrics: Option<String>,
}

/// The targets of a mount. Those whose files are damaged are found among the kernel's mounts, and noted anew.
fn targets_of(record: &Record) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(mount) = mount_at(&record.folder())? {
        let shown: Vec<_> = mounts::others_of(&mount).into_iter().map(|other| other.dir).collect();
        record.restore(&shown)?;
    }
    record.targets()
}

/// Whether no pod uses a mount, or is about to.
fn is_unused(record: &Record) -> anyhow::Result<bool> {
    Ok(record.home().ending().is_some() || targets_of(record)?.is_empty())
}
