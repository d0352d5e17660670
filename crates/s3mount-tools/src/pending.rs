//! `s3mount flush` and `s3mount pending`: files that wait in `--write-behind`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use indicatif::HumanBytes;
use s3mount_outbox::{FolderDisk, Limits, Looked, Outbox, OutboxDisk as _, Waiting, look};
use s3mount_system::terminal::{self, plain};
use serde::Deserialize;

/// How often the mount is asked.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is told to upload what waits.
const HURRY: Duration = Duration::from_secs(1);

/// With more files than this, the mount is asked as seldom as it is told: its answer lists them all.
const MANY: u64 = 500;

/// Uploads that get on in less than this time are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many bytes are read at once.
const CHUNK: usize = 1 << 20;

/// The flags of `s3mount flush`.
#[derive(Clone, Debug, clap::Args)]
pub struct FlushArgs {
    /// Folder where the bucket is mounted.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// The flags of `s3mount pending`.
#[derive(Clone, Debug, clap::Args)]
pub struct PendingArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Show the files that wait, and why the store has refused some.
    List {
        /// Folder of --write-behind, or folder where the bucket is mounted.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Print JSON: one object on one line for each file.
        #[arg(long)]
        json: bool,
    },
    /// Have refused files uploaded again: now, or by the next mount.
    Retry(Chosen),
    /// Give refused files up. Their bytes are gone.
    Drop(Chosen),
    /// Write the bytes of a file to another place. The file waits on.
    Save {
        /// Folder of --write-behind.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Number of the file, as `list` shows it.
        #[arg(value_name = "NUMBER")]
        id: u64,
        /// File to make.
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
}

/// Files that wait.
#[derive(Clone, Debug, clap::Args)]
struct Chosen {
    /// Folder of --write-behind, or folder where the bucket is mounted.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Numbers of the files, as `list` shows them.
    #[arg(value_name = "NUMBER", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<u64>,
    /// All files that were refused.
    #[arg(long)]
    all: bool,
}

/// `.s3mount/pending` of a mount.
#[derive(Debug, Deserialize)]
struct Pending {
    /// The daemon.
    pid: u32,
    files: u64,
    bytes: u64,
    failed: u64,
    /// What the disk of the folder has not as it was given.
    damage: Vec<String>,
    waiting: Vec<PendingFile>,
}

/// A file that waits.
#[derive(Debug, Deserialize, serde::Serialize)]
struct PendingFile {
    id: u64,
    key: String,
    bytes: u64,
    failed: Option<String>,
}

impl From<&Waiting> for PendingFile {
    fn from(waiting: &Waiting) -> Self {
        let Waiting { id, entry, size, failed, .. } = waiting;
        Self { id: id.0, key: entry.key.clone(), bytes: *size, failed: failed.clone() }
    }
}

/// What is left when all was uploaded that could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// The daemon.
    pub pid: u32,
    /// Files that can't be uploaded now.
    pub files: u64,
    /// Files that the store refuses.
    pub failed: u64,
}

/// A number of files.
fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

impl LeftBehind {
    /// What is left, and what becomes of it, if anything is.
    pub fn text(&self) -> Option<String> {
        let waits = (self.files > 0).then(|| {
            let waiting = files(self.files);
            format!(
                "{waiting} can't be uploaded now (the next mount with this folder of --write-behind goes on)"
            )
        });
        let refused = (self.failed > 0).then(|| {
            format!("the store has refused {} (`s3mount pending` on that folder decides)", files(self.failed))
        });
        let parts: Vec<String> = waits.into_iter().chain(refused).collect();
        (!parts.is_empty()).then(|| parts.join(", and "))
    }
}

fn control(mount: &Path) -> PathBuf {
    mount.join(".s3mount/pending")
}

/// What waits in a mount; `None` where it has no write-behind.
fn of_mount(mount: &Path) -> anyhow::Result<Option<Pending>> {
    let path = control(mount);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text).context("the mount answers in an unknown way")?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", terminal::shown(&path))),
    }
}

