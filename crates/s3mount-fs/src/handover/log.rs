//! The file in which records are kept: a log of two halves.
//!
//! Records are appended to one half. When it is full of records that were replaced since, those that count are copied to
//! the other half, and one write makes that one count. A record that a killed process has not written to its end fails
//! its checksum, and ends the log: nobody was told of what it says. The file is one in memory, so all that was written
//! by a process that is gone can be read, in the order in which it was written.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::{Buf as _, BufMut as _};
use crc_fast::{CrcAlgorithm, checksum};
use rustix::fs::{FallocateFlags, fallocate};

use super::error::HandoverError;

/// The version of the file's form. A build reads its own version, and no other.
const VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"s3mount\0";

/// Bytes before the first half.
const HEADER_BYTES: u64 = 4096;

/// The bytes of a half. The file has holes, so it takes as much memory as was written.
pub(super) const HALF_BYTES: u64 = 64 << 20;

/// A half is cleaned up when it has this many bytes, or three times as many as count.
const LEAST_BYTES: u64 = 1 << 20;

/// The bytes of a record before its payload: its length, its checksum, its generation, its kind, and its number.
const FRAME_BYTES: usize = 24;

/// The most bytes that are copied at a time.
const COPIED_AT_ONCE: usize = 1 << 20;

/// What a record is about: its kind, and a number of that kind.
pub(super) type Key = (u8, u64);

/// The flag of a record that takes back the record before it.
const IS_REMOVED: u8 = 0x80;

#[derive(Clone, Copy, Debug)]
struct Header {
    /// Counts how often the halves have changed. The even ones lie in the first half.
    generation: u32,
    flags: u32,
    seed: [u8; 16],
}

/// Nothing in the file is to be trusted: a record could not be written.
const IS_BROKEN: u32 = 1;

/// Not every file that the kernel knows under another number than its own has a record.
const IS_PARTIAL: u32 = 2;

impl Header {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(44);
        bytes.put_slice(&MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u32_le(self.generation);
        bytes.put_u32_le(self.flags);
        bytes.put_slice(&self.seed);
        let sum = checksum(CrcAlgorithm::Crc64Nvme, &bytes);
        bytes.put_u64_le(sum);
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let sum = checksum(CrcAlgorithm::Crc64Nvme, &bytes[..bytes.len() - 8]);
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(HandoverError::NoLog);
        }
        bytes.advance(MAGIC.len());
        let version = bytes.get_u32_le();
        if version != VERSION {
            return Err(HandoverError::OtherVersion { found: version, known: VERSION });
        }
        let (generation, flags) = (bytes.get_u32_le(), bytes.get_u32_le());
        let mut seed = [0; 16];
        bytes.copy_to_slice(&mut seed);
        if bytes.get_u64_le() != sum {
            return Err(HandoverError::NoLog);
        }
        Ok(Self { generation, flags, seed })
    }

    /// Where its half begins.
    fn start(self) -> u64 {
        HEADER_BYTES + u64::from(self.generation % 2) * HALF_BYTES
    }
}

/// Where a record lies, how long it is, and its checksum.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    len: u32,
    sum: u32,
}

/// A log that is written.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    header: Header,
    /// Where the next record goes.
    end: u64,
    places: HashMap<Key, Place>,
    /// The bytes of the records that count.
    live: u64,
}

/// The checksum of a record, without its length and the checksum itself.
fn sum_of(record: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, record) as u32
}

/// A record, as it is written.
fn frame(generation: u32, (kind, id): Key, flag: u8, payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(FRAME_BYTES + payload.len());
    record.put_u32_le((FRAME_BYTES + payload.len()) as u32);
    record.put_u32_le(0);
    record.put_u32_le(generation);
    record.put_u8(kind | flag);
    record.put_bytes(0, 3);
    record.put_u64_le(id);
    record.put_slice(payload);
    let sum = sum_of(&record[8..]);
    record[4..8].copy_from_slice(&sum.to_le_bytes());
    record
}

