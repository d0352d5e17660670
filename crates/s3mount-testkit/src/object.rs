//! Objects, however their bytes come about.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use crate::content::{block_from, hash};
use crate::random::mix;

/// One version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    pub(crate) size: u64,
    /// With its quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    pub(crate) storage_class: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// Computed; the number is the key's hash.
    Synthetic(u64),
    File(PathBuf),
}

/// Whole seconds, as S3's dates are.
fn now() -> SystemTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Object {
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let fold = |hash: u64, chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        };
        let digest = bytes.chunks(8).fold(bytes.len() as u64, fold);
        let (size, etag) = (bytes.len() as u64, format!("\"{digest:032x}\""));
        Self { content: Content::Bytes(bytes), size, etag, modified: now(), storage_class: None }
    }

    pub(crate) fn synthetic(key: &str, size: u64) -> Self {
        let hash = hash(key);
        let etag = format!("\"{hash:016x}{size:016x}\"");
        Self { content: Content::Synthetic(hash), size, etag, modified: now(), storage_class: None }
    }

    pub(crate) fn file(path: PathBuf) -> std::io::Result<Self> {
        let metadata = path.metadata()?;
        let modified = metadata.modified()?;
        let nanos = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let etag = format!("\"{:016x}{nanos:016x}\"", metadata.len());
        Ok(Self { content: Content::File(path), size: metadata.len(), etag, modified, storage_class: None })
    }

    /// The checksum that S3 keeps of each object by default, in base64.
    pub(crate) fn crc64nvme(&self) -> std::io::Result<String> {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut at = 0;
        while at < self.size {
            let piece = self.read(at, 1 << 20)?;
            digest.update(&piece);
            at += piece.len() as u64;
        }
        Ok(BASE64_STANDARD.encode(digest.finalize().to_be_bytes()))
    }

    /// Some of the bytes from `offset` on: at least one, at most `most`. The offset lies inside.
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
