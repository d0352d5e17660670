//! What the driver keeps of a mount on the disk: one folder for each.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::refusal::Refusal;
use crate::files;
use crate::volume::Volume;

/// The file with what is mounted.
const RECORD: &str = "mount.json";

/// The folder with a file for each target.
const PODS: &str = "pods";

/// The folder with a file for each target whose mount has ended for good.
const LOST: &str = "lost";

/// The folder with a file for each target, which says whether its pod only reads.
const VIEWS: &str = "views";

/// What such a file says.
const READ_ONLY: &[u8] = b"read-only";
const WRITABLE: &[u8] = b"writable";

/// Where the bucket is mounted.
const FOLDER: &str = "data";

/// The file of a mount that ends.
const ENDING: &str = "ending.json";

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    volume: Volume,
    /// When the machine was started: no mount is older.
    boot: String,
}

/// What is known of a mount that no pod uses any more, from before it was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ending {
    /// The minor number of its device, if it was mounted.
    pub(super) device: Option<u64>,
    /// Whether files were being written, or may have been.
    pub(super) is_written: bool,
}

/// The folder of a mount.
#[derive(Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    name: String,
}

/// The record of a mount.
#[derive(Debug)]
pub(crate) struct Record {
    home: Home,
    written: Written,
}

/// The folders of mounts whose records can't be read.
pub(crate) fn damaged(mounts: &Path) -> anyhow::Result<Vec<Home>> {
    Ok(read_all(mounts)?.into_iter().filter_map(|(home, written)| written.is_err().then_some(home)).collect())
}

