//! The records of a file, one after the other, and what lies between them where the disk is damaged.
//!
//! A record that is not as it was written is either damaged or was never durable, because the machine has lost its power.
//! Each record says up to where its file was durable, and the file behind says where its own ends: what was durable is
//! damaged, and what was not ends the file.

use std::io;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};
use rustix::io::Errno;

use crate::SegmentFile;
use crate::record::{HEAD, Head, MAGIC, Place, Record, Said};

/// How many bytes are read at once.
const CHUNK: usize = 1 << 20;

/// The piece of a disk that can't be read as a whole, in bytes.
const SECTOR: usize = 4096;

/// What comes next in a file.
pub(crate) enum ScanItem {
    /// A record.
    Record(FoundRecord),
    /// One or more records are not as they were written, and nobody knows what they were.
    Gap,
}

/// A record that was found.
pub(crate) struct FoundRecord {
    pub(crate) record: Record,
    /// How long the whole record is.
    pub(crate) record_bytes: u64,
    /// Where its bytes begin.
    pub(crate) start: u64,
    pub(crate) state: BytesState,
}

/// How the bytes of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesState {
    /// As they were written.
    Whole,
    /// They were durable, and are not as they were written.
    Damaged,
    /// They are not as they were written. Perhaps they never were durable.
    Torn,
}

/// A walk through a file.
pub(crate) struct Scan {
    number: u64,
    file: Arc<dyn SegmentFile>,
    /// Its length in bytes.
    bytes: u64,
    /// Where its records end, if that is known. All before was durable.
    durable: Option<u64>,
    /// Where the walk is.
    at: u64,
}

/// A head with its text.
struct FoundHead {
    record: Record,
    synced: u64,
    start: u64,
    end: u64,
}

impl Scan {
    pub(crate) fn new(number: u64, file: Arc<dyn SegmentFile>, durable: Option<u64>) -> io::Result<Self> {
        let bytes = file.bytes()?;
        Ok(Self { number, file, bytes, durable, at: 0 })
    }

    /// The number of the file before this one, and where that one ends, if the record that says so is there.
    pub(crate) fn before(number: u64, file: &Arc<dyn SegmentFile>) -> io::Result<Option<(u64, u64)>> {
        let first = Self::new(number, file.clone(), None)?.head(0)?;
        Ok(first.and_then(|first| match first.record.said {
            Said::Begun { before, end } => Some((before, end)),
            _ => None,
        }))
    }

