//! The form of a record: a head of fixed length, a text in JSON, and the bytes of a file.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `S3OB` |
//! | 4 | the kind |
//! | 8 | the number of the entry |
//! | 8 | the length of the text |
//! | 8 | the length of the bytes |
//! | 8 | the CRC-64/NVME of the bytes |
//! | 8 | up to where the file was durable when this was written |
//! | 8 | the CRC-64/NVME of the file's number, of the offset in it, of the head before, and of the text |
//!
//! All numbers are little-endian. A copy of a record that lies elsewhere, such as in the bytes of a file, is none.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use s3mount_object::{Condition, ObjectId};
use serde::{Deserialize, Serialize};

use crate::entry::{ConditionText, Entry, EntryId, EntryText, version, version_text};

/// How each record begins.
pub(crate) const MAGIC: [u8; 4] = *b"S3OB";

/// The length of the head.
pub(crate) const HEAD: usize = 56;

/// A text is never longer: a key of 1 KiB, 2 KiB of metadata, tags and headers, each byte written as six.
const MOST_TEXT: u64 = 1 << 20;

/// What a record says of its entry.
#[derive(Debug)]
pub(crate) enum Said {
    /// The entry begins, or begins anew elsewhere on the disk.
    Put(Box<EntryText>),
    /// The file has another key, and when it was given that.
    Moved { key: String, condition: Option<Condition>, leaves: Option<ObjectId>, named: u64 },
    /// All files below a prefix that wait have another one, and when they were given that.
    FolderMoved { from: String, to: String, named: u64 },
    /// The store is about to be told that the file is gone, or that another one has its name; or that was not done.
    Ending(bool),
    /// The entry is over.
    Done,
    /// The store does not take it.
    Failed(String),
    /// It is to be tried again.
    Retry,
    /// The entry never was: it may be on the disk, and was not taken. What it was to replace is there.
    Withdrawn,
    /// The file begins. The one before has this number, and ends there; it is durable.
    Begun { before: u64, end: u64 },
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The number of the file.
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// Head and text of a record that lies nowhere yet.
#[derive(Clone, Debug)]
pub(crate) struct Unplaced(Vec<u8>);

impl Unplaced {
    /// Their length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// They, as they are written at a place, in a file that is durable up to `synced`.
    pub(crate) fn at(&self, place: Place, synced: u64) -> Vec<u8> {
        let mut bytes = self.0.clone();
        bytes[SYNCED..SYNCED + 8].copy_from_slice(&synced.to_le_bytes());
        let sum = head_crc(place, &bytes[..SUM], &bytes[HEAD..]);
        bytes[SUM..HEAD].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// A record that was read, without the bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: EntryId,
    pub(crate) said: Said,
    /// How long the bytes are, and their CRC.
    pub(crate) size: u64,
    pub(crate) crc: u64,
}

#[derive(Serialize, Deserialize)]
struct MovedText {
    key: String,
    condition: Option<ConditionText>,
    leaves: Option<(String, String)>,
    named: u64,
}

#[derive(Serialize, Deserialize)]
struct FolderMovedText {
    from: String,
    to: String,
    named: u64,
}

/// The head of a record.
#[derive(Debug)]
pub(crate) struct Head {
    kind: u32,
    id: u64,
    pub(crate) text_len: usize,
    pub(crate) size: u64,
    crc: u64,
    /// Up to where the file was durable then.
    pub(crate) synced: u64,
    sum: u64,
}

/// Where in the head these numbers are.
const SYNCED: usize = 40;
const SUM: usize = 48;

fn crc(pieces: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

/// The CRC of the bytes of a file; that of no bytes is 0.
pub(crate) fn crc_of(pieces: &[Bytes]) -> u64 {
    let pieces: Vec<&[u8]> =
        pieces.iter().map(|piece| &piece[..]).filter(|piece| !piece.is_empty()).collect();
    if pieces.is_empty() { 0 } else { crc(&pieces) }
}

fn head_crc(place: Place, head: &[u8], text: &[u8]) -> u64 {
    crc(&[&place.segment.to_le_bytes(), &place.offset.to_le_bytes(), head, text])
}

/// Head and text of a record whose bytes have this length and this CRC.
fn encode(kind: u32, id: EntryId, text: &[u8], size: u64, bytes_crc: u64) -> Unplaced {
    let mut record = Vec::with_capacity(HEAD + text.len());
    record.extend_from_slice(&MAGIC);
    record.extend_from_slice(&kind.to_le_bytes());
    for number in [id.0, text.len() as u64, size, bytes_crc, 0, 0] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(text);
    Unplaced(record)
}

fn json(text: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(text).expect("texts have string keys")
}

/// A record that begins an entry, without the bytes.
pub(crate) fn put(id: EntryId, text: &EntryText, size: u64, bytes_crc: u64) -> Unplaced {
    encode(1, id, &json(text), size, bytes_crc)
}

/// A record that gives the file of an entry what `entry` says of its key. `named` is the number of that.
pub(crate) fn moved(id: EntryId, entry: &Entry, named: u64) -> Unplaced {
    let Entry { key, condition, leaves, .. } = entry;
    let condition = ConditionText::of(condition.as_ref());
    let text = MovedText { key: key.clone(), condition, leaves: leaves.as_ref().map(version_text), named };
    encode(2, id, &json(&text), 0, 0)
}

/// A record that gives all files below a prefix another one. `named` is the number of that.
pub(crate) fn folder_moved(from: &str, to: &str, named: u64) -> Unplaced {
    let text = FolderMovedText { from: from.to_owned(), to: to.to_owned(), named };
    encode(7, EntryId(named), &json(&text), 0, 0)
}

/// A record that says whether the store is about to be told that a file is gone.
pub(crate) fn ending(id: EntryId, is_ending: bool) -> Unplaced {
    encode(if is_ending { 8 } else { 9 }, id, &[], 0, 0)
}

/// A record that ends an entry.
pub(crate) fn done(id: EntryId) -> Unplaced {
    encode(3, id, &[], 0, 0)
}

/// A record that says why the store does not take an entry.
pub(crate) fn failed(id: EntryId, why: &str) -> Unplaced {
    encode(4, id, why.as_bytes(), 0, 0)
}

/// A record that has an entry tried again.
pub(crate) fn retry(id: EntryId) -> Unplaced {
    encode(5, id, &[], 0, 0)
}

/// A record that takes back the one that has begun an entry.
pub(crate) fn withdrawn(id: EntryId) -> Unplaced {
    encode(6, id, &[], 0, 0)
}

/// A record that begins a file, behind one that has this number and ends there.
pub(crate) fn begun(before: u64, end: u64) -> Unplaced {
    encode(10, EntryId(before), &[], 0, end)
}

impl Head {
    /// The head that these bytes are, if they are one.
    pub(crate) fn parse(bytes: &[u8; HEAD]) -> Option<Self> {
        if bytes[..4] != MAGIC {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let text_len = usize::try_from(number(16)).ok().filter(|len| *len as u64 <= MOST_TEXT)?;
        let kind = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let (size, crc, synced, sum) = (number(24), number(32), number(SYNCED), number(SUM));
        Some(Self { kind, id: number(8), text_len, size, crc, synced, sum })
    }

    /// The record, if the head and this text are as they were written at this place.
    pub(crate) fn record(&self, place: Place, head: &[u8; HEAD], text: &[u8]) -> Option<Record> {
        if head_crc(place, &head[..SUM], text) != self.sum {
            return None;
        }
        let said = match self.kind {
            1 => Said::Put(Box::new(serde_json::from_slice(text).ok()?)),
            2 => {
                let MovedText { key, condition, leaves, named } = serde_json::from_slice(text).ok()?;
                let (condition, leaves) = (condition.map(ConditionText::condition), leaves.map(version));
                Said::Moved { key, condition, leaves, named }
            }
            3 => Said::Done,
            4 => Said::Failed(String::from_utf8(text.to_vec()).ok()?),
            5 => Said::Retry,
            6 => Said::Withdrawn,
            7 => {
                let FolderMovedText { from, to, named } = serde_json::from_slice(text).ok()?;
                Said::FolderMoved { from, to, named }
            }
            8 => Said::Ending(true),
            9 => Said::Ending(false),
            10 => Said::Begun { before: self.id, end: self.crc },
            _ => return None,
        };
        Some(Record { id: EntryId(self.id), said, size: self.size, crc: self.crc })
    }
}