impl Log {
    /// Begins an empty log in `file`.
    pub(super) fn create(file: File, seed: [u8; 16]) -> io::Result<Self> {
        file.set_len(HEADER_BYTES + 2 * HALF_BYTES)?;
        let header = Header { generation: 0, flags: 0, seed };
        file.write_all_at(&header.bytes(), 0)?;
        Ok(Self { file, header, end: header.start(), places: HashMap::new(), live: 0 })
    }

    /// Opens the log that another daemon has written, and passes each record that counts to `take`, in the order in which
    /// they were written. Whether the log says all.
    ///
    /// # Errors
    /// `OtherVersion` for that of a build that writes another form, `NoLog` for what is no log.
    pub(super) fn open(
        file: File,
        mut take: impl FnMut(Key, &[u8]) -> Result<(), HandoverError>,
    ) -> Result<(Self, Said), HandoverError> {
        let mut bytes = [0; 44];
        file.read_exact_at(&mut bytes, 0)?;
        let header = Header::read(&bytes)?;
        let mut log = Self { file, header, end: header.start(), places: HashMap::new(), live: 0 };
        let half = log.read_half()?;
        let mut rest = &half[..];
        while let Some((key, is_removed, record)) = first_record(rest, header.generation) {
            let place = Place { at: log.end, len: record.len() as u32, sum: sum_in(record) };
            log.note(key, (!is_removed).then_some(place));
            log.end += record.len() as u64;
            rest = &rest[record.len()..];
        }
        for (key, place) in log.in_order() {
            let from = (place.at - header.start()) as usize + FRAME_BYTES;
            take(key, &half[from..from + place.len as usize - FRAME_BYTES])?;
        }
        let said = match header.flags {
            flags if flags & IS_BROKEN != 0 => Said::Nothing,
            flags if flags & IS_PARTIAL != 0 => Said::Some,
            _ => Said::All,
        };
        Ok((log, said))
    }

    /// The bytes of the half that counts, up to its first hole.
    fn read_half(&self) -> io::Result<Vec<u8>> {
        let mut half = Vec::new();
        let (start, mut piece) = (self.header.start(), vec![0; COPIED_AT_ONCE]);
        while (half.len() as u64) < HALF_BYTES {
            self.file.read_exact_at(&mut piece, start + half.len() as u64)?;
            half.extend_from_slice(&piece);
            // A record is shorter than a piece, and no record begins with a zero.
            if piece.iter().rev().take(piece.len() / 2).all(|byte| *byte == 0) {
                break;
            }
        }
        Ok(half)
    }

    /// The seed of the numbers.
    pub(super) fn seed(&self) -> [u8; 16] {
        self.header.seed
    }

    /// Notes where the record of `key` lies now. Returns whether there was one.
    fn note(&mut self, key: Key, place: Option<Place>) -> bool {
        let before = match place {
            Some(place) => {
                self.live += u64::from(place.len);
                self.places.insert(key, place)
            }
            None => self.places.remove(&key),
        };
        self.live -= before.map_or(0, |before| u64::from(before.len));
        before.is_some()
    }

    /// The records that count, in the order in which they were written.
    fn in_order(&self) -> Vec<(Key, Place)> {
        let mut sorted: Vec<_> = self.places.iter().map(|(key, place)| (*key, *place)).collect();
        sorted.sort_unstable_by_key(|(_, place)| place.at);
        sorted
    }

    /// Whether there is a record of `key`.
    pub(super) fn has(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// How many bytes count.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live
    }

    /// Replaces the record of `key`. One that says the same stays where it is.
    pub(super) fn put(&mut self, key: Key, payload: &[u8]) -> io::Result<()> {
        let len = (FRAME_BYTES + payload.len()) as u32;
        let sum = sum_in(&frame(self.header.generation, key, 0, payload));
        if self.places.get(&key).is_some_and(|before| (before.len, before.sum) == (len, sum)) {
            return Ok(());
        }
        self.put_last(key, payload)
    }

    /// Replaces the record of `key`, and has it be the last, also if the one before says the same.
    pub(super) fn put_last(&mut self, key: Key, payload: &[u8]) -> io::Result<()> {
        let len = (FRAME_BYTES + payload.len()) as u32;
        let (at, sum) = self.append(key, 0, payload)?;
        self.note(key, Some(Place { at, len, sum }));
        Ok(())
    }

