//! Texts in records.

use bytes::{Buf as _, BufMut as _};

use super::error::HandoverError;

/// Adds a text of less than 64 KiB.
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    // Names, ETags and keys are shorter than 64 KiB.
    bytes.put_u16_le(text.len() as u16);
    bytes.put_slice(text.as_bytes());
}

/// Takes a text off.
pub(super) fn text(bytes: &mut &[u8]) -> Result<Box<str>, HandoverError> {
    let len = bytes.try_get_u16_le()?.into();
    let (text, rest) = bytes.split_at_checked(len).ok_or(HandoverError::NoRecord)?;
    *bytes = rest;
    Ok(std::str::from_utf8(text).map_err(|_| HandoverError::NoRecord)?.into())
}
