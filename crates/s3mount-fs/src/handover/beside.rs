//! Records of what is neither an inode nor open.

use bytes::{Buf as _, BufMut as _};
use s3mount_object::ETag;

use super::error::HandoverError;
use super::fields::{put_text, text};
use crate::attributes::modes::Mode;
use crate::numbers::{InodeNo, RequestId};

/// Bytes that a request appends to a file, or has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendRecord {
    pub(crate) id: RequestId,
    pub(crate) ino: InodeNo,
    /// Where they end.
    pub(crate) end: u64,
}

impl AppendRecord {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        [self.id.0, self.ino.0, self.end].iter().for_each(|number| bytes.put_u64_le(*number));
        bytes
    }

    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let mut number = || bytes.try_get_u64_le();
        Ok(Self { id: RequestId(number()?), ino: InodeNo(number()?), end: number()? })
    }
}

/// A name that a thread is to open once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedRecord {
    pub(crate) parent: InodeNo,
    pub(crate) name: Box<str>,
}

impl RepeatedRecord {
    pub(crate) fn bytes(parent: InodeNo, name: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10 + name.len());
        bytes.put_u64_le(parent.0);
        put_text(&mut bytes, name);
        bytes
    }

    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        Ok(Self { parent: InodeNo(bytes.try_get_u64_le()?), name: text(&mut bytes)? })
    }
}

/// Who may run a file, for the next daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeRecord {
    pub(crate) key: Box<str>,
    pub(crate) mode: Mode,
}

impl ModeRecord {
    pub(crate) fn bytes(key: &str, mode: &Mode) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + key.len());
        bytes.put_u16_le(mode.run as u16);
        put_text(&mut bytes, mode.version.as_ref().map_or("", ETag::as_str));
        put_text(&mut bytes, key);
        bytes
    }

    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, HandoverError> {
        let (run, etag) = (bytes.try_get_u16_le()?.into(), text(&mut bytes)?);
        let version = Some(etag).filter(|etag| !etag.is_empty()).map(|etag| ETag::new(&etag));
        Ok(Self { key: text(&mut bytes)?, mode: Mode { run, version } })
    }
}
