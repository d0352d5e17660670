//! Receives the bodies of requests, and compares them with the checksums that come with them.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use md5::{Digest as _, Md5};
use tokio::time::{Instant, sleep, sleep_until};

use crate::object::Content;
use crate::server::fault::FaultKind;
use crate::server::request::{dechunk, header, is_chunked};
use crate::server::stats::UnderWay;
use crate::sums::{Running, Sum, Value, hex};
use crate::uploads::{MAX_PART, Refused, refused};

/// A body that has come.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) content: Content,
    pub(crate) len: u64,
    md5: Option<[u8; 16]>,
    sums: Vec<(Sum, Value)>,
    /// The headers behind the body.
    trailers: HeaderMap,
    /// The chunks of the body can't be joined.
    is_malformed: bool,
}

/// How a body is received.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    /// How many bytes a second come. 0 means no limit.
    pub(crate) bytes_per_second: u64,
    /// The bytes are not kept.
    pub(crate) drops: bool,
    /// MD5 is computed, also when the request does not bring one.
    pub(crate) needs_md5: bool,
    /// The checksum that the store keeps of the bytes.
    pub(crate) sum: Option<Sum>,
}

/// The header that carries the SHA-256 of a body that is signed.
const SHA256: &str = "x-amz-content-sha256";

/// The checksums that a request names.
fn named(headers: &HeaderMap) -> impl Iterator<Item = Sum> {
    let is_signed = header(headers, SHA256).len() == 64;
    let is_named = move |sum: &Sum| headers.contains_key(sum.header()) || *sum == Sum::Sha256 && is_signed;
    Sum::ALL.into_iter().filter(is_named)
}

/// The checksums of a body that is being received.
struct Digests {
    md5: Option<Md5>,
    sums: Vec<(Sum, Running)>,
}

impl Digests {
    fn new(headers: &HeaderMap, trailers: &HeaderMap, taking: &Taking) -> Self {
        let mut wanted: Vec<Sum> = named(headers).chain(named(trailers)).chain(taking.sum).collect();
        wanted.push(Sum::DEFAULT);
        wanted.sort_by_key(|sum| sum.name());
        wanted.dedup();
        let has_md5 = taking.needs_md5 || headers.contains_key("content-md5");
        let sums = wanted.into_iter().map(|sum| (sum, sum.start())).collect();
        Self { md5: has_md5.then(Md5::new), sums }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.md5.iter_mut().for_each(|md5| md5.update(bytes));
        self.sums.iter_mut().for_each(|(_, sum)| sum.update(bytes));
    }

    fn finish(self, content: Content, len: u64, trailers: HeaderMap) -> Received {
        let sums = self.sums.into_iter().map(|(sum, running)| (sum, running.finish())).collect();
        Received {
            content,
            len,
            md5: self.md5.map(|md5| md5.finalize().into()),
            sums,
            trailers,
            is_malformed: false,
        }
    }
}

/// Receives a body. `None` when the connection breaks before its end.
pub(crate) async fn receive(
    headers: &HeaderMap,
    mut body: Incoming,
    taking: Taking,
    fault: Option<&FaultKind>,
    under_way: &UnderWay,
) -> Option<Received> {
    let is_chunked = is_chunked(headers);
    let length: u64 = header(headers, hyper::header::CONTENT_LENGTH).parse().unwrap_or(0);
    let mut digests = Digests::new(headers, &HeaderMap::new(), &taking);
    let (mut bytes, mut len, started) = (Vec::new(), 0, Instant::now());
    let rate = match fault {
        Some(FaultKind::Trickle(rate)) => *rate,
        _ => taking.bytes_per_second,
    };
    let mut flips = fault == Some(&FaultKind::FlipBit);
    let mut stall = match fault {
        Some(FaultKind::StallBody(ms)) => Some(Duration::from_millis(*ms)),
        _ => None,
    };
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.ok()?.into_data() else { continue };
        let mut piece = piece;
        if std::mem::take(&mut flips) {
            let mut flipped = piece.to_vec();
            flipped.iter_mut().take(1).for_each(|byte| *byte ^= 1);
            piece = flipped.into();
        }
        len += piece.len() as u64;
        under_way.received(piece.len() as u64);
        if !is_chunked {
            digests.update(&piece);
        }
        if is_chunked || !taking.drops {
            bytes.extend_from_slice(&piece);
        }
        if len * 2 >= length
            && let Some(stall) = stall.take()
        {
            sleep(stall).await;
        }
        if rate > 0 {
            sleep_until(started + Duration::from_secs_f64(len as f64 / rate as f64)).await;
        }
    }
    if !is_chunked {
        let content = if taking.drops { Content::Dropped } else { Content::Bytes(bytes.into()) };
        return Some(digests.finish(content, len, HeaderMap::new()));
    }
    let Some((bytes, trailers)) = dechunk(&bytes) else {
        return Some(Received { is_malformed: true, ..Received::nothing() });
    };
    let mut digests = Digests::new(headers, &trailers, &taking);
    digests.update(&bytes);
    let (len, content) = (bytes.len() as u64, Content::Bytes(Bytes::from(bytes)));
    Some(digests.finish(if taking.drops { Content::Dropped } else { content }, len, trailers))
}

