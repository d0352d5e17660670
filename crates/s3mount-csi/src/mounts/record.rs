//! What the driver keeps of a mount on the disk: one folder for each.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::files;
use crate::volume::Volume;

/// The file with what is mounted.
const RECORD: &str = "mount.json";

/// The folder with a file for each target.
const PODS: &str = "pods";

/// The folder with a file for each target whose mount has ended for good.
const LOST: &str = "lost";

/// Where the bucket is mounted.
const FOLDER: &str = "data";

/// Another volume is at the place.
#[derive(Debug)]
pub(crate) struct Conflict(pub(crate) String);

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Conflict {}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    volume: Volume,
    /// When the machine was started: no mount is older.
    boot: String,
}

/// The record of a mount.
#[derive(Debug)]
pub(crate) struct Record {
    dir: PathBuf,
    name: String,
    written: Written,
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
        let record = Self {
            dir: mounts.join(&name),
            name,
            written: Written { volume: volume.clone(), boot: boot()? },
        };
        files::private_folder(&record.dir)?;
        record.write()?;
        Ok(record)
    }

    /// The records of all mounts.
    pub(crate) fn all(mounts: &Path) -> anyhow::Result<Vec<Self>> {
        let failed = || format!("cannot list the folder {}", mounts.display());
        let mut records = Vec::new();
        for entry in fs::read_dir(mounts).with_context(failed)? {
            let dir = entry.with_context(failed)?.path();
            let path = dir.join(RECORD);
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            };
            let written = match serde_json::from_slice(&text) {
                Ok(written) => written,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "no record of a mount: it is left alone");
                    continue;
                }
            };
            let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            records.push(Self { dir, name, written });
        }
        Ok(records)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The name of the record's folder, which no other mount has.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the bucket is mounted.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.join(FOLDER)
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
    /// [`Conflict`] if it is another volume, or the same with other flags.
    pub(crate) fn renewed(mut self, volume: &Volume) -> anyhow::Result<Self> {
        let before = &self.written.volume;
        let same = Volume { credentials: before.credentials.clone(), ..volume.clone() } == *before;
        if !same || !volume.credentials.replace(&before.credentials) {
            return Err(Conflict(format!(
                "it has {} with other settings, or other credentials",
                before.source
            ))
            .into());
        }
        if volume.credentials != before.credentials {
            self.written.volume = volume.clone();
            self.write()?;
        }
        Ok(self)
    }

    fn write(&self) -> anyhow::Result<()> {
        files::write(&self.dir.join(RECORD), &serde_json::to_vec(&self.written)?)
    }

    /// The file of `target` in `folder`.
    fn of_target(&self, folder: &str, target: &Path) -> PathBuf {
        let name = format!("{:x}", Sha256::digest(target.as_os_str().as_bytes()));
        self.dir.join(folder).join(name)
    }

    /// Whether the volume is at `target`, or was to be.
    pub(crate) fn has(&self, target: &Path) -> bool {
        self.of_target(PODS, target).exists()
    }

    /// Whether the mount that `target` has shown first has ended for good.
    pub(crate) fn has_lost(&self, target: &Path) -> bool {
        self.of_target(LOST, target).exists()
    }

    pub(crate) fn add(&self, target: &Path) -> anyhow::Result<()> {
        self.note(PODS, target)
    }

    /// Notes that the mount which `target` shows has ended for good.
    pub(crate) fn lose(&self, target: &Path) -> anyhow::Result<()> {
        self.note(LOST, target)
    }

    fn note(&self, folder: &str, target: &Path) -> anyhow::Result<()> {
        files::private_folder(&self.dir.join(folder))?;
        files::write(&self.of_target(folder, target), target.as_os_str().as_bytes())
    }

    pub(crate) fn remove(&self, target: &Path) -> anyhow::Result<()> {
        for folder in [LOST, PODS] {
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
        let pods = self.dir.join(PODS);
        let failed = || format!("cannot list the folder {}", pods.display());
        let mut targets = Vec::new();
        let entries = match fs::read_dir(&pods) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(targets),
            entries => entries.with_context(failed)?,
        };
        for entry in entries {
            let entry = entry.with_context(failed)?;
            // Files that were being written have other names.
            if entry.file_name().len() == 64 {
                let target = fs::read(entry.path()).with_context(failed)?;
                if !target.is_empty() {
                    targets.push(PathBuf::from(std::ffi::OsStr::from_bytes(&target)));
                }
            }
        }
        Ok(targets)
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
            let is_folder = entry.file_type().with_context(failed)?.is_dir();
            let path = entry.path();
            if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.with_context(failed)?;
        }
        fs::remove_file(self.dir.join(RECORD)).with_context(failed)?;
        fs::remove_dir(&self.dir).with_context(failed)
    }
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
