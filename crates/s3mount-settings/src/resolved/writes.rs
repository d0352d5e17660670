//! What the flags say of writing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use s3mount_fs::Rights;
use s3mount_object::{Encryption, NewObject};
use s3mount_outbox::Limits;
use s3mount_write::SpoolConfig;

use super::journal;
use crate::flags::size::Size;
use crate::flags::writing::{Allow, UploadChecksums, WriteArgs};

const MIB: u64 = 1 << 20;

/// The most objects of a renamed folder, unless the flags say another number.
const DIR_RENAME_LIMIT: u32 = 10_000;

/// The share of the memory limit that files may take which are being written. Readers always have the rest.
const MEMORY_SHARE: u64 = 2;

/// The share of the memory limit for the bodies of requests under way whose pieces the client has to join.
const BODY_SHARE: u64 = 8;

/// The share of the memory limit for writes that wait for memory: up to 1 MiB of each waiting thread, as the kernel
/// has sent it.
const WAITING_SHARE: u64 = 8;

/// How files are written, if they may be.
#[derive(Clone, Debug)]
pub struct WriteConfig {
    /// What programs may do with files.
    pub rights: Rights,
    /// The size of a part of an upload.
    pub part_bytes: u64,
    /// The part of the memory limit that files may take which are being written.
    pub memory_bytes: u64,
    /// The part of the memory limit for bodies of requests whose pieces the client has to join.
    pub body_bytes: u64,
    /// Where files are kept that are not written from front to back, if anywhere.
    pub spool: Option<SpoolConfig>,
    /// Whether uploads have checksums.
    pub has_checksums: bool,
    /// Whether `fsync` makes an object of what was written.
    pub publishes_on_fsync: bool,
    /// The journal of uploads and folder renames.
    pub journal: JournalConfig,
    /// Whether new folders are objects.
    pub has_folder_markers: bool,
    /// Where closed files wait until the store has them, if anywhere.
    pub outbox: Option<OutboxConfig>,
    /// How long the object of a file waits for more that is appended.
    pub append_delay: Duration,
    /// What new objects have beside their bytes.
    pub object: NewObject,
}

impl WriteConfig {
    /// How many bytes of the memory limit are not the pool's.
    pub fn beside_pool(&self, memory_limit_bytes: u64) -> u64 {
        let outbox = self.outbox.as_ref().map_or(0, |outbox| outbox.limits.entries as u64 * FILE_BYTES);
        self.body_bytes + memory_limit_bytes / WAITING_SHARE + outbox
    }
}

/// Where closed files wait until the store has them.
#[derive(Clone, Debug)]
pub struct OutboxConfig {
    /// The folder.
    pub dir: PathBuf,
    /// How much of the disk they may take.
    pub limits: Limits,
}

/// Where the journal is.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The folder; unset if there is none for this user.
    pub dir: Option<PathBuf>,
    /// Whether the command line names it.
    pub is_named: bool,
}

