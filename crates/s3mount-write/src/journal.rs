//! What is under way at the store, in a file that outlives the daemon.
//!
//! Each mount that may write has one file in a folder of the machine. The file is cut into slots. The first says
//! whose it is; each other holds one [`Intent`], as JSON, or nothing. An intent is written before its first
//! request, and taken out after its last. That is one write into the page cache: it takes microseconds, and waits
//! for no disk. So a daemon that is killed leaves its intents behind.
//!
//! A daemon locks its file as long as it lives, and the kernel unlocks it when the process ends, however that comes
//! about. So who gets the lock knows that the daemon is dead ([`Left`]). Its process number would not say so:
//! numbers are used again, and mean others in other containers.

pub(crate) mod left;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The length of a slot, in bytes. It takes two keys of S3's 1,024 bytes, each byte written as four.
const SLOT: usize = 8 << 10;

/// The form of the file.
const FORMAT: u32 = 1;

/// How long a disk may take for an intent that has to survive a power cut. Then the work goes on without.
const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// Where a store is. There is nothing secret in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress {
    /// The bucket.
    pub bucket: String,
    /// The URL of the server, if it is not AWS's.
    pub endpoint_url: Option<String>,
    /// The region, if it was named.
    pub region: Option<String>,
    /// The profile that the credentials come from, if one was named.
    pub profile: Option<String>,
    /// Whether the bucket is in the path.
    pub force_path_style: bool,
    /// Whether the bucket is before the host name.
    #[serde(default)]
    pub virtual_host: bool,
    /// Whether AWS's endpoints with IPv6 are used.
    #[serde(default)]
    pub dual_stack: bool,
    /// Whether AWS's FIPS endpoints are used.
    #[serde(default)]
    pub fips: bool,
    /// Whether AWS's endpoints of transfer acceleration are used.
    #[serde(default)]
    pub accelerate: bool,
    /// Whether requests are not signed.
    pub no_sign_request: bool,
    /// The account that the bucket has to belong to, if it was named.
    #[serde(default)]
    pub expected_bucket_owner: Option<String>,
    /// Whether the requests are paid for.
    #[serde(default)]
    pub requester_pays: bool,
    /// The certificate authorities that are trusted, if they were named.
    pub ca_bundle: Option<PathBuf>,
}

/// Whose a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    format: u32,
    /// The name of the machine, or of the container.
    pub host: String,
    /// The number of the process.
    pub pid: u32,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// The store that it writes to.
    pub store: StoreAddress,
    /// What the mount and its daemons are known by, if another daemon is to go on with the mount.
    #[serde(default)]
    pub family: Option<u32>,
}

impl Owner {
    /// This process, which writes to `store`.
    pub fn this(store: StoreAddress, now: SystemTime) -> Self {
        let (host, pid, started) = (host(), std::process::id(), seconds(now));
        Self { format: FORMAT, host, pid, started, store, family: None }
    }
}

/// How far the rename of a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Some objects are copied. None is deleted.
    Copying,
    /// All objects are copied. Some of the old ones are deleted.
    Deleting,
}

/// Something that takes several requests, and leaves traces if it ends between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// An upload in parts.
    Upload {
        /// The key.
        key: String,
        /// The store's name of the upload, once it has told it.
        id: Option<String>,
    },
    /// A folder that gets another name.
    Rename {
        /// The prefix that it had.
        from: String,
        /// The prefix that it gets.
        to: String,
        /// How far it is.
        phase: Phase,
        /// Whether its caller has an answer, so that nobody asks for it again.
        #[serde(default)]
        is_answered: bool,
    },
}

/// An intent and when it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Seconds since 1970.
    pub since: u64,
    /// What is under way.
    pub intent: Intent,
}

impl Record {
    /// The two prefixes of a folder's rename whose caller has no answer, and how far it is.
    pub fn begun_rename(&self) -> Option<(String, String, Phase)> {
        match &self.intent {
            Intent::Rename { from, to, phase, is_answered: false } => {
                Some((from.clone(), to.clone(), *phase))
            }
            Intent::Rename { .. } | Intent::Upload { .. } => None,
        }
    }
}

/// The file of this process, or none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Journal(Option<Arc<JournalFile>>);

