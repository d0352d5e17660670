//! What a daemon leaves to the one that takes over from it: what the kernel was given, and still has.
//!
//! The kernel keeps a mount for as long as any process holds its `/dev/fuse`, and with it every inode, every open file
//! and the pages of its cache. It never tells a daemon what it keeps. So each of these is noted in a file in memory,
//! which outlives the daemon, before the answer that gives it to the kernel is sent:
//!
//! - open files and open directories ([`OpenRecord`], [`OpenFolderRecord`]);
//! - directories, because a working directory can't be looked up again;
//! - folders that may hold no object, which no listing shows;
//! - files that are open, those that were looked up last, and those whose number is not the one that a look-up would give
//!   them ([`NodeRecord`]);
//! - what of files that are being written lies in the spool ([`SpoolRecord`](record::SpoolRecord));
//! - the versions that this mount has written last, and who may run files;
//! - opens that the kernel was told to repeat ([`RepeatedRecord`]);
//! - the settings that were read from a file, which may be another one by then.
//!
//! All other files need no record. Their numbers are keyed hashes of what they stand for ([`Numbers`]), so the kernel
//! looks the name up again and gets the number that it knows, and its pages stay.
//!
//! - [`beside`]: records of what is neither an inode nor open;
//! - [`drafts`]: notes of files that are being written;
//! - [`error`]: why it can't be taken over;
//! - [`fields`]: texts in records;
//! - [`left`]: what the daemon before has left;
//! - [`log`]: the file;
//! - [`record`]: what the records say;
//! - [`spooled`]: files that are being written and that the next daemon goes on with.

mod beside;
mod drafts;
mod error;
mod fields;
mod left;
mod log;
pub(crate) mod record;
pub(crate) mod spooled;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use s3mount_object::ObjectId;
use s3mount_write::WrittenNotes;
use sha2::{Digest as _, Sha256};

pub use self::error::HandoverError;
pub use self::left::Left;
use self::log::{Key, Log, Said};
use self::record::{
    APPEND, AppendRecord, KnownNode, LOCAL_FOLDER, LocalFolderRecord, MODE, ModeRecord, NODE, NodeRecord,
    OPEN, OPEN_FOLDER, OpenAs, OpenFolderRecord, OpenRecord, REGION, REPEATED, Record, RepeatedRecord,
    SESSION, SETTINGS, WRITTEN,
};
pub use self::spooled::SpoolKeeper;
use self::spooled::Spooled;
use crate::attributes::modes::Mode;
use crate::numbers::{FIRST_FREE, FileHandle, InodeNo, ROOT, RequestId};
use crate::sync::{Mutex, MutexGuard, lock};
use s3mount_names::FolderNote;

/// The most directories that have a record, the most folders without objects that have one, and the most files that have
/// one without being open.
const MOST_NODES: usize = 100_000;

/// The last requests that append have a record. So many have no answer at no moment.
const MOST_APPENDS: u64 = 1024;

/// The numbers of inodes: keyed hashes of what they stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers([u8; 16]);

impl Numbers {
    /// The number of a directory (no ETag) or of a version. `tries` counts the numbers that others have.
    pub(crate) fn of(self, parent: InodeNo, name: &str, etag: Option<&str>, tries: u32) -> InodeNo {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(tries.to_le_bytes());
        hash.update(parent.0.to_le_bytes());
        // A name has no slash, so no two pairs are one text.
        hash.update(name.as_bytes());
        if let Some(etag) = etag {
            hash.update(b"/");
            hash.update(etag.as_bytes());
        }
        let first = hash.finalize()[..8].try_into().unwrap_or_default();
        // No program takes an inode number for a negative one.
        InodeNo((u64::from_le_bytes(first) >> 1).max(FIRST_FREE.0))
    }
}

impl Numbers {
    /// What the marks of a mount's writes begin with.
    fn family(self) -> u32 {
        (self.of(ROOT, "", Some("marks"), 0).0 >> 16) as u32
    }
}

/// The last versions that this mount has written have a record, as many as the writer remembers for certain. They take a
/// megabyte.
const MOST_WRITTEN: u64 = 32_768;

/// The number of a record about a key, or about a folder.
fn number_of(text: &str) -> u64 {
    let hash = Sha256::digest(text);
    u64::from_le_bytes(hash[..8].try_into().unwrap_or_default())
}

