//! Reads requests: which operation a request is, which bucket and key it names, and who signed it.

use std::collections::HashMap;
use std::ops::Range;

use hyper::header::{HeaderMap, HeaderName};
use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::server::fault::Operation;

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) operation: Operation,
    /// The bucket, or nothing for a request to the service itself.
    pub(crate) bucket: String,
    /// The key, or nothing for a request to the bucket itself.
    pub(crate) key: String,
    pub(crate) query: HashMap<String, String>,
}

/// A header's text, which is empty when the header is missing.
pub(crate) fn header(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Undoes percent escapes. A `+` stands for a space in queries only.
fn decode(text: &str, plus_is_space: bool) -> String {
    let text = if plus_is_space { text.replace('+', " ") } else { text.to_owned() };
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

impl Target {
    /// Finds out what a request asks for. `BUCKET.localhost` in the `Host` header names the bucket. Without
    /// this, the path names it.
    pub(crate) fn new(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let host = header(headers, hyper::header::HOST).split(':').next().unwrap_or_default();
        let path = uri.path().strip_prefix('/').unwrap_or_default();
        let (bucket, key) = match host.strip_suffix(".localhost") {
            Some(bucket) => (bucket, path),
            None => path.split_once('/').unwrap_or((path, "")),
        };
        let query: HashMap<_, _> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decode(name, true), decode(value, true)))
            .collect();
        let (bucket, key) = (decode(bucket, false), decode(key, false));
        let operation = match (method, bucket.is_empty(), key.is_empty()) {
            (&Method::GET, false, false) if query.contains_key("attributes") => {
                Operation::GetObjectAttributes
            }
            (&Method::GET, false, false) if query.contains_key("uploadId") => Operation::ListParts,
            (&Method::GET, false, false) if query.contains_key("tagging") => Operation::Other,
            (&Method::GET, false, false) => Operation::GetObject,
            (&Method::HEAD, false, false) => Operation::HeadObject,
            (&Method::HEAD, false, true) => Operation::HeadBucket,
            (&Method::GET, false, true) if query.contains_key("uploads") => Operation::ListMultipartUploads,
            (&Method::GET, false, true) if query.contains_key("session") => Operation::CreateSession,
            (&Method::GET, false, true) if !query.contains_key("location") => Operation::ListObjects,
            (&Method::PUT, false, false) => put(&query, headers),
            (&Method::POST, false, false) if query.contains_key("uploads") => {
                Operation::CreateMultipartUpload
            }
            (&Method::POST, false, false) if query.contains_key("uploadId") => {
                Operation::CompleteMultipartUpload
            }
            (&Method::POST, false, true) if query.contains_key("delete") => Operation::DeleteObjects,
            (&Method::DELETE, false, false) if query.contains_key("uploadId") => {
                Operation::AbortMultipartUpload
            }
            (&Method::DELETE, false, false) => Operation::DeleteObject,
            _ => Operation::Other,
        };
        Self { operation, bucket, key, query }
    }

    /// The name that faults and refusals are compared with: the key, or the prefix of a listing.
    pub(crate) fn name(&self) -> &str {
        if self.key.is_empty() { self.query.get("prefix").map_or("", String::as_str) } else { &self.key }
    }
}

/// Which of the operations a PUT of a key is.
fn put(query: &HashMap<String, String>, headers: &HeaderMap) -> Operation {
    let is_copy = headers.contains_key("x-amz-copy-source");
    match (query.contains_key("uploadId"), is_copy) {
        (true, true) => Operation::UploadPartCopy,
        (true, false) => Operation::UploadPart,
        (false, _) if query.contains_key("renameObject") => Operation::RenameObject,
        (false, _) if query.contains_key("tagging") => Operation::Other,
        (false, true) => Operation::CopyObject,
        (false, false) => Operation::PutObject,
    }
}

/// The access key and the region of a SigV4 `Authorization` header.
pub(crate) fn credential(headers: &HeaderMap) -> Option<(&str, &str)> {
    let scope = header(headers, hyper::header::AUTHORIZATION).strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
    let mut parts = scope.split(',').next()?.split('/');
    Some((parts.next()?, parts.nth(1)?))
}

/// The bytes of an object that a `Range` header asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// Reads a `Range` header for an object of `size` bytes. A header that can't be read is ignored, as HTTP
/// demands.
pub(crate) fn range(header: &str, size: u64) -> Wanted {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Wanted::Whole;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => Wanted::Whole,
        (Ok(first), _) if first >= size => Wanted::Unsatisfiable,
        (Ok(first), Ok(last)) => Wanted::Part(first..size.min(last.saturating_add(1))),
        (Ok(first), Err(_)) if last.is_empty() => Wanted::Part(first..size),
        (Err(_), Ok(0)) if first.is_empty() => Wanted::Unsatisfiable,
        (Err(_), Ok(last)) if first.is_empty() => Wanted::Part(size.saturating_sub(last)..size),
        _ => Wanted::Whole,
    }
}

/// Whether a `PUT` sends its body in chunks with signatures or checksums.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    header(headers, HeaderName::from_static("x-amz-content-sha256")).starts_with("STREAMING-")
        || header(headers, hyper::header::CONTENT_ENCODING).contains("aws-chunked")
}

/// Joins the chunks of an `aws-chunked` body, and reads the headers that follow them.
pub(crate) fn dechunk(mut body: &[u8]) -> Option<(Vec<u8>, HeaderMap)> {
    let mut bytes = Vec::with_capacity(body.len());
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&body[..end]).ok()?;
        let len = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        body = &body[end + 2..];
        if len == 0 {
            return Some((bytes, trailers(body)));
        }
        bytes.extend_from_slice(body.get(..len)?);
        body = body[len..].strip_prefix(b"\r\n")?;
    }
}

fn trailers(body: &[u8]) -> HeaderMap {
    let text = String::from_utf8_lossy(body);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((HeaderName::try_from(name.trim()).ok()?, value.trim().parse().ok()?))
    };
    text.lines().filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::{Wanted, dechunk, header, range};

    #[test]
    fn ranges_are_those_of_http() {
        assert_eq!(range("bytes=0-9", 100), Wanted::Part(0..10));
        assert_eq!(range("bytes=90-200", 100), Wanted::Part(90..100));
        assert_eq!(range("bytes=90-", 100), Wanted::Part(90..100));
        assert_eq!(range("bytes=-10", 100), Wanted::Part(90..100));
        assert_eq!(range("bytes=100-", 100), Wanted::Unsatisfiable);
        assert_eq!(range("bytes=0-0", 0), Wanted::Unsatisfiable);
        assert_eq!(range("bytes=9-0", 100), Wanted::Whole);
        assert_eq!(range("", 100), Wanted::Whole);
    }

    #[test]
    fn chunks_are_joined() {
        let body = b"5;chunk-signature=ab\r\nhello\r\n1\r\n!\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let (bytes, trailers) = dechunk(body).expect("a body");
        assert_eq!((&bytes[..], header(&trailers, "x-amz-checksum-crc32")), (&b"hello!"[..], "AAAAAA=="));
        assert_eq!(dechunk(b"5\r\nhel"), None);
        assert_eq!(dechunk(b"2\r\nhello\r\n0\r\n\r\n"), None);
        assert_eq!(dechunk(b"0\r\n\r\n").map(|(bytes, _)| bytes), Some(Vec::new()));
    }
}