#[derive(Debug)]
struct JournalFile {
    file: File,
    path: PathBuf,
    slots: Mutex<Slots>,
    /// Whether a write has failed. Only the first is told.
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u64>,
    used: u64,
}

/// An intent that is in the journal. Dropping it leaves it there.
#[derive(Debug)]
#[must_use]
pub struct Noted {
    journal: Option<Arc<JournalFile>>,
    slot: u64,
    since: u64,
}

impl Journal {
    /// A new file in the folder `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Those of the disk; `PermissionDenied` for a folder that is not the user's own, or that others may write to.
    pub fn open(dir: &Path, owner: &Owner) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        check(dir)?;
        let (mut options, mut attempt) = (OpenOptions::new(), 0);
        options.read(true).write(true).create_new(true).mode(0o600);
        let (path, file) = loop {
            let path = dir.join(format!("{}-{}-{attempt}.journal", owner.started, owner.pid));
            match options.open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        file.lock()?;
        let journal = JournalFile { file, path, slots: Mutex::default(), has_failed: AtomicBool::new(false) };
        journal.write(0, &slot_of(owner).unwrap_or_default())?;
        Ok(Self(Some(Arc::new(journal))))
    }

    /// Writes down what begins now.
    pub fn note(&self, now: SystemTime, intent: Intent) -> Noted {
        let since = seconds(now);
        let Some(journal) = self.0.clone() else { return Noted { journal: None, slot: 0, since } };
        let slot = {
            let mut slots = journal.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.free.pop().unwrap_or_else(|| {
                slots.used += 1;
                slots.used
            })
        };
        let noted = Noted { journal: Some(journal), slot, since };
        noted.change(intent);
        noted
    }

    /// Deletes the file, unless something is left in it.
    pub fn close(&self) {
        let Some(journal) = &self.0 else { return };
        let slots = journal.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.free.len() as u64 == slots.used
            && let Err(error) = std::fs::remove_file(&journal.path)
        {
            tracing::warn!(%error, path = %journal.path.display(), "a journal can't be deleted");
        }
    }
}

impl JournalFile {
    fn write(&self, slot: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, slot * SLOT as u64)
    }

    fn note_failure(&self, error: &io::Error) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the journal can't be written: `s3mount cleanup` may not find all");
        }
    }
}

impl Noted {
    /// Replaces the intent.
    pub fn change(&self, intent: Intent) {
        let Some(journal) = &self.journal else { return };
        let written = match slot_of(&Record { since: self.since, intent }) {
            Some(bytes) => journal.write(self.slot, &bytes),
            None => Err(io::ErrorKind::FileTooLarge.into()),
        };
        if let Err(error) = written {
            journal.note_failure(&error);
        }
    }

    /// Replaces the intent, and waits until it survives a power cut, or until the disk has taken too long.
    pub async fn change_surely(&self, intent: Intent) {
        self.change(intent);
        let Some(journal) = self.journal.clone() else { return };
        let synced = tokio::task::spawn_blocking({
            let journal = journal.clone();
            move || journal.file.sync_data()
        });
        match tokio::time::timeout(SYNC_LIMIT, synced).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => journal.note_failure(&error),
            Ok(Err(_)) | Err(_) => journal.note_failure(&io::ErrorKind::TimedOut.into()),
        }
    }

    /// Takes the intent out: all is done, or undone.
    pub fn done(self) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.write(self.slot, &[0; SLOT]) {
            return journal.note_failure(&error);
        }
        journal.slots.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.slot);
    }
}

/// The bytes of a slot, if they fit.
fn slot_of(value: &impl Serialize) -> Option<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).ok()?;
    // For those who look into the file.
    bytes.push(b'\n');
    if bytes.len() > SLOT {
        return None;
    }
    bytes.resize(SLOT, 0);
    Some(bytes)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The name of this machine, or of this container.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Checks that nobody else may have written what is in the folder: it says what is to be deleted.
fn check(dir: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(dir)?;
    let is_own = metadata.uid() == nix::unistd::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if metadata.is_dir() && is_own {
        return Ok(());
    }
    let text = "it must be a folder of your own that nobody else may write to";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests;
