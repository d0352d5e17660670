//! What makes a row right.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::file::version::{MOST_KEY, MOST_TEXT, Version};

/// Takes the key and the version of each row.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), crate::ListedError>;

/// Checks a row, and adds its version to `bytes`.
///
/// # Errors
/// What is wrong.
pub(crate) fn encode(key: &str, version: Version<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
    if key.is_empty() || key.len() > MOST_KEY {
        return Err(format!("a key of {} bytes: keys have 1 to {MOST_KEY}", key.len()));
    }
    let etag = version.etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap_or(version.etag);
    let is_etag = (1..=MOST_TEXT).contains(&etag.len())
        && etag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if !is_etag {
        return Err(format!("the ETag of the key {key:?} is {:?}, which is none", version.etag));
    }
    if version.class.len() > MOST_TEXT {
        return Err(format!("the storage class of the key {key:?} is {:?}, which is none", version.class));
    }
    Version { etag, ..version }.encode(bytes);
    Ok(())
}

/// Reads the size of an object, in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().filter(|size| i64::try_from(*size).is_ok());
    size.ok_or_else(|| format!("the size is {text:?}, which is no number of bytes that a file may have"))
}

/// Reads whether something is so.
pub(crate) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => Err(format!("{text:?} stands where true or false has to")),
    }
}

/// Reads a time, in seconds since 1970. It is that of RFC 3339, whose T may be a space.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    let standard = match text.as_bytes().get(10) {
        Some(b' ') => Cow::Owned(text.replacen(' ', "T", 1)),
        _ => Cow::Borrowed(text),
    };
    let time = OffsetDateTime::parse(&standard, &Rfc3339);
    let time = time.map_err(|_| format!("the time is {text:?}, which is none like 2026-01-31T12:00:00Z"))?;
    Ok(u64::try_from(time.unix_timestamp()).unwrap_or(0))
}

/// Decodes a key as inventories have it in CSV: URL-encoded, as forms are.
pub(crate) fn decoded(key: &str) -> Result<Cow<'_, str>, String> {
    if !key.contains(['%', '+']) {
        return Ok(Cow::Borrowed(key));
    }
    let mut escapes = key.split('%').skip(1);
    let is_escape = |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !escapes.all(is_escape) {
        return Err(format!("the key {key:?} is not URL-encoded, as the keys of an inventory are"));
    }
    let spaced = key.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(|key| Cow::Owned(key.into_owned())).map_err(|_| format!("the key {key:?} is no UTF-8"))
}