/// The records, and how many there are of each kind.
#[derive(Debug)]
struct Records {
    log: Log,
    /// How often each inode is open.
    open: HashMap<InodeNo, usize>,
    folders: usize,
    /// Folders that may hold no object.
    local_folders: usize,
    /// Files that have a record, also open ones.
    files: usize,
    /// The kind of each node's record: whether it is a folder.
    nodes: HashMap<InodeNo, bool>,
    spooled: Spooled,
    /// The place of the next version that is noted as written.
    next_written: u64,
    /// A record could not be written: nothing is written any more.
    is_broken: bool,
}

/// Notes what the kernel was given, for the next daemon.
#[derive(Debug)]
pub struct Handover {
    records: Mutex<Records>,
    numbers: Numbers,
    first_handle: FileHandle,
    /// Requests that the daemon before had, and that have appended their bytes.
    appended: OnceLock<HashSet<RequestId>>,
    /// What the marks of the daemon's writes begin with that was there before.
    family_before: u32,
    keeper: OnceLock<Arc<dyn SpoolKeeper>>,
}

/// The log in `file`, how much it says, and its records.
fn read(file: File) -> Result<(Log, Said, Vec<Record>), HandoverError> {
    let mut records = Vec::new();
    let (log, said) = Log::open(file, |key, bytes| {
        records.push(Record::read(key, bytes)?);
        Ok(())
    })?;
    Ok((log, said, records))
}

impl Handover {
    /// Begins in an empty file. The numbers of inodes follow from `seed`.
    ///
    /// # Errors
    /// Those of writing to the file.
    pub fn create(file: File, seed: [u8; 16]) -> io::Result<Self> {
        Ok(Self::new(Log::create(file, seed)?, FileHandle(1)))
    }

    fn new(log: Log, first_handle: FileHandle) -> Self {
        let numbers = Numbers(log.seed());
        let records = Records {
            log,
            open: HashMap::new(),
            folders: 0,
            local_folders: 0,
            files: 0,
            nodes: HashMap::new(),
            spooled: Spooled::default(),
            next_written: 0,
            is_broken: false,
        };
        let (family_before, keeper, appended) = (numbers.family(), OnceLock::new(), OnceLock::new());
        Self { records: Mutex::new(records), numbers, first_handle, appended, family_before, keeper }
    }

    /// Takes over what the daemon before has left in `file`. `seed` is for numbers that have to be new ones.
    ///
    /// # Errors
    /// `OtherVersion`, `NoLog`, `NoRecord`, or those of reading the file. The file is unchanged then.
    pub fn open(file: File, seed: [u8; 16]) -> Result<(Self, Left), HandoverError> {
        let (mut log, said, mut records) = read(file)?;
        let family_before = Numbers(log.seed()).family();
        match said {
            Said::All => {}
            Said::Some => log.reseed(seed, true)?,
            Said::Nothing => {
                log.reseed(seed, false)?;
                // These were written first, and do not change.
                records.retain(|record| {
                    matches!(record, Record::Session(_) | Record::Settings(_) | Record::Region(_))
                });
            }
        }
        // The kernel may yet close handles that the daemon before has given, so no handle is used again.
        let first_handle = FileHandle(Numbers(seed).of(ROOT, "", None, 0).0);
        let handover = Self { family_before, ..Self::new(log, first_handle) };
        let mut counts = handover.lock();
        counts.spooled = Spooled::of(&records);
        for record in &records {
            match record {
                Record::Node(ino, node) => counts.count(*ino, Some(node.node == KnownNode::Folder)),
                Record::Open(_, OpenRecord { as_what: OpenAs::Own, .. }) => {}
                Record::Open(_, OpenRecord { ino, .. })
                | Record::OpenFolder(_, OpenFolderRecord { ino, .. }) => {
                    *counts.open.entry(*ino).or_default() += 1;
                }
                Record::LocalFolder(_) => counts.local_folders += 1,
                // The last of them is the one that was written last.
                Record::Written(place, _) => counts.next_written = (place + 1) % MOST_WRITTEN,
                Record::Session(_)
                | Record::Settings(_)
                | Record::Region(_)
                | Record::Spool(..)
                | Record::SpoolRange(..)
                | Record::Append(_)
                | Record::Repeated(..)
                | Record::Mode(_) => {}
            }
        }
        drop(counts);
        Ok((handover, Left { records, ..Left::default() }))
    }

