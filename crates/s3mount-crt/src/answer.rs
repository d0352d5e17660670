//! The headers of an HTTP answer that we keep.

use std::ffi::OsString;

use mountpoint_s3_crt::http::request_response::Headers;
use s3mount_object::{ByteRange, NewObject, ObjectChecksum, UserMetadata};

use crate::checksum::{Checksum, is_of_parts};

/// The status of an answer, and the headers that we use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: i32,
    pub(crate) etag: Option<String>,
    pub(crate) content_length: Option<u64>,
    pub(crate) content_range: Option<String>,
    pub(crate) last_modified: Option<String>,
    pub(crate) storage_class: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) request_id: Option<String>,
    /// Whether the CRT had sent the request before, and got no answer that tells its result.
    pub(crate) is_second: bool,
    /// The store's time of the answer. GETs of objects do not read it.
    pub(crate) date: Option<String>,
    /// The checksum of the whole object.
    pub(crate) checksum: Option<Checksum>,
    /// Whether the store keeps a CRC of each part in which the object was uploaded.
    pub(crate) has_part_checksums: bool,
    /// The object's metadata, if the request asks for it.
    pub(crate) object: Option<Box<NewObject>>,
    /// How many tags the object has.
    pub(crate) tag_count: Option<u32>,
}

impl Answer {
    /// The CRT's callbacks call this, so it can't fail.
    pub(crate) fn new(headers: &Headers, status: i32) -> Self {
        let text = |name: &str| headers.get_as_optional_string(name).ok().flatten();
        Self {
            status,
            etag: text("ETag"),
            content_length: text("Content-Length").and_then(|length| length.parse().ok()),
            content_range: text("Content-Range"),
            last_modified: text("Last-Modified"),
            storage_class: text("x-amz-storage-class"),
            region: text("x-amz-bucket-region").filter(|region| !region.is_empty()),
            request_id: text("x-amz-request-id"),
            is_second: false,
            date: None,
            checksum: Checksum::of(headers),
            has_part_checksums: is_of_parts(headers),
            object: None,
            tag_count: text("x-amz-tagging-count").and_then(|count| count.parse().ok()),
        }
    }

    /// The checksum as a number, if it is a CRC of all bytes.
    pub(crate) fn crc(&self) -> Option<ObjectChecksum> {
        self.checksum.as_ref().and_then(Checksum::crc)
    }

    /// Whether the body, which has the bytes of `range`, is the whole object.
    pub(crate) fn is_whole(&self, range: ByteRange) -> bool {
        let size = self.content_range.as_deref().and_then(|header| header.rsplit_once('/'));
        range.start() == 0 && size.and_then(|(_, size)| size.trim().parse().ok()) == Some(range.end())
    }

    /// Whether the body is exactly `range` of its object. The store has to send `Content-Range`: for a
    /// request with `Range` the CRT accepts no answer without it, not even the whole object.
    pub(crate) fn is_range(&self, range: ByteRange) -> bool {
        self.content_range.as_deref().and_then(content_range) == Some(range)
    }
}

/// The header of each entry of the user's metadata begins so.
const METADATA_PREFIX: &str = "x-amz-meta-";

/// The user's metadata in the headers. What is not UTF-8 is left out. The CRT's callbacks call this, so it
/// can't fail.
pub(crate) fn user_metadata(headers: &Headers) -> UserMetadata {
    let entry = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        Some((name.strip_prefix(METADATA_PREFIX)?.to_owned(), value.into_string().ok()?))
    };
    headers.iter().filter_map(entry).collect()
}

/// The headers that carry `metadata`.
pub(crate) fn metadata_headers(metadata: &UserMetadata) -> Vec<(String, &str)> {
    metadata.iter().map(|(name, value)| (format!("{METADATA_PREFIX}{name}"), value.as_str())).collect()
}

/// The range in a header such as `bytes 0-9/100`.
pub(crate) fn content_range(header: &str) -> Option<ByteRange> {
    let (range, _) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last < u64::MAX).then(|| ByteRange::new(first, last + 1))
}

#[cfg(test)]
mod tests {
    use s3mount_object::ByteRange;

    use super::content_range;

    #[test]
    fn reads_content_ranges() {
        assert_eq!(content_range("bytes 0-9/100"), Some(ByteRange::new(0, 10)));
        assert_eq!(content_range("bytes 5-5/*"), Some(ByteRange::new(5, 6)));
        for bad in
            ["", "bytes */100", "bytes 9-0/100", "bytes 0-18446744073709551615/1", "0-9/100", "bytes a-b/c"]
        {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
