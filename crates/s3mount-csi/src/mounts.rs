//! The mounts of a node, and the pods that use them.
//!
//! Each mount has a folder of its own, with a record of what it is. A pod's folder (its target) is a bind mount of it, and
//! has a file in `pods`, which is written before anything is done for it, and removed once nothing is left. So a driver
//! that is killed between any two steps finds all that it has begun: a call that comes again goes on with it.

mod asked;
mod memory;
mod record;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use s3mount_settings::flags::size::Size;
use s3mount_system::mounts::{self, MountedAt};

use self::asked::Asked;
pub(crate) use self::asked::{Answer, PATIENCE};
pub(crate) use self::memory::{NoRoom, NodeMemory};
pub(crate) use self::record::Conflict;
use self::record::Record;
use crate::credentials::{Credentials, Given};
use crate::files;
use crate::host::{Group, Host};
use crate::programs::Programs;
use crate::volume::Volume;

/// The kind of s3mount's mounts.
const KIND: &str = "fuse.s3mount";

/// The folder of all mounts, below the driver's.
const MOUNTS: &str = "mounts";

/// How long the last daemon of a mount may take to publish what programs have written, before Kubernetes has to ask again.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How often it is looked whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);

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
}

impl Mounts {
    pub(crate) fn new(
        dir: PathBuf,
        host: Host,
        programs: Programs,
        (memory_limit, node_memory): (Size, Option<NodeMemory>),
    ) -> anyhow::Result<Self> {
        host.run(|| files::private_folder(&dir.join(MOUNTS)))?;
        Ok(Self { dir, host, programs, memory_limit, node_memory, asked: Asked::default() })
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
    /// [`Conflict`] if another volume is there, or the same with other flags. Else those of mounting.
    pub(crate) fn publish(
        &self,
        volume: &Volume,
        given: &Given,
        target: &Path,
        is_read_only: bool,
    ) -> anyhow::Result<bool> {
        self.host.run(|| {
            let (record, is_new) = self.record_for(volume, target)?;
            for (name, text) in given.files(record.dir()) {
                files::write(&record.dir().join(name), text.as_bytes())?;
            }
            let published =
                self.ensure_mounted(&record).and_then(|()| bind(&record.folder(), target, is_read_only));
            if published.is_err() && is_new {
                // Nobody has to unpublish what was not published.
                self.unpublish_from(&record, target)?;
            }
            published.map(|()| is_new)
        })
    }

    /// The mount for a volume at `target`. It knows the target from then on. Returns also whether it has not before.
    fn record_for(&self, volume: &Volume, target: &Path) -> anyhow::Result<(Record, bool)> {
        let mounts = self.dir.join(MOUNTS);
        let mut records = Record::all(&mounts)?;
        if let Some(record) = records.extract_if(.., |record| record.has(target)).next() {
            let record = record.renewed(volume);
            return Ok((record.with_context(|| format!("{} has another volume", target.display()))?, false));
        }
        let shared = records.into_iter().find(|record| record.volume() == volume);
        let record = shared.map_or_else(|| Record::new(&mounts, volume), Ok)?;
        record.add(target)?;
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
    /// Those of unmounting; a daemon that has not yet published what programs have written.
    pub(crate) fn unpublish(&self, id: &str, target: &Path) -> anyhow::Result<()> {
        self.host.run(|| {
            let records = Record::all(&self.dir.join(MOUNTS))?;
            match records.into_iter().find(|record| record.volume().id == id && record.has(target)) {
                Some(record) => self.unpublish_from(&record, target),
                None => unbind(target),
            }
        })
    }

    fn unpublish_from(&self, record: &Record, target: &Path) -> anyhow::Result<()> {
        unbind(target)?;
        if record.targets()?.iter().all(|other| other == target) {
            self.take_down(record)?;
        }
        // The record of the last target is gone with that of the mount.
        record.remove(target)
    }

    /// Ends a mount that nobody uses, and removes what is left of it once its daemon has published everything.
    fn take_down(&self, record: &Record) -> anyhow::Result<()> {
        let folder = record.folder();
        if mount_at(&folder)?.is_some() {
            self.programs.umount(&folder)?;
        }
        let deadline = Instant::now() + END_LIMIT;
        while has_daemon(&folder)? {
            ensure!(
                Instant::now() < deadline,
                "the daemon of {} still writes to the bucket what programs have left",
                record.volume().source
            );
            std::thread::sleep(PAUSE);
        }
        Group::remove(record.name());
        record.delete()
    }

    /// Puts in order what was left by a driver that was killed, or before the machine was started.
    ///
    /// # Errors
    /// Those of reading the records. A mount that can't be taken down is told in the log.
    pub(crate) fn tidy(&self) -> anyhow::Result<()> {
        self.host.run(|| {
            for record in Record::all(&self.dir.join(MOUNTS))? {
                let is_unused = record.targets()?.is_empty() || record.is_of_another_boot();
                if is_unused && let Err(error) = self.take_down(&record) {
                    tracing::warn!(
                        mount = record.name(),
                        "cannot take down a mount that no pod uses: {error:#}"
                    );
                }
            }
            Ok(())
        })
    }

    /// Has all daemons replaced by the program that is installed now.
    ///
    /// # Errors
    /// Those of reading the records. A daemon that stays is told in the log.
    pub(crate) fn upgrade(&self) -> anyhow::Result<()> {
        self.host.run(|| {
            for record in Record::all(&self.dir.join(MOUNTS))? {
                let folder = record.folder();
                if mount_at(&folder)?.is_none() {
                    continue;
                }
                let source = &record.volume().source;
                match self.programs.upgrade(&folder) {
                    Ok(()) => tracing::info!(source, "the daemon of this version goes on with the mount"),
                    Err(error) => {
                        tracing::warn!(source, "the daemon before goes on with the mount: {error:#}");
                    }
                }
            }
            Ok(())
        })
    }

    /// The metrics of each mount, as text of Prometheus, if it answers.
    ///
    /// # Errors
    /// Those of reading the records.
    pub(crate) fn metrics(&self) -> anyhow::Result<Vec<Shown>> {
        self.host.run(|| {
            let records = Record::all(&self.dir.join(MOUNTS))?;
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

    /// How full the volume at `path` is. `None` if no mount is there.
    ///
    /// # Errors
    /// Those of looking at the mounts.
    pub(crate) fn stats(&self, path: &Path) -> anyhow::Result<Option<Looked>> {
        self.host.run(|| {
            if mount_at(path)?.is_none() {
                return Ok(None);
            }
            let records = Record::all(&self.dir.join(MOUNTS))?;
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

/// What is mounted at `path` last, if anything is. The path may lead over symbolic links, but for its last name: nobody may
/// answer there.
fn mount_at(path: &Path) -> anyhow::Result<Option<MountedAt>> {
    mounts::check()?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    Ok(folder.canonicalize().ok().and_then(|folder| mounts::mount_at(&folder.join(name))))
}

/// Whether a process serves the mount at `folder`, or keeps it, or publishes what was written there: it names the folder
/// among its arguments.
fn has_daemon(folder: &Path) -> anyhow::Result<bool> {
    let processes = fs::read_dir("/proc").context("cannot see the processes")?.flatten();
    let serves = |process: fs::DirEntry| {
        let Ok(line) = fs::read(process.path().join("cmdline")) else { return false };
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"s3mount"))
            && words.any(|word| word == folder.as_os_str().as_bytes())
    };
    Ok(processes.into_iter().any(serves))
}

fn detach(folder: &Path) -> anyhow::Result<()> {
    umount2(folder, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
        .with_context(|| format!("cannot unmount {}", folder.display()))
}

/// Has `target` show what is mounted at `folder`.
fn bind(folder: &Path, target: &Path, is_read_only: bool) -> anyhow::Result<()> {
    let wanted = mount_at(folder)?.ok_or_else(|| anyhow!("the mount was taken down meanwhile"))?;
    while let Some(there) = mount_at(target)? {
        if (there.device, &there.kind, there.is_read_only) == (wanted.device, &wanted.kind, is_read_only) {
            return Ok(());
        }
        // A mount whose daemons are gone for good, or one that a driver did not finish.
        ensure!(there.kind == KIND, Conflict(format!("something else is mounted at {}", target.display())));
        detach(target)?;
    }
    ensure!(
        !target.is_symlink(),
        Conflict(format!("{} is a symbolic link, and no folder", target.display()))
    );
    fs::create_dir_all(target).with_context(|| format!("cannot make the folder {}", target.display()))?;
    let failed = || format!("cannot show the volume at {}", target.display());
    let none: Option<&str> = None;
    mount(Some(folder), target, none, MsFlags::MS_BIND, none).with_context(failed)?;
    if is_read_only {
        // A remount takes what the mount had before only if it is named again.
        let kept = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept;
        mount(none, target, none, flags, none).with_context(failed)?;
    }
    Ok(())
}

/// Takes away what is mounted at `target`, and the folder.
fn unbind(target: &Path) -> anyhow::Result<()> {
    while let Some(there) = mount_at(target)? {
        ensure!(
            there.kind == KIND,
            Conflict(format!("what is mounted at {} is no volume of this driver", target.display()))
        );
        detach(target)?;
    }
    match fs::remove_dir(target) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the folder {}", target.display()))
        }
        _ => Ok(()),
    }
}