/// Checks the flags.
pub(crate) fn writes(args: &WriteArgs, memory_limit_bytes: u64) -> anyhow::Result<Option<WriteConfig>> {
    if !args.allows_writes() {
        ensure!(
            args.write_behind.is_none(),
            "--write-behind is for files that are written: add --allow write, also to upload what a mount before has left"
        );
        return Ok(None);
    }
    let part = args.write_part_size;
    ensure!(
        (5 * MIB..=64 * MIB).contains(&part.0),
        "--write-part-size {part} is not between 5MiB and 64MiB; leave it out for 8MiB"
    );
    let memory_bytes = memory_limit_bytes / MEMORY_SHARE;
    ensure!(
        part.0 * 2 <= memory_bytes,
        "--write-part-size {part} is too large for the memory: two parts must fit half of --memory-limit {}",
        Size(memory_limit_bytes)
    );
    let spool = args.write_spool.as_deref().map(|dir| spool(dir, args.max_spool_size)).transpose()?;
    let outbox = |dir: &Path| outbox(dir, args.max_write_behind_size, part, memory_limit_bytes);
    let outbox = args.write_behind.as_deref().map(outbox).transpose()?;
    ensure!(
        outbox.is_none() || !args.keep_attributes,
        "--write-behind does not keep the attributes of --keep-attributes when the daemon is killed; leave one of them out"
    );
    let encryption = args
        .sse
        .as_ref()
        .map(|method| Encryption { method: method.clone(), kms_key_id: args.sse_kms_key_id.clone() });
    ensure!(
        args.dir_rename_limit.is_none() || args.allows(Allow::Rename),
        "--dir-rename-limit needs --allow rename: without it no folder with objects is renamed"
    );
    let limit =
        if args.allows(Allow::Rename) { args.dir_rename_limit.unwrap_or(DIR_RENAME_LIMIT) } else { 0 };
    Ok(Some(WriteConfig {
        rights: Rights {
            may_delete: args.allows(Allow::Delete),
            may_overwrite: args.allows(Allow::Overwrite),
            folder_rename_limit: usize::try_from(limit).unwrap_or(usize::MAX),
        },
        part_bytes: part.0,
        memory_bytes,
        body_bytes: memory_limit_bytes / BODY_SHARE,
        spool,
        has_checksums: args.upload_checksums == UploadChecksums::Crc64nvme,
        outbox,
        append_delay: args.append_delay.0,
        publishes_on_fsync: args.fsync_publish,
        journal: JournalConfig {
            is_named: args.journal.journal.is_some(),
            dir: journal::dir(&args.journal).ok(),
        },
        has_folder_markers: args.folder_markers,
        object: NewObject {
            content_type: content_type(&args.content_type)?,
            storage_class: args.storage_class.clone(),
            encryption,
            ..NewObject::default()
        },
    }))
}

/// The media type of all new objects; `None` if it goes by their names.
fn content_type(named: &str) -> anyhow::Result<Option<String>> {
    let is_type = named.split_once('/').is_some_and(|(kind, rest)| {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_word(kind) && rest.split("; ").all(is_word)
    });
    ensure!(
        named == "auto" || is_type,
        "--content-type {named:?} is not a media type; write one such as application/octet-stream, or auto"
    );
    Ok((named != "auto").then(|| named.to_owned()))
}

/// How many files may wait, however much memory there is.
const MOST_WAITING: u64 = 16_384;

/// The share of the memory limit for what is known of files that wait.
const OUTBOX_SHARE: u64 = 16;

/// What is known of a file that waits takes up to this, in bytes: 16,000 files took 8 to 12 KiB each.
const FILE_BYTES: u64 = 12 << 10;

/// How many parts have room in a file of the outbox.
const PARTS_IN_SEGMENT: u64 = 4;

/// How many files of the outbox there are at least, so that one is not full of what is over.
const LEAST_SEGMENTS: u64 = 2;

/// Checks the folder in which closed files wait.
fn outbox(dir: &Path, size: Size, part: Size, memory_limit_bytes: u64) -> anyhow::Result<OutboxConfig> {
    let dir = writable_folder("--write-behind", dir)?;
    let segment_bytes = part.0 * PARTS_IN_SEGMENT;
    let least = Size(segment_bytes * LEAST_SEGMENTS);
    ensure!(
        size.0 >= least.0,
        "--max-write-behind-size {size} is too small: parts of {part} need {least} at least"
    );
    let entries = MOST_WAITING.min(memory_limit_bytes / OUTBOX_SHARE / FILE_BYTES);
    let entries = usize::try_from(entries).unwrap_or(usize::MAX);
    Ok(OutboxConfig { dir, limits: Limits { bytes: size.0, entries, segment_bytes } })
}

fn spool(dir: &Path, size: Size) -> anyhow::Result<SpoolConfig> {
    Ok(SpoolConfig::in_directory(&writable_folder("--write-spool", dir)?, size.0))
}

/// The folder of a flag, in which files can be made.
fn writable_folder(flag: &str, dir: &Path) -> anyhow::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    let shown = dir.display();
    ensure!(dir.is_dir(), "{flag} {shown} is not a folder; make it, or name another");
    tempfile::tempfile_in(&dir)
        .with_context(|| format!("{flag} {shown} can't be written to; name a folder of yours"))?;
    Ok(dir)
}