    /// Where the walk is: in the end, where the last record ends.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The file's length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the head of the first record was never written as a whole.
    pub(crate) fn is_blank(&self) -> io::Result<bool> {
        let mut head = [0; HEAD];
        let is_read = self.bytes >= HEAD as u64 && self.read(0, &mut head)?;
        Ok(!is_read || head.ends_with(&[0]))
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<ScanItem>> {
        if let Some(found) = self.record()? {
            return Ok(Some(ScanItem::Record(found)));
        }
        let end = self.durable.filter(|end| self.at < *end);
        let Some(next) = self.behind_damage(self.at, self.at + 1)?.or(end) else { return Ok(None) };
        // Whoever only looks may have been overtaken by the daemon.
        if let Some(found) = self.record()? {
            return Ok(Some(ScanItem::Record(found)));
        }
        self.at = next;
        Ok(Some(ScanItem::Gap))
    }

    /// The record where the walk is, which goes on behind it.
    fn record(&mut self) -> io::Result<Option<FoundRecord>> {
        let Some(FoundHead { record, start, end, .. }) = self.head(self.at)? else { return Ok(None) };
        let state = if record.size == 0 || self.crc_at(start, record.size)? == record.crc {
            BytesState::Whole
        } else if self.durable.is_some() || self.behind_damage(self.at, end)?.is_some() {
            BytesState::Damaged
        } else {
            BytesState::Torn
        };
        let record_bytes = end - std::mem::replace(&mut self.at, end);
        Ok(Some(FoundRecord { record, record_bytes, start, state }))
    }

    /// The next record from `from` on, if what lies at `at` was durable.
    fn behind_damage(&self, at: u64, from: u64) -> io::Result<Option<u64>> {
        let (mut first, mut from) = (None, from);
        while let Some((next, head)) = self.find(from)? {
            first = first.or(Some(next));
            if self.durable.is_some() || head.synced > at {
                return Ok(first);
            }
            from = head.end;
        }
        Ok(None)
    }

    /// The next offset from `from` on where a record lies.
    fn find(&self, from: u64) -> io::Result<Option<(u64, FoundHead)>> {
        let mut at = from;
        let mut chunk = vec![0; CHUNK];
        while let Some(left) = self.end().checked_sub(at).filter(|left| *left >= HEAD as u64) {
            let chunk = &mut chunk[..CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            if !self.read(at, chunk)? {
                return Ok(None);
            }
            for candidate in magics(chunk) {
                let candidate = at + candidate as u64;
                if let Some(head) = self.head(candidate)? {
                    return Ok(Some((candidate, head)));
                }
            }
            // One may lie across the end.
            at += (chunk.len() - (MAGIC.len() - 1)) as u64;
        }
        Ok(None)
    }

    /// Where the last record may end.
    fn end(&self) -> u64 {
        self.durable.map_or(self.bytes, |end| end.min(self.bytes))
    }

    /// The head that lies at an offset, if it and its text are as they were written.
    fn head(&self, at: u64) -> io::Result<Option<FoundHead>> {
        let mut head = [0; HEAD];
        if self.end().saturating_sub(at) < HEAD as u64 || !self.read(at, &mut head)? {
            return Ok(None);
        }
        let Some(parsed) = Head::parse(&head) else { return Ok(None) };
        let start = at + HEAD as u64 + parsed.text_len as u64;
        let Some(end) = start.checked_add(parsed.size).filter(|end| *end <= self.end()) else {
            return Ok(None);
        };
        let mut text = vec![0; parsed.text_len];
        if !self.read(at + HEAD as u64, &mut text)? {
            return Ok(None);
        }
        let record = parsed.record(Place { segment: self.number, offset: at }, &head, &text);
        Ok(record.map(|record| FoundHead { record, synced: parsed.synced, start, end }))
    }

    /// The CRC of bytes.
    fn crc_at(&self, start: u64, size: u64) -> io::Result<u64> {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut chunk = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
        let mut at = 0;
        while at < size {
            let len = chunk.len().min(usize::try_from(size - at).unwrap_or(CHUNK));
            self.read(start + at, &mut chunk[..len])?;
            digest.update(&chunk[..len]);
            at += len as u64;
        }
        Ok(digest.finalize())
    }

    /// Reads bytes. Where the disk can't read them, they are zeros. False where the file is shorter by now: it may be
    /// shortened behind its last record.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<bool> {
        let sectors = match self.file.read(at, into) {
            Err(error) if is_unreadable(&error) => into.chunks_mut(SECTOR),
            result => return is_there(result),
        };
        let mut at = at;
        for sector in sectors {
            let len = sector.len() as u64;
            match self.file.read(at, sector) {
                Err(error) if is_unreadable(&error) => sector.fill(0),
                result => {
                    if !is_there(result)? {
                        return Ok(false);
                    }
                }
            }
            at += len;
        }
        Ok(true)
    }
}

fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

fn is_there(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

/// Where records may begin in these bytes.
fn magics(bytes: &[u8]) -> Vec<usize> {
    const ZEROS: [u8; SECTOR] = [0; SECTOR];
    let mut found = Vec::new();
    for start in (0..bytes.len()).step_by(SECTOR) {
        let end = bytes.len().min(start + SECTOR + MAGIC.len() - 1);
        let sector = &bytes[start..bytes.len().min(start + SECTOR)];
        // The room behind the last record has nothing else.
        if sector != &ZEROS[..sector.len()] {
            let places = bytes[start..end].windows(MAGIC.len()).enumerate();
            found.extend(places.filter(|(_, place)| **place == MAGIC).map(|(at, _)| start + at));
        }
    }
    found
}
