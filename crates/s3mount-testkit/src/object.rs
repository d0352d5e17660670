//! Objects, whose bytes are in memory, computed, or in a file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use crc_fast::Digest;
use s3mount_object::{ChecksumAlgorithm, NewObject, ObjectChecksum, UploadPart};

use crate::content::{block_from, hash};
use crate::random::mix;
use crate::sums::{Kept, crc};

/// One version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    pub(crate) size: u64,
    /// The ETag with its quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    /// What the object has beside its bytes.
    pub(crate) beside: NewObject,
    /// The checksum that its upload brought, if it brought one.
    pub(crate) kept: Option<Kept>,
    /// The last checksum that somebody asked for.
    pub(crate) checksum: Arc<Mutex<Option<ObjectChecksum>>>,
    /// The parts that somebody asked for last, and their length.
    pub(crate) parts: Arc<Mutex<(u64, Vec<UploadPart>)>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// Computed content. The number is the key's hash.
    Synthetic(u64),
    File(PathBuf),
    /// Ranges of other contents, one after the other. No range is empty.
    Joined(Arc<[Piece]>),
    /// The bytes were dropped when they had come.
    Dropped,
}

/// A range of a content, as a part of another content.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) content: Content,
    /// Where the range begins in `content`.
    pub(crate) from: u64,
    /// Where the range ends in the content that it is a part of.
    pub(crate) end: u64,
}

impl Content {
    /// The contents of these lengths, one after the other.
    pub(crate) fn join(contents: impl IntoIterator<Item = (Content, u64)>) -> Self {
        let ranges = contents.into_iter().map(|(content, len)| (content, 0..len));
        Self::Joined(pieces(ranges))
    }

    /// A range of this content.
    pub(crate) fn range(&self, range: Range<u64>) -> Self {
        Self::Joined(pieces([(self.clone(), range)]))
    }

    /// A number that stands for these bytes, if all of them are computed: it costs less than a hash of them.
    fn computed(&self) -> Option<u64> {
        match self {
            Content::Synthetic(hash) => Some(*hash),
            Content::Joined(pieces) => pieces.iter().try_fold(0, |hash, piece| {
                Some(mix(hash ^ mix(piece.content.computed()? ^ mix(piece.from)) ^ piece.end))
            }),
            Content::Bytes(_) | Content::File(_) | Content::Dropped => None,
        }
    }

    /// The tag of a range, if all of it is computed.
    pub(crate) fn computed_tag(&self, range: &Range<u64>) -> Option<String> {
        let hash = self.computed()?;
        Some(format!("{:016x}{:016x}", mix(hash ^ range.start), mix(!hash ^ range.end)))
    }

    /// Reads some of the bytes from `offset` on: at least one byte, and at most `most` bytes, which are there.
    fn read(&self, offset: u64, most: usize) -> std::io::Result<Bytes> {
        match self {
            Content::Bytes(bytes) => Ok(bytes.slice(offset as usize..offset as usize + most)),
            Content::Synthetic(hash) => {
                let mut block = block_from(*hash, offset);
                block.truncate(most);
                Ok(block)
            }
            Content::File(path) => {
                let mut bytes = vec![0; most.min(1 << 20)];
                File::open(path)?.read_exact_at(&mut bytes, offset)?;
                Ok(bytes.into())
            }
            Content::Joined(pieces) => {
                let index = pieces.partition_point(|piece| piece.end <= offset);
                let start = index.checked_sub(1).map_or(0, |before| pieces[before].end);
                let piece = &pieces[index];
                let most = usize::try_from(piece.end - offset).unwrap_or(most).min(most);
                piece.content.read(piece.from + (offset - start), most)
            }
            Content::Dropped => Err(std::io::Error::other("the server keeps no bytes of uploads")),
        }
    }
}

fn pieces(ranges: impl IntoIterator<Item = (Content, Range<u64>)>) -> Arc<[Piece]> {
    let mut end = 0;
    let ranges = ranges.into_iter().filter(|(_, range)| !range.is_empty());
    let piece = |(content, range): (Content, Range<u64>)| {
        end += range.end - range.start;
        Piece { content, from: range.start, end }
    };
    ranges.map(piece).collect()
}