fn tell(mount: &Path, word: &str) -> anyhow::Result<()> {
    let path = control(mount);
    let told = File::options().write(true).open(&path).and_then(|mut file| file.write_all(word.as_bytes()));
    told.with_context(|| format!("cannot write to {}", terminal::shown(&path)))
}

/// Has a mount upload what waits, and waits for that as long as it gets on. `None` where it has no write-behind.
///
/// # Errors
/// Where the mount does not answer, or lets only its owner ask.
pub fn upload(mount: &Path) -> anyhow::Result<Option<LeftBehind>> {
    let Some(mut last) = of_mount(mount)? else { return Ok(None) };
    if last.files > 0 {
        let bytes = HumanBytes(last.bytes);
        terminal::notice(&format!("uploading {} ({bytes})", files(last.files)));
    }
    let (mut moved, mut told) = (Instant::now(), None::<Instant>);
    while last.files > 0 && moved.elapsed() < PATIENCE {
        if told.is_none_or(|told| told.elapsed() >= HURRY) {
            tell(mount, "upload\n")?;
            told = Some(Instant::now());
        }
        std::thread::sleep(if last.files > MANY { HURRY } else { PAUSE });
        let Some(now) = of_mount(mount)? else { break };
        if now.files != last.files {
            moved = Instant::now();
        }
        last = now;
    }
    Ok(Some(LeftBehind { pid: last.pid, files: last.files, failed: last.failed }))
}

/// Uploads what waits.
///
/// # Errors
/// Where something is left.
pub fn flush(args: &FlushArgs) -> anyhow::Result<()> {
    let shown = terminal::shown(&args.dir);
    let Some(left) = upload(&args.dir)? else {
        bail!("{shown} is no mount with --write-behind, or the mount is another user's: nothing waits there")
    };
    ensure!(
        left.files == 0,
        "{} can't be uploaded now; what waits is uploaded later, and the log of the mount says why",
        files(left.files)
    );
    ensure!(
        left.failed == 0,
        "the store has refused {}: `s3mount pending list {shown}` says why",
        files(left.failed)
    );
    Ok(())
}

/// Shows what waits, or decides on it.
///
/// # Errors
/// Where the folder has no such file, or can't be read.
pub fn run(args: &PendingArgs) -> anyhow::Result<()> {
    match &args.what {
        What::List { dir, json } => list(dir, *json),
        What::Retry(chosen) => decide(chosen, "retry"),
        What::Drop(chosen) => decide(chosen, "drop"),
        What::Save { dir, id, to } => save(dir, *id, to),
    }
}

/// What waits in the folder of `--write-behind`.
fn of_folder(dir: &Path) -> anyhow::Result<Looked> {
    let shown = terminal::shown(dir);
    let disk = FolderDisk::look(dir).with_context(|| format!("cannot open {shown}"))?;
    let is_outbox = dir.join("store").exists() || !disk.segments()?.is_empty();
    ensure!(is_outbox, "{shown} is neither a folder of --write-behind nor a mount with one");
    look(&disk).with_context(|| format!("cannot read what waits in {shown}"))
}

fn list(dir: &Path, json: bool) -> anyhow::Result<()> {
    let (files, damage): (Vec<PendingFile>, Vec<String>) = match of_mount(dir)? {
        Some(pending) => (pending.waiting, pending.damage),
        None => {
            let Looked { waiting, damage } = of_folder(dir)?;
            let damage = damage.iter().map(ToString::to_string).collect();
            (waiting.iter().map(PendingFile::from).collect(), damage)
        }
    };
    for file in &files {
        let PendingFile { id, key, bytes, failed } = file;
        let is_read = if json {
            terminal::json(file)?
        } else {
            let why = failed.as_deref().map(|why| format!("  refused: {}", plain(why))).unwrap_or_default();
            writeln!(io::stdout(), "{id:>8}  {:>10}  {}{why}", HumanBytes(*bytes).to_string(), plain(key))
                .is_ok()
        };
        if !is_read {
            break;
        }
    }
    ensure!(
        damage.is_empty(),
        "the disk of {} is damaged:\n{}",
        terminal::shown(dir),
        damage.iter().map(|damage| plain(damage).to_string()).collect::<Vec<_>>().join("\n")
    );
    Ok(())
}

