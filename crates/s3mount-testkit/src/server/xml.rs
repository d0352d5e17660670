//! The XML bodies of answers.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3mount_object::{ChecksumAlgorithm, UploadPart};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::list::{Page, Query};
use crate::object::Object;
use crate::server::sessions::{STORAGE_CLASS, is_directory_bucket};

/// Escapes text for XML. Control characters become references, as S3 sends them.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c < ' ' || c == '\u{7f}' => {
                // Writing to a string can't fail.
                let _ = write!(escaped, "&#x{:x};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// The characters that `encoding-type=url` escapes. [`url_encode`] replaces the space itself.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*').remove(b'/').remove(b' ');

/// Encodes text as S3 does for `encoding-type=url`: a space becomes `+`, and a slash stays a slash.
pub(crate) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string().replace(' ', "+")
}

pub(crate) const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
pub(crate) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// The body of an error.
pub(crate) fn error(code: &str, message: &str, resource: &str, request_id: &str, extra: &str) -> String {
    format!(
        "{HEAD}<Error><Code>{code}</Code><Message>{}</Message>{extra}<Resource>{}</Resource>\
         <RequestId>{request_id}</RequestId></Error>",
        escape(message),
        escape(resource)
    )
}

/// The body of ListObjectsV2 or of ListObjects.
pub(crate) fn listing(bucket: &str, query: &Query, page: &Page<'_, Object>, url: bool, v2: bool) -> String {
    let name = |text: &str| if url { url_encode(text) } else { escape(text) };
    let class = if is_directory_bucket(bucket) { STORAGE_CLASS } else { "STANDARD" };
    let mut xml = format!(
        "{HEAD}<ListBucketResult xmlns=\"{NAMESPACE}\"><Name>{}</Name><Prefix>{}</Prefix>\
         <MaxKeys>{}</MaxKeys><IsTruncated>{}</IsTruncated>",
        escape(bucket),
        name(&query.prefix),
        query.max_keys,
        page.next.is_some()
    );
    let mut element = |tag: &str, text: &str| {
        let _ = write!(xml, "<{tag}>{text}</{tag}>");
    };
    if url {
        element("EncodingType", "url");
    }
    if let Some(delimiter) = &query.delimiter {
        element("Delimiter", &name(delimiter));
    }
    if v2 {
        element("KeyCount", &(page.objects.len() + page.prefixes.len()).to_string());
    }
    match &page.next {
        Some(next) if v2 => element("NextContinuationToken", &token(next)),
        Some(next) => element("NextMarker", &name(next)),
        None => {}
    }
    for (key, object) in &page.objects {
        let _ = write!(
            xml,
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size>\
             <StorageClass>{}</StorageClass></Contents>",
            name(key),
            OffsetDateTime::from(object.modified).format(&Rfc3339).unwrap_or_default(),
            escape(&object.etag),
            object.size,
            object.beside.storage_class.as_deref().unwrap_or(class)
        );
    }
    for prefix in &page.prefixes {
        let _ = write!(xml, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", name(prefix));
    }
    xml + "</ListBucketResult>"
}

/// The body of GetObjectAttributes. It has at most `most` parts, and they follow the part with the number
/// `marker`.
pub(crate) fn attributes(etag: &str, parts: &[UploadPart], marker: usize, most: usize) -> String {
    let etag = etag.trim_matches('"');
    let mut xml = format!(
        "{HEAD}<GetObjectAttributesResponse xmlns=\"{NAMESPACE}\"><ETag>{etag}</ETag>\
         <ObjectParts><PartsCount>{}</PartsCount>",
        parts.len()
    );
    let page = parts.iter().enumerate().skip(marker).take(most);
    let last = marker + page.len();
    let _ = write!(
        xml,
        "<PartNumberMarker>{marker}</PartNumberMarker><NextPartNumberMarker>{last}</NextPartNumberMarker>\
         <MaxParts>{most}</MaxParts><IsTruncated>{}</IsTruncated>",
        last < parts.len()
    );
    for (index, part) in page {
        let name = match part.checksum.algorithm {
            ChecksumAlgorithm::Crc64Nvme => "ChecksumCRC64NVME",
            ChecksumAlgorithm::Crc32c => "ChecksumCRC32C",
            ChecksumAlgorithm::Crc32 => "ChecksumCRC32",
        };
        let _ = write!(
            xml,
            "<Part><{name}>{}</{name}><PartNumber>{}</PartNumber><Size>{}</Size></Part>",
            part.checksum.to_base64(),
            index + 1,
            part.len
        );
    }
    xml + "</ObjectParts></GetObjectAttributesResponse>"
}

/// A continuation token. It is the last name, in hexadecimal, so that no client takes it for a name.
fn token(last: &str) -> String {
    last.bytes().fold(String::from("t"), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    })
}

/// The name in a continuation token.
pub(crate) fn read_token(token: &str) -> Option<String> {
    let hex = token.strip_prefix('t')?;
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// The body of GetBucketLocation.
pub(crate) fn location(region: &str) -> String {
    format!("{HEAD}<LocationConstraint xmlns=\"{NAMESPACE}\">{}</LocationConstraint>", escape(region))
}

/// The body of ListBuckets.
pub(crate) fn buckets<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let list: String = names
        .map(|name| {
            format!(
                "<Bucket><Name>{}</Name><CreationDate>2024-01-01T00:00:00.000Z</CreationDate></Bucket>",
                escape(name)
            )
        })
        .collect();
    format!(
        "{HEAD}<ListAllMyBucketsResult xmlns=\"{NAMESPACE}\"><Buckets>{list}</Buckets></ListAllMyBucketsResult>"
    )
}
