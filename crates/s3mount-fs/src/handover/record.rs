//! What the records say, and their form.

use bytes::{Buf as _, BufMut as _};

use super::error::HandoverError;
use super::fields::{put_text, text};
use crate::numbers::{FileHandle, InodeNo, RequestId};
use s3mount_names::FolderNote;

pub(crate) use super::beside::{AppendRecord, ModeRecord, RepeatedRecord};

/// An inode that the kernel knows, for the next daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) parent: InodeNo,
    pub(crate) name: Box<str>,
    /// Whether look-ups of the name return this inode.
    pub(crate) is_newest: bool,
    pub(crate) node: KnownNode,
}

/// What such an inode refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownNode {
    Folder,
    Version {
        etag: Box<str>,
        size: u64,
        /// Milliseconds since 1970, or before.
        modified: i64,
        /// Whether this mount has written it around the kernel's page cache, and it was not opened since.
        may_have_old_pages: bool,
    },
    /// A file that is being written.
    Draft {
        /// The version that the store has of the file, if any.
        stored: Option<StoredVersion>,
        /// Whether that has all of the file's bytes. Others are lost with the daemon.
        is_saved: bool,
    },
}

/// A version that the store has of a file that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredVersion {
    pub(crate) etag: Box<str>,
    pub(crate) size: u64,
    /// Milliseconds since 1970, or before.
    pub(crate) modified: i64,
}

/// An open file, for the next daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenRecord {
    pub(crate) ino: InodeNo,
    pub(crate) as_what: OpenAs,
    pub(crate) asked: Asked,
}

impl OpenRecord {
    /// Of a file that is only read, or whose request need not be known.
    pub(crate) fn new(ino: InodeNo, as_what: OpenAs) -> Self {
        Self { ino, as_what, asked: Asked::default() }
    }
}

/// The request that has opened a file to write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) request: RequestId,
    pub(crate) thread: u32,
}

/// How it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenAs {
    /// One of the daemon's own files.
    Own,
    /// A version, through the daemon.
    Object {
        /// Whether it is read around the page cache.
        is_direct: bool,
    },
    /// A version that the kernel reads by itself, from the file that it knows by this number, once it has it.
    Passthrough(Option<u32>),
    Draft(DraftHandle),
    /// A draft whose bytes were lost with the daemon that had them. Its program has yet to be told.
    Lost,
}

/// How a draft is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DraftHandle {
    /// Whether the handle may write.
    pub(crate) writes: bool,
    /// Whether all bytes go to the end.
    pub(crate) appends: bool,
    /// Whether the draft counts it among its writers: it may write, or has made or emptied the file.
    pub(crate) is_writer: bool,
    /// Whether it uses the kernel's page cache.
    pub(crate) is_cached: bool,
}

/// An open directory, for the next daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenFolderRecord {
    pub(crate) ino: InodeNo,
    /// How many names were read before the last answer, without `.` and `..`.
    pub(crate) read: u64,
    /// The greatest key among them.
    pub(crate) behind: Box<str>,
    /// Names up to the last key of the last answer that were not read: a folder of the same name may follow.
    pub(crate) owed: Vec<String>,
    /// The keys of the last answer. The kernel may go on behind any of them, or ask for all of them again.
    pub(crate) given: Vec<String>,
}

impl OpenFolderRecord {
    /// A directory of which nothing was read.
    pub(crate) fn new(ino: InodeNo) -> Self {
        Self { ino, read: 0, behind: Box::default(), owed: Vec::new(), given: Vec::new() }
    }
}

/// A folder that may hold no object: only the mount knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalFolderRecord {
    pub(crate) prefix: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) note: FolderNote,
}

