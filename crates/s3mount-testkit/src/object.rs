//! Objects, whose bytes are in memory, computed, or in a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use s3mount_object::{ChecksumAlgorithm, ObjectChecksum, UploadPart, UserMetadata};

use crate::content::{block_from, hash};
use crate::random::mix;

/// One version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    pub(crate) size: u64,
    /// The ETag with its quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    pub(crate) storage_class: Option<String>,
    pub(crate) metadata: UserMetadata,
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
}

/// The time now in whole seconds, because S3's dates have whole seconds.
fn now() -> SystemTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Object {
    fn new(content: Content, size: u64, etag: String, modified: SystemTime) -> Self {
        Self {
            content,
            size,
            etag,
            modified,
            storage_class: None,
            metadata: UserMetadata::new(),
            checksum: Arc::default(),
            parts: Arc::default(),
        }
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let fold = |hash: u64, chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        };
        let digest = bytes.chunks(8).fold(bytes.len() as u64, fold);
        let (size, etag) = (bytes.len() as u64, format!("\"{digest:032x}\""));
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

    fn checksum_of(
        &self,
        algorithm: ChecksumAlgorithm,
        start: u64,
        end: u64,
    ) -> std::io::Result<ObjectChecksum> {
        let mut digest = Digest::new(match algorithm {
            ChecksumAlgorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
            ChecksumAlgorithm::Crc32c => CrcAlgorithm::Crc32Iscsi,
            ChecksumAlgorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
        });
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
        match &self.content {
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
        }
    }
}