fn decide(chosen: &Chosen, word: &str) -> anyhow::Result<()> {
    let dir = &chosen.dir;
    let (known, mount) = match of_mount(dir)? {
        Some(pending) => (pending.waiting, true),
        None => (of_folder(dir)?.waiting.iter().map(PendingFile::from).collect::<Vec<_>>(), false),
    };
    let known: BTreeMap<u64, PendingFile> = known.into_iter().map(|file| (file.id, file)).collect();
    let refused = known.values().filter(|file| file.failed.is_some()).map(|file| file.id);
    let ids: BTreeSet<u64> =
        if chosen.all { refused.collect() } else { chosen.ids.iter().copied().collect() };
    for id in &ids {
        let file =
            known.get(id).with_context(|| format!("no file {id} waits in {}", terminal::shown(dir)))?;
        ensure!(
            file.failed.is_some(),
            "file {id} ({}) was not refused: it is uploaded as soon as the store can be reached",
            plain(&file.key)
        );
    }
    if word == "retry" {
        check_names(&known, &ids)?;
    }
    if mount {
        return ids.iter().try_for_each(|id| tell(dir, &format!("{word} {id}\n")));
    }
    let disk = match FolderDisk::take(dir) {
        Ok(disk) => disk,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            bail!("a mount uses {}: name the folder where it is mounted", terminal::shown(dir))
        }
        Err(error) => return Err(error.into()),
    };
    // Nothing is put there, only said.
    let limits = Limits { bytes: u64::MAX, entries: usize::MAX, segment_bytes: CHUNK as u64 };
    let (outbox, waiting) = Outbox::open(Arc::new(disk), limits)?;
    for Waiting { id, .. } in waiting.iter().filter(|waiting| ids.contains(&waiting.id.0)) {
        if word == "drop" { outbox.done(*id) } else { outbox.retry(*id) }
    }
    Ok(outbox.commit_now()?)
}

/// Whether each name has one file alone that is uploaded: of two, the later one would find the other's version.
fn check_names(known: &BTreeMap<u64, PendingFile>, ids: &BTreeSet<u64>) -> anyhow::Result<()> {
    let waiting = known.values().filter(|file| file.failed.is_none() || ids.contains(&file.id));
    let mut names = HashMap::new();
    for PendingFile { id, key, .. } in waiting {
        if let Some(other) = names.insert(key, id) {
            let key = plain(key);
            bail!(
                "files {other} and {id} have one name ({key}): `save` the bytes of one of them elsewhere, or `drop` it"
            );
        }
    }
    Ok(())
}

fn save(dir: &Path, id: u64, to: &Path) -> anyhow::Result<()> {
    ensure!(
        of_mount(dir)?.is_none(),
        "{} is a mount; name its folder of --write-behind, where the bytes are",
        terminal::shown(dir)
    );
    let Looked { waiting, .. } = of_folder(dir)?;
    let found = waiting.iter().find(|waiting| waiting.id.0 == id);
    let bytes = &found.with_context(|| format!("no file {id} waits in {}", terminal::shown(dir)))?.bytes;
    let cannot = || format!("cannot write {}", terminal::shown(to));
    let mut file = File::options().write(true).create_new(true).open(to).with_context(cannot)?;
    let mut at = 0;
    while at < bytes.size() {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(bytes.size() - at).unwrap_or(CHUNK))];
        bytes.read(at, &mut chunk).context("cannot read the file's bytes")?;
        file.write_all(&chunk).with_context(cannot)?;
        at += chunk.len() as u64;
    }
    file.sync_all().with_context(cannot)
}