/// What the next daemon needs to go on with a draft. It counts while the draft is not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpoolRecord {
    pub(crate) changes: Changes,
    /// Whether a program was told that its changes are safe, which are not published.
    pub(crate) is_said: bool,
    /// The threads that have written it last, each with the handle that it has used.
    pub(crate) threads: Vec<(FileHandle, u32)>,
    /// The last handles that have made the file, or emptied it.
    pub(crate) emptied: Vec<FileHandle>,
    /// Records of ranges with a smaller number do not count.
    pub(crate) first_range: u64,
    /// Ranges of the file that count, beside those that have a record.
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// What a draft has that the store has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Nothing: it is a new file without bytes, or about to change.
    #[default]
    None,
    /// Its bytes are in a file of the spool, or else among the first `base_bytes` of its version, or else zeros.
    InFile { file: u64, base_bytes: u64, size: u64 },
}

/// Bytes of a draft that its file of the spool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    pub(crate) ino: InodeNo,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One record that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// What the session with the kernel has agreed on, in the form of the crate that serves the kernel.
    Session(Vec<u8>),
    /// The settings that the first daemon has read from a file, as it has read them.
    Settings(Vec<u8>),
    /// The region of the bucket: the next daemon need not ask the store for it.
    Region(Box<str>),
    Node(InodeNo, NodeRecord),
    Open(FileHandle, OpenRecord),
    OpenFolder(FileHandle, OpenFolderRecord),
    LocalFolder(LocalFolderRecord),
    Spool(InodeNo, SpoolRecord),
    SpoolRange(u64, RangeRecord),
    Append(AppendRecord),
    /// By the number of the thread.
    Repeated(u32, RepeatedRecord),
    /// What a version is known by that this mount has written.
    Written(u64, u64),
    Mode(ModeRecord),
}

/// The kinds of records.
pub(super) const SESSION: u8 = 1;
pub(super) const NODE: u8 = 2;
pub(super) const OPEN: u8 = 3;
pub(super) const OPEN_FOLDER: u8 = 4;
pub(super) const LOCAL_FOLDER: u8 = 5;
pub(super) const SETTINGS: u8 = 6;
pub(super) const SPOOL: u8 = 7;
pub(super) const SPOOL_RANGE: u8 = 8;
pub(super) const APPEND: u8 = 9;
pub(super) const REPEATED: u8 = 10;
pub(super) const WRITTEN: u8 = 11;
pub(super) const MODE: u8 = 12;
pub(super) const REGION: u8 = 13;

const FOLDER: u8 = 0;
const VERSION: u8 = 1;
const DRAFT: u8 = 2;
const STORED_DRAFT: u8 = 3;

const OWN: u8 = 0;
const OBJECT: u8 = 1;
const PASSTHROUGH: u8 = 2;
const OPEN_DRAFT: u8 = 3;
const OPEN_LOST: u8 = 4;

const UNCHANGED: u8 = 0;
const IN_FILE: u8 = 1;

impl NodeRecord {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.name.len());
        let kind = match &self.node {
            KnownNode::Folder => FOLDER,
            KnownNode::Version { .. } => VERSION,
            KnownNode::Draft { stored: None, .. } => DRAFT,
            KnownNode::Draft { stored: Some(_), .. } => STORED_DRAFT,
        };
        bytes.put_u8(kind);
        bytes.put_u8(self.is_newest.into());
        bytes.put_u64_le(self.parent.0);
        put_text(&mut bytes, &self.name);
        match &self.node {
            KnownNode::Version { etag, size, modified, may_have_old_pages } => {
                bytes.put_u64_le(*size);
                bytes.put_i64_le(*modified);
                bytes.put_u8((*may_have_old_pages).into());
                put_text(&mut bytes, etag);
            }
            KnownNode::Draft { stored: Some(StoredVersion { etag, size, modified }), is_saved } => {
                bytes.put_u64_le(*size);
                bytes.put_i64_le(*modified);
                bytes.put_u8((*is_saved).into());
                put_text(&mut bytes, etag);
            }
            KnownNode::Folder | KnownNode::Draft { stored: None, .. } => {}
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let bytes = &mut bytes;
        let (kind, is_newest) = (bytes.try_get_u8()?, bytes.try_get_u8()? != 0);
        let (parent, name) = (InodeNo(bytes.try_get_u64_le()?), text(bytes)?);
        let node = match kind {
            FOLDER => KnownNode::Folder,
            VERSION => {
                let (size, modified) = (bytes.try_get_u64_le()?, bytes.try_get_i64_le()?);
                let may_have_old_pages = bytes.try_get_u8()? != 0;
                KnownNode::Version { etag: text(bytes)?, size, modified, may_have_old_pages }
            }
            DRAFT => KnownNode::Draft { stored: None, is_saved: false },
            STORED_DRAFT => {
                let (size, modified) = (bytes.try_get_u64_le()?, bytes.try_get_i64_le()?);
                let is_saved = bytes.try_get_u8()? != 0;
                KnownNode::Draft {
                    stored: Some(StoredVersion { etag: text(bytes)?, size, modified }),
                    is_saved,
                }
            }
            _ => return Err(HandoverError::NoRecord),
        };
        Ok(Self { parent, name, is_newest, node })
    }
}