/// The tag that contents in memory have: a hash of the bytes that costs less than MD5, as hexadecimal digits.
pub(crate) fn tag(bytes: &[u8]) -> String {
    let fold = |hash: u64, chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    };
    format!("{:032x}", bytes.chunks(8).fold(bytes.len() as u64, fold))
}

/// The time now in whole seconds, because S3's dates have whole seconds.
pub(crate) fn now() -> SystemTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Object {
    pub(crate) fn new(content: Content, size: u64, etag: String, modified: SystemTime) -> Self {
        Self {
            content,
            size,
            etag,
            modified,
            beside: NewObject::default(),
            kept: None,
            checksum: Arc::default(),
            parts: Arc::default(),
        }
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let (size, etag) = (bytes.len() as u64, format!("\"{}\"", tag(&bytes)));
        Self::new(Content::Bytes(bytes), size, etag, now())
    }

    pub(crate) fn synthetic(key: &str, size: u64) -> Self {
        let hash = hash(key);
        let etag = format!("\"{hash:016x}{size:016x}\"");
        Self::new(Content::Synthetic(hash), size, etag, now())
    }

    pub(crate) fn file(path: PathBuf) -> std::io::Result<Self> {
        let metadata = path.metadata()?;
        let modified = metadata.modified()?;
        let nanos = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let etag = format!("\"{:016x}{nanos:016x}\"", metadata.len());
        Ok(Self::new(Content::File(path), metadata.len(), etag, modified))
    }

    /// The checksum of all bytes. It is computed when it is first asked for.
    pub(crate) fn checksum(&self, algorithm: ChecksumAlgorithm) -> std::io::Result<ObjectChecksum> {
        let mut kept = self.checksum.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.filter(|kept| kept.algorithm == algorithm) {
            return Ok(kept);
        }
        Ok(*kept.insert(self.checksum_of(algorithm, 0, self.size)?))
    }

    /// The CRC of the bytes `start..end`.
    pub(crate) fn checksum_of(
        &self,
        algorithm: ChecksumAlgorithm,
        start: u64,
        end: u64,
    ) -> std::io::Result<ObjectChecksum> {
        let mut digest = Digest::new(crc(algorithm));
        let mut at = start;
        while at < end {
            let piece = self.read(at, usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 20))?;
            digest.update(&piece);
            at += piece.len() as u64;
        }
        Ok(ObjectChecksum { algorithm, value: digest.finalize() })
    }

    /// Gives the object the ETag of an upload in parts of `len` bytes, if the object is longer than a part.
    pub(crate) fn upload_in_parts(&mut self, len: u64) {
        if self.size > len && !self.etag.contains('-') {
            self.etag = format!("{}-{}\"", self.etag.trim_end_matches('"'), self.size.div_ceil(len));
        }
    }

    /// The parts of the object, if it was uploaded in parts of `len` bytes. They are computed when they are
    /// first asked for.
    pub(crate) fn parts(&self, algorithm: ChecksumAlgorithm, len: u64) -> std::io::Result<Vec<UploadPart>> {
        let mut kept = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = kept.1.first().is_some_and(|part| part.checksum.algorithm == algorithm);
        if !is_known || kept.0 != len {
            let part = |at: u64| {
                let end = (at + len).min(self.size);
                Ok(UploadPart { len: end - at, checksum: self.checksum_of(algorithm, at, end)? })
            };
            let starts = (0..self.size).step_by(usize::try_from(len).unwrap_or(usize::MAX));
            *kept = (len, starts.map(part).collect::<std::io::Result<_>>()?);
        }
        Ok(kept.1.clone())
    }

    /// Reads some of the bytes from `offset` on: at least one byte, and at most `most` bytes. The offset lies
    /// inside the object.
    pub(crate) fn read(&self, offset: u64, most: usize) -> std::io::Result<Bytes> {
        let most = usize::try_from(self.size - offset).unwrap_or(usize::MAX).min(most);
        self.content.read(offset, most)
    }
}
