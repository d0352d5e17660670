//! What a list says of a key, in some 25 bytes: size, ETag, time and storage class.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3mount_object::{ETag, ObjectMeta};

use crate::file::block::{number, put_number, slice};

/// How an ETag is kept: as the 16 bytes of an MD5, as these and the number of parts of an upload, or as it is.
const MD5: u8 = 0;
const MD5_OF_PARTS: u8 = 1;
const TEXT: u8 = 2;

/// The storage classes that are kept as a number: the place in this list. A later version may only add to it.
const CLASSES: &[&str] = &[
    "",
    "STANDARD",
    "STANDARD_IA",
    "INTELLIGENT_TIERING",
    "ONEZONE_IA",
    "GLACIER",
    "GLACIER_IR",
    "DEEP_ARCHIVE",
    "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
    "OUTPOSTS",
    "SNOW",
];

/// Says that the class is kept as a text.
const CLASS_TEXT: u8 = u8::MAX;

/// The longest key, in bytes.
pub(crate) const MOST_KEY: usize = 1024;

/// The longest text of an ETag, or of a storage class, in bytes.
pub(crate) const MOST_TEXT: usize = 255;

/// What a list says of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    /// In bytes.
    pub(crate) size: u64,
    /// Without its quotes.
    pub(crate) etag: &'a str,
    /// In seconds since 1970. Earlier times count as 1970.
    pub(crate) modified_s: u64,
    /// Empty if the list names none.
    pub(crate) class: &'a str,
}

/// The 16 bytes of 32 lower-case hexadecimal digits.
fn md5(digits: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (mut bytes, digits) = ([0; 16], digits.as_bytes());
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The number of parts, if it is written as numbers are kept: without zeros in front.
fn parts(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let len = number(bytes)?;
    std::str::from_utf8(slice(bytes, len)?).ok()
}

impl Version<'_> {
    /// Adds it to `bytes`.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.size);
        put_number(bytes, self.modified_s);
        let class = CLASSES.iter().position(|class| *class == self.class);
        match class {
            // The list is short.
            Some(number) => bytes.push(number as u8),
            None => {
                bytes.push(CLASS_TEXT);
                put_text(bytes, self.class);
            }
        }
        let (digits, count) = self.etag.split_once('-').unzip();
        if let Some(md5) = md5(self.etag) {
            bytes.push(MD5);
            bytes.extend_from_slice(&md5);
        } else if let Some((md5, parts)) = digits.and_then(md5).zip(count.and_then(parts)) {
            bytes.push(MD5_OF_PARTS);
            bytes.extend_from_slice(&md5);
            put_number(bytes, parts);
        } else {
            bytes.push(TEXT);
            put_text(bytes, self.etag);
        }
    }
}

fn etag(bytes: &mut &[u8]) -> Option<ETag> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let form = slice(bytes, 1)?[0];
    let mut etag = String::with_capacity(48);
    etag.push('"');
    match form {
        MD5 | MD5_OF_PARTS => {
            for byte in slice(bytes, 16)? {
                etag.push(DIGITS[usize::from(byte >> 4)].into());
                etag.push(DIGITS[usize::from(byte & 15)].into());
            }
        }
        TEXT => etag.push_str(text(bytes)?),
        _ => return None,
    }
    if form == MD5_OF_PARTS {
        etag.push('-');
        etag.push_str(&number(bytes)?.to_string());
    }
    etag.push('"');
    Some(ETag::new(&etag))
}

/// What a HEAD would say, from the bytes of a version. `None` for other bytes.
pub(crate) fn meta(mut bytes: &[u8]) -> Option<ObjectMeta> {
    let size = number(&mut bytes)?;
    let modified_s = number(&mut bytes)?;
    let class = match slice(&mut bytes, 1)?[0] {
        CLASS_TEXT => text(&mut bytes)?,
        number => CLASSES.get(usize::from(number))?,
    };
    let last_modified: SystemTime = UNIX_EPOCH.checked_add(Duration::from_secs(modified_s))?;
    let storage_class = (!class.is_empty()).then(|| class.to_owned());
    Some(ObjectMeta { etag: etag(&mut bytes)?, size, last_modified, storage_class })
}

/// What is in the bytes of a version, for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let shown = |meta: ObjectMeta| {
        let seconds = meta.last_modified.duration_since(UNIX_EPOCH);
        let class = meta.storage_class.map(|class| format!(" in {class}"));
        format!(
            "ETag {} of {} bytes from second {}{}",
            meta.etag,
            meta.size,
            seconds.unwrap_or_default().as_secs(),
            class.unwrap_or_default()
        )
    };
    meta(bytes).map_or_else(String::new, shown)
}