impl OpenRecord {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.put_u64_le(self.ino.0);
        bytes.put_u64_le(self.asked.request.0);
        bytes.put_u32_le(self.asked.thread);
        match self.as_what {
            OpenAs::Own => bytes.put_u8(OWN),
            OpenAs::Object { is_direct } => bytes.put_slice(&[OBJECT, is_direct.into()]),
            OpenAs::Passthrough(backing) => {
                bytes.put_u8(PASSTHROUGH);
                bytes.put_u64_le(backing.map_or(u64::MAX, u64::from));
            }
            OpenAs::Lost => bytes.put_u8(OPEN_LOST),
            OpenAs::Draft(DraftHandle { writes, appends, is_writer, is_cached }) => {
                bytes.put_slice(&[
                    OPEN_DRAFT,
                    writes.into(),
                    appends.into(),
                    is_writer.into(),
                    is_cached.into(),
                ]);
            }
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let ino = InodeNo(bytes.try_get_u64_le()?);
        let asked = Asked { request: RequestId(bytes.try_get_u64_le()?), thread: bytes.try_get_u32_le()? };
        let as_what = match bytes.try_get_u8()? {
            OWN => OpenAs::Own,
            OBJECT => OpenAs::Object { is_direct: bytes.try_get_u8()? != 0 },
            PASSTHROUGH => OpenAs::Passthrough(u32::try_from(bytes.try_get_u64_le()?).ok()),
            OPEN_LOST => OpenAs::Lost,
            OPEN_DRAFT => OpenAs::Draft(DraftHandle {
                writes: bytes.try_get_u8()? != 0,
                appends: bytes.try_get_u8()? != 0,
                is_writer: bytes.try_get_u8()? != 0,
                is_cached: bytes.try_get_u8()? != 0,
            }),
            _ => return Err(HandoverError::NoRecord),
        };
        Ok(Self { ino, as_what, asked })
    }
}

impl OpenFolderRecord {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(22 + self.behind.len());
        bytes.put_u64_le(self.ino.0);
        bytes.put_u64_le(self.read);
        put_text(&mut bytes, &self.behind);
        bytes.put_u32_le(self.owed.len() as u32);
        self.owed.iter().chain(&self.given).for_each(|name| put_text(&mut bytes, name));
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let (ino, read) = (InodeNo(bytes.try_get_u64_le()?), bytes.try_get_u64_le()?);
        let (behind, count) = (text(&mut bytes)?, bytes.try_get_u32_le()?);
        let owed = (0..count).map(|_| Ok(text(&mut bytes)?.into())).collect::<Result<_, HandoverError>>()?;
        let mut given = Vec::new();
        while !bytes.is_empty() {
            given.push(text(&mut bytes)?.into());
        }
        Ok(Self { ino, read, behind, owed, given })
    }
}

impl LocalFolderRecord {
    pub(super) fn bytes(prefix: &str, name: &str, note: FolderNote) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + prefix.len() + name.len());
        bytes.put_u8((note == FolderNote::Made).into());
        put_text(&mut bytes, prefix);
        put_text(&mut bytes, name);
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let bytes = &mut bytes;
        let note = if bytes.try_get_u8()? != 0 { FolderNote::Made } else { FolderNote::Emptied };
        Ok(Self { prefix: text(bytes)?, name: text(bytes)?, note })
    }
}