/// Refuses a body that is too long, or whose length is not known, before it comes.
pub(crate) fn check_length(headers: &HeaderMap) -> Result<(), Refused> {
    match header(headers, hyper::header::CONTENT_LENGTH).parse::<u64>() {
        Ok(length) if length > MAX_PART => {
            Err(refused(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size"))
        }
        Ok(_) => Ok(()),
        Err(_) if is_chunked(headers) => Ok(()),
        Err(_) => {
            Err(refused(411, "MissingContentLength", "You must provide the Content-Length HTTP header."))
        }
    }
}

impl Received {
    /// No body.
    pub(crate) fn nothing() -> Self {
        let digests = Digests { md5: None, sums: Vec::new() };
        digests.finish(Content::Bytes(Bytes::new()), 0, HeaderMap::new())
    }

    /// The bytes of a body that was kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// The MD5 in hexadecimal, if it was computed.
    pub(crate) fn tag(&self) -> Option<String> {
        self.md5.map(|md5| hex(&md5))
    }

    /// A checksum that was computed.
    pub(crate) fn sum(&self, wanted: Sum) -> Option<&Value> {
        self.sums.iter().find(|(sum, _)| *sum == wanted).map(|(_, value)| value)
    }

    /// The checksum that the request brings, in its headers or behind its body.
    pub(crate) fn brought<'a>(&'a self, headers: &'a HeaderMap) -> Option<(Sum, &'a str)> {
        Sum::ALL.into_iter().find_map(|sum| {
            let value = headers.get(sum.header()).or_else(|| self.trailers.get(sum.header()));
            Some((sum, value?.to_str().ok()?))
        })
    }

    /// Compares the body with all checksums that the request brings.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        if self.is_malformed {
            return Err(refused(400, "IncompleteBody", "The chunks are malformed."));
        }
        if Sum::ALL.into_iter().filter(|sum| headers.contains_key(sum.header())).count() > 1 {
            return Err(refused(400, "InvalidRequest", "Expecting a single x-amz-checksum- header."));
        }
        if let Some((sum, text)) = self.brought(headers) {
            if BASE64_STANDARD.decode(text).is_err() {
                return Err(refused(
                    400,
                    "InvalidRequest",
                    "Value for the x-amz-checksum- header is invalid.",
                ));
            }
            if self.sum(sum).is_none_or(|value| value.base64() != text) {
                return Err(bad_digest());
            }
        }
        let told = header(headers, "content-md5");
        if !told.is_empty() {
            let told = BASE64_STANDARD.decode(told).ok().filter(|md5| md5.len() == 16);
            let told =
                told.ok_or(refused(400, "InvalidDigest", "The Content-MD5 you specified is not valid."))?;
            if self.md5.is_none_or(|md5| md5[..] != told) {
                return Err(bad_digest());
            }
        }
        let told = header(headers, SHA256);
        if told.len() == 64 && self.sum(Sum::Sha256).is_none_or(|value| value.hex() != told) {
            let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
            return Err(refused(400, "XAmzContentSHA256Mismatch", message));
        }
        Ok(())
    }
}

fn bad_digest() -> Refused {
    refused(400, "BadDigest", "The checksum you specified did not match the calculated checksum.")
}