    /// Removes the record of `key`, if there is one.
    pub(super) fn remove(&mut self, key: Key) -> io::Result<()> {
        if self.note(key, None) {
            self.append(key, IS_REMOVED, &[])?;
        }
        Ok(())
    }

    /// Appends a record. Returns where it lies, and its checksum.
    fn append(&mut self, key: Key, flag: u8, payload: &[u8]) -> io::Result<(u64, u32)> {
        let len = (FRAME_BYTES + payload.len()) as u64;
        let used = self.end - self.header.start() + len;
        if used > LEAST_BYTES.max(self.live * 3).min(HALF_BYTES) {
            self.clean_up()?;
        }
        if self.end - self.header.start() + len > HALF_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (at, record) = (self.end, frame(self.header.generation, key, flag, payload));
        self.file.write_all_at(&record, at)?;
        self.end += len;
        Ok((at, sum_in(&record)))
    }

    /// Copies the records that count to the other half, and makes that one count.
    fn clean_up(&mut self) -> io::Result<()> {
        let old = self.header;
        let header = Header { generation: old.generation.wrapping_add(1), ..old };
        let sorted = self.in_order();
        let (mut places, mut end) = (HashMap::with_capacity(sorted.len()), header.start());
        let mut piece = Vec::with_capacity(COPIED_AT_ONCE);
        let mut written = end;
        for (key, place) in sorted {
            let mut payload = vec![0; place.len as usize - FRAME_BYTES];
            self.file.read_exact_at(&mut payload, place.at + FRAME_BYTES as u64)?;
            let record = frame(header.generation, key, 0, &payload);
            places.insert(key, Place { at: end, len: place.len, sum: sum_in(&record) });
            end += record.len() as u64;
            piece.extend_from_slice(&record);
            if piece.len() >= COPIED_AT_ONCE {
                self.file.write_all_at(&piece, written)?;
                written += piece.len() as u64;
                piece.clear();
            }
        }
        self.file.write_all_at(&piece, written)?;
        self.file.write_all_at(&header.bytes(), 0)?;
        (self.header, self.places, self.end) = (header, places, end);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, old.start(), HALF_BYTES)?)
    }

    /// Notes that the log does not say all of files with numbers that are not their own.
    pub(super) fn set_partial(&mut self) -> io::Result<()> {
        self.set_flag(IS_PARTIAL)
    }

    /// Notes that nothing in the log can be trusted.
    pub(super) fn set_broken(&mut self) -> io::Result<()> {
        self.set_flag(IS_BROKEN)
    }

    fn set_flag(&mut self, flag: u32) -> io::Result<()> {
        if self.header.flags & flag == 0 {
            self.header.flags |= flag;
            self.file.write_all_at(&self.header.bytes(), 0)?;
        }
        Ok(())
    }

    /// Begins anew with another seed. With `keeps`, the records stay.
    pub(super) fn reseed(&mut self, seed: [u8; 16], keeps: bool) -> io::Result<()> {
        (self.header.seed, self.header.flags) = (seed, 0);
        if !keeps {
            (self.live, self.places) = (0, HashMap::new());
        }
        self.clean_up()
    }
}

/// How much of what the kernel knows a log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    All,
    /// Some files have numbers that the log does not say.
    Some,
    Nothing,
}

fn sum_in(record: &[u8]) -> u32 {
    u32::from_le_bytes([record[4], record[5], record[6], record[7]])
}

/// The first record of `bytes`, unless it is torn, or one of another generation: its key, whether it takes the record
/// before it back, and all of its bytes.
fn first_record(bytes: &[u8], generation: u32) -> Option<(Key, bool, &[u8])> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let record = bytes.get(..len).filter(|_| len >= FRAME_BYTES)?;
    let mut fields = &record[8..FRAME_BYTES];
    let is_whole = sum_of(&record[8..]) == sum_in(record) && fields.get_u32_le() == generation;
    let kind = fields.get_u8();
    fields.advance(3);
    is_whole.then(|| ((kind & !IS_REMOVED, fields.get_u64_le()), kind & IS_REMOVED != 0, record))
}