/// The folders of all mounts, with their records as far as these can be read.
fn read_all(mounts: &Path) -> anyhow::Result<Vec<(Home, anyhow::Result<Written>)>> {
    let failed = || format!("cannot list the folder {}", mounts.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(mounts).with_context(failed)? {
        let dir = entry.with_context(failed)?.path();
        let path = dir.join(RECORD);
        let written = match files::read(&path) {
            Ok(Some(text)) => serde_json::from_slice(&text).map_err(anyhow::Error::from),
            Ok(None) => Err(anyhow!("{} is no file", path.display())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        found.push((Home { dir, name }, written));
    }
    Ok(found)
}

/// Removes what a driver that was killed has left in the folder of all mounts: files that were being written, and folders of
/// mounts that it had only begun.
pub(super) fn sweep(mounts: &Path) {
    for home in fs::read_dir(mounts).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if home.is_symlink() {
            continue;
        }
        for folder in ["", PODS, LOST, VIEWS] {
            files::sweep(&home.join(folder));
        }
        // It fails for all but an empty folder.
        let _ = fs::remove_dir(home);
    }
}

impl Home {
    /// The name of the folder, which no other mount has.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the bucket is mounted.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    /// What is known of the mount if it ends.
    pub(super) fn ending(&self) -> Option<Ending> {
        let text = match files::read(&self.dir.join(ENDING)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            text => text.ok().flatten(),
        };
        let noted = text.and_then(|text| serde_json::from_slice(&text).ok());
        Some(noted.unwrap_or(Ending { device: None, is_written: true }))
    }

    /// Notes that the mount ends.
    pub(super) fn note_ending(&self, ending: Ending) -> anyhow::Result<()> {
        files::write(&self.dir.join(ENDING), &serde_json::to_vec(&ending)?)
    }

    /// Removes the record, and all files of the mount. Nothing is mounted any more.
    pub(crate) fn delete(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot remove {}", self.dir.display());
        // It fails if anything is mounted there, or anybody has put something under it.
        match fs::remove_dir(self.folder()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(failed),
            _ => {}
        }
        // The record is the last: as long as it is there, somebody comes back for the rest.
        for entry in fs::read_dir(&self.dir).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            if entry.file_name() == RECORD {
                continue;
            }
            remove(&entry.path()).with_context(failed)?;
        }
        remove(&self.dir.join(RECORD)).with_context(failed)?;
        fs::remove_dir(&self.dir).with_context(failed)
    }
}

/// Removes a file, or a folder with all that is in it.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

impl Record {
    /// Makes the record of a new mount of `volume`.
    pub(crate) fn new(mounts: &Path, volume: &Volume) -> anyhow::Result<Self> {
        let begin = begin(&volume.id);
        // A folder without a record is one that was being made, or removed.
        let name = (0..)
            .map(|number| format!("{begin}{number}"))
            .find(|name| !mounts.join(name).join(RECORD).exists());
        let name = name.context("there is no end of numbers")?;
        let home = Home { dir: mounts.join(&name), name };
        let record = Self { home, written: Written { volume: volume.clone(), boot: boot()? } };
        files::private_folder(record.dir())?;
        record.write().inspect_err(|_| {
            // It fails if a killed driver has left something there.
            let _ = fs::remove_dir(record.dir());
        })?;
        Ok(record)
    }

    /// The records of all mounts, but for those that are damaged.
    pub(crate) fn all(mounts: &Path) -> anyhow::Result<Vec<Self>> {
        let of =
            |(home, written): (Home, anyhow::Result<Written>)| Some(Self { home, written: written.ok()? });
        Ok(read_all(mounts)?.into_iter().filter_map(of).collect())
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.home.dir
    }

    /// The name of the record's folder, which no other mount has.
    pub(crate) fn name(&self) -> &str {
        self.home.name()
    }

    /// Where the bucket is mounted.
    pub(crate) fn folder(&self) -> PathBuf {
        self.home.folder()
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.written.volume
    }

    /// Whether the machine was started anew since.
    pub(crate) fn is_of_another_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot != self.written.boot)
    }

    /// Takes the description of the same volume that may have other keys by now.
    ///
    /// # Errors
    /// [`Refusal::AlreadyThere`] if it is another volume, or the same with other flags.
    pub(crate) fn renewed(mut self, volume: &Volume) -> anyhow::Result<Self> {
        let before = &self.written.volume;
        let differences = before.differences(volume);
        if !differences.is_empty() {
            let (source, differences) = (&before.source, differences.join(", "));
            let text = format!("it has {source} already, and these differ: {differences}");
            return Err(Refusal::AlreadyThere(text).into());
        }
        if volume.credentials != before.credentials {
            self.written.volume = volume.clone();
            self.write()?;
        }
        Ok(self)
    }

    fn write(&self) -> anyhow::Result<()> {
        files::write(&self.dir().join(RECORD), &serde_json::to_vec(&self.written)?)
    }

    /// The file of `target` in `folder`.
    fn of_target(&self, folder: &str, target: &Path) -> PathBuf {
        self.dir().join(folder).join(name_of(target))
    }

    /// Whether the volume is at `target`, or was to be.
    pub(crate) fn has(&self, target: &Path) -> bool {
        self.of_target(PODS, target).exists()
    }

    /// Whether the mount that `target` has shown first has ended for good.
    pub(crate) fn has_lost(&self, target: &Path) -> bool {
        self.of_target(LOST, target).exists()
    }

    /// Notes that the volume is to be at `target`, and whether its pod only reads.
    pub(crate) fn add(&self, target: &Path, is_read_only: bool) -> anyhow::Result<()> {
        // Who finds the target finds also how it is shown.
        let view = if is_read_only { READ_ONLY } else { WRITABLE };
        self.note(VIEWS, target, view)?;
        self.note(PODS, target, target.as_os_str().as_bytes())
    }

    /// Whether the pod of `target` only reads. `None` if a driver has noted the target that did not note this.
    pub(crate) fn is_read_only(&self, target: &Path) -> Option<bool> {
        let view = files::read(&self.of_target(VIEWS, target)).ok()??;
        [READ_ONLY, WRITABLE].contains(&view.as_slice()).then_some(view == READ_ONLY)
    }

    /// Notes those of `shown` anew that the record has had as targets, and whose files are damaged.
    pub(crate) fn restore(&self, shown: &[PathBuf]) -> anyhow::Result<()> {
        let targets = self.targets()?;
        let had = |target: &Path| [PODS, LOST, VIEWS].iter().any(|of| self.of_target(of, target).exists());
        for target in shown.iter().filter(|target| !targets.contains(target) && had(target)) {
            tracing::warn!(mount = self.name(), target = %target.display(), "the file of a pod was damaged; it is made anew");
            self.note(PODS, target, target.as_os_str().as_bytes())?;
        }
        Ok(())
    }

    /// Notes that the mount which `target` shows has ended for good.
    pub(crate) fn lose(&self, target: &Path) -> anyhow::Result<()> {
        self.note(LOST, target, target.as_os_str().as_bytes())
    }

    fn note(&self, folder: &str, target: &Path, text: &[u8]) -> anyhow::Result<()> {
        files::private_folder(&self.dir().join(folder))?;
        files::write(&self.of_target(folder, target), text)
    }

    pub(crate) fn remove(&self, target: &Path) -> anyhow::Result<()> {
        for folder in [LOST, VIEWS, PODS] {
            match fs::remove_file(self.of_target(folder, target)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot forget {}", target.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the volume is shown.
    pub(crate) fn targets(&self) -> anyhow::Result<Vec<PathBuf>> {
        let pods = self.dir().join(PODS);
        let failed = || format!("cannot list the folder {}", pods.display());
        let mut targets = Vec::new();
        let entries = match fs::read_dir(&pods) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(targets),
            entries => entries.with_context(failed)?,
        };
        for entry in entries {
            let entry = entry.with_context(failed)?;
            let Some(target) = files::read(&entry.path()).with_context(failed)? else { continue };
            let target = PathBuf::from(OsStr::from_bytes(&target));
            // Files that were being written have other names, and so have those that are damaged.
            if entry.file_name() == OsStr::new(&name_of(&target)) {
                targets.push(target);
            }
        }
        Ok(targets)
    }
}

/// The name of the files of a target.
fn name_of(target: &Path) -> String {
    format!("{:x}", Sha256::digest(target.as_os_str().as_bytes()))
}

/// What the names of all mounts of a volume begin with.
fn begin(id: &str) -> String {
    let hash = format!("{:x}", Sha256::digest(id));
    format!("{}-", &hash[..16])
}

fn boot() -> anyhow::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .context("cannot find out when the machine was started")?;
    Ok(id.trim().to_owned())
}