impl SpoolRecord {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 16 * self.ranges.len());
        match self.changes {
            Changes::None => bytes.put_u8(UNCHANGED),
            Changes::InFile { file, base_bytes, size } => {
                bytes.put_u8(IN_FILE);
                [file, base_bytes, size].iter().for_each(|number| bytes.put_u64_le(*number));
            }
        }
        bytes.put_slice(&[self.is_said.into(), self.threads.len() as u8, self.emptied.len() as u8]);
        for (handle, thread) in &self.threads {
            bytes.put_u64_le(handle.0);
            bytes.put_u32_le(*thread);
        }
        self.emptied.iter().for_each(|handle| bytes.put_u64_le(handle.0));
        bytes.put_u64_le(self.first_range);
        for (start, end) in &self.ranges {
            bytes.put_u64_le(*start);
            bytes.put_u64_le(*end);
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let bytes = &mut bytes;
        let changes = match bytes.try_get_u8()? {
            UNCHANGED => Changes::None,
            IN_FILE => Changes::InFile {
                file: bytes.try_get_u64_le()?,
                base_bytes: bytes.try_get_u64_le()?,
                size: bytes.try_get_u64_le()?,
            },
            _ => return Err(HandoverError::NoRecord),
        };
        let (is_said, count, empties) = (bytes.try_get_u8()? != 0, bytes.try_get_u8()?, bytes.try_get_u8()?);
        let threads = (0..count).map(|_| Ok((FileHandle(bytes.try_get_u64_le()?), bytes.try_get_u32_le()?)));
        let threads = threads.collect::<Result<_, HandoverError>>()?;
        let emptied = (0..empties).map(|_| Ok(FileHandle(bytes.try_get_u64_le()?)));
        let emptied = emptied.collect::<Result<_, HandoverError>>()?;
        let first_range = bytes.try_get_u64_le()?;
        let mut ranges = Vec::new();
        while !bytes.is_empty() {
            ranges.push((bytes.try_get_u64_le()?, bytes.try_get_u64_le()?));
        }
        Ok(Self { changes, is_said, threads, emptied, first_range, ranges })
    }
}

impl RangeRecord {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        [self.ino.0, self.start, self.end].iter().for_each(|number| bytes.put_u64_le(*number));
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let mut number = || bytes.try_get_u64_le();
        Ok(Self { ino: InodeNo(number()?), start: number()?, end: number()? })
    }
}

impl Record {
    /// Reads a record of this kind and number.
    ///
    /// # Errors
    /// `NoRecord` for what no record says.
    pub(super) fn read((kind, id): (u8, u64), bytes: &[u8]) -> Result<Self, HandoverError> {
        Ok(match kind {
            SESSION => Record::Session(bytes.to_vec()),
            SETTINGS => Record::Settings(bytes.to_vec()),
            REGION => Record::Region(std::str::from_utf8(bytes).map_err(|_| HandoverError::NoRecord)?.into()),
            NODE => Record::Node(InodeNo(id), NodeRecord::read(bytes)?),
            OPEN => Record::Open(FileHandle(id), OpenRecord::read(bytes)?),
            OPEN_FOLDER => Record::OpenFolder(FileHandle(id), OpenFolderRecord::read(bytes)?),
            LOCAL_FOLDER => Record::LocalFolder(LocalFolderRecord::read(bytes)?),
            SPOOL => Record::Spool(InodeNo(id), SpoolRecord::read(bytes)?),
            SPOOL_RANGE => Record::SpoolRange(id, RangeRecord::read(bytes)?),
            APPEND => Record::Append(AppendRecord::read(bytes)?),
            WRITTEN => Record::Written(id, (&mut &*bytes).try_get_u64_le()?),
            MODE => Record::Mode(ModeRecord::read(bytes)?),
            REPEATED => {
                let thread = u32::try_from(id).map_err(|_| HandoverError::NoRecord)?;
                Record::Repeated(thread, RepeatedRecord::read(bytes)?)
            }
            _ => return Err(HandoverError::NoRecord),
        })
    }
}