    /// What a daemon that is alive leaves, if it ends now.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn look(file: File) -> Result<Left, HandoverError> {
        let (_, _, records) = read(file)?;
        Ok(Left { records, ..Left::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }

    /// The numbers of inodes.
    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// What the marks of this daemon's writes begin with.
    pub fn family(&self) -> u32 {
        self.numbers.family()
    }

    /// What the marks of the daemon's writes begin with that was there before.
    pub fn family_before(&self) -> u32 {
        self.family_before
    }

    /// The first handle of an open file, and of an open directory.
    pub(crate) fn first_handle(&self) -> FileHandle {
        self.first_handle
    }

    /// Notes what the session with the kernel has agreed on.
    pub fn set_session(&self, session: &[u8]) {
        self.lock().put((SESSION, 0), session);
    }

    /// Notes the settings that were read from a file.
    pub fn set_settings(&self, settings: &[u8]) {
        self.lock().put((SETTINGS, 0), settings);
    }

    /// Notes the region of the bucket.
    pub fn set_region(&self, region: &str) {
        self.lock().put((REGION, 0), region.as_bytes());
    }

    /// Whether a file of the inode is open.
    pub(crate) fn is_open(&self, ino: InodeNo) -> bool {
        self.lock().open.contains_key(&ino)
    }

    /// Whether an inode has a record.
    pub(crate) fn has_node(&self, ino: InodeNo) -> bool {
        self.lock().log.has((NODE, ino.0))
    }

    /// Notes what an inode refers to, or that it needs no record. One that `is_needed` by something open has a record
    /// in any case.
    pub(crate) fn set_node(&self, ino: InodeNo, node: Option<&NodeRecord>, is_needed: bool) {
        let mut records = self.lock();
        let is_folder = node.map(|node| node.node == KnownNode::Folder);
        let has_room =
            is_needed || records.nodes.contains_key(&ino) || records.has_room(is_folder == Some(true));
        let Some(node) = node.filter(|_| has_room) else {
            if is_folder == Some(false) {
                records.set_partial();
            }
            records.count(ino, None);
            return records.remove((NODE, ino.0));
        };
        records.count(ino, is_folder);
        records.put((NODE, ino.0), &node.bytes());
    }

    /// Notes an open file.
    pub(crate) fn set_open(&self, handle: FileHandle, open: &OpenRecord) {
        let mut records = self.lock();
        if open.as_what != OpenAs::Own {
            records.count_open((OPEN, handle.0), open.ino);
        }
        records.put((OPEN, handle.0), &open.bytes());
    }

    /// Notes that a file of `ino` is closed, or one of the daemon's own files.
    pub(crate) fn set_closed(&self, handle: FileHandle, ino: Option<InodeNo>) {
        self.lock().close((OPEN, handle.0), ino);
    }

    /// Notes an open directory, and how far it was read.
    pub(crate) fn set_open_folder(&self, handle: FileHandle, open: &OpenFolderRecord) {
        let mut records = self.lock();
        records.count_open((OPEN_FOLDER, handle.0), open.ino);
        records.put((OPEN_FOLDER, handle.0), &open.bytes());
    }

    /// Notes that a directory is closed.
    pub(crate) fn set_closed_folder(&self, handle: FileHandle, ino: InodeNo) {
        self.lock().close((OPEN_FOLDER, handle.0), Some(ino));
    }

    /// Notes a folder that may hold no object, or that it is none any more.
    pub(crate) fn set_local_folder(&self, prefix: &str, name: &str, note: Option<FolderNote>) {
        let mut records = self.lock();
        let key = (LOCAL_FOLDER, number_of(&format!("{prefix}/{name}")));
        let has_room = records.local_folders < MOST_NODES || records.log.has(key);
        let Some(note) = note.filter(|_| has_room) else {
            records.local_folders -= usize::from(records.log.has(key));
            return records.remove(key);
        };
        records.local_folders += usize::from(!records.log.has(key));
        records.put(key, &LocalFolderRecord::bytes(prefix, name, note));
    }

    /// Notes who may run a file, or that it is as others are. The last ones are forgotten last.
    pub(crate) fn set_mode(&self, key: &str, mode: Option<&Mode>) {
        let (mut records, number) = (self.lock(), (MODE, number_of(key)));
        match mode {
            Some(mode) => records.put_last(number, &ModeRecord::bytes(key, mode)),
            None => records.remove(number),
        }
    }

    /// Notes the name that a thread is to open once more, or that it has done so.
    pub(crate) fn set_repeated(&self, thread: u32, place: Option<(InodeNo, &str)>) {
        let record = place.map(|(parent, name)| RepeatedRecord::bytes(parent, name));
        self.lock().set((REPEATED, thread.into()), record);
    }

    /// Notes that a request is about to append bytes, which then end at the offset `end`.
    pub(crate) fn note_append(&self, id: RequestId, ino: InodeNo, end: u64) {
        // The kernel's numbers are even. A request that has its answer never comes again.
        let place = id.0 / 2 % MOST_APPENDS;
        self.lock().put((APPEND, place), &AppendRecord { id, ino, end }.bytes());
    }

    /// Notes which requests have appended their bytes before this daemon began. It can be set once.
    pub(crate) fn set_appended(&self, appended: HashSet<RequestId>) {
        // A second one changes nothing.
        let _ = self.appended.set(appended);
    }

    /// Whether there was a daemon before this one.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.appended.get().is_some()
    }

    /// Whether a request that comes again has appended its bytes.
    pub(crate) fn has_appended(&self, id: RequestId) -> bool {
        self.appended.get().is_some_and(|appended| appended.contains(&id))
    }

    /// The bytes of the records that count.
    pub fn bytes(&self) -> u64 {
        self.lock().log.live_bytes()
    }
}

impl WrittenNotes for Handover {
    fn hash(&self, version: &ObjectId) -> u64 {
        self.numbers.of(ROOT, version.key(), Some(version.etag().as_str()), 0).0
    }

    fn note(&self, hash: u64) {
        let mut records = self.lock();
        let place = records.next_written;
        records.next_written = (place + 1) % MOST_WRITTEN;
        records.put((WRITTEN, place), &hash.to_le_bytes());
    }
}

impl Records {
    /// Puts a record, or removes it.
    fn set(&mut self, key: Key, bytes: Option<Vec<u8>>) {
        match bytes {
            Some(bytes) => self.put(key, &bytes),
            None => self.remove(key),
        }
    }

    /// Counts the record of a node, or that it has none any more.
    fn count(&mut self, ino: InodeNo, is_folder: Option<bool>) {
        let before = match is_folder {
            Some(is_folder) => self.nodes.insert(ino, is_folder),
            None => self.nodes.remove(&ino),
        };
        match before {
            Some(true) => self.folders -= 1,
            Some(false) => self.files -= 1,
            None => {}
        }
        match is_folder {
            Some(true) => self.folders += 1,
            Some(false) => self.files += 1,
            None => {}
        }
    }

    /// Whether one more node may have a record.
    fn has_room(&self, is_folder: bool) -> bool {
        let count = if is_folder { self.folders } else { self.files.saturating_sub(self.open.len()) };
        count < MOST_NODES
    }

    /// Counts what is opened, unless it is counted already.
    fn count_open(&mut self, key: Key, ino: InodeNo) {
        if !self.log.has(key) {
            *self.open.entry(ino).or_default() += 1;
        }
    }

    fn close(&mut self, key: Key, ino: Option<InodeNo>) {
        if let Some(ino) = ino
            && let Some(count) = self.open.get_mut(&ino)
        {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
            }
        }
        self.remove(key);
    }

    fn put(&mut self, key: Key, bytes: &[u8]) {
        if !self.is_broken {
            let put = self.log.put(key, bytes);
            self.check(put);
        }
    }

    fn put_last(&mut self, key: Key, bytes: &[u8]) {
        if !self.is_broken {
            let put = self.log.put_last(key, bytes);
            self.check(put);
        }
    }

    fn remove(&mut self, key: Key) {
        if !self.is_broken {
            let removed = self.log.remove(key);
            self.check(removed);
        }
    }

    fn set_partial(&mut self) {
        if !self.is_broken {
            let set = self.log.set_partial();
            self.check(set);
        }
    }

    /// After an error, the next daemon must not believe what the log says.
    fn check(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        self.is_broken = true;
        let noted = self.log.set_broken();
        tracing::error!(
            %error,
            noted = noted.is_ok(),
            "the state of this mount can't be kept: should this daemon be killed, open files fail with EBADF"
        );
    }
}

#[cfg(test)]
mod tests;
