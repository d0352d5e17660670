//! Faults: what goes wrong with requests, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::random::Sequence;

/// The operations that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// GetObject.
    GetObject,
    /// HeadObject.
    HeadObject,
    /// ListObjectsV2 and V1.
    ListObjects,
    /// HeadBucket.
    HeadBucket,
    /// PutObject.
    PutObject,
    /// DeleteObject.
    DeleteObject,
    /// GetObjectAttributes.
    GetObjectAttributes,
    /// CreateMultipartUpload.
    CreateMultipartUpload,
    /// UploadPart.
    UploadPart,
    /// UploadPartCopy.
    UploadPartCopy,
    /// CompleteMultipartUpload.
    CompleteMultipartUpload,
    /// AbortMultipartUpload.
    AbortMultipartUpload,
    /// ListMultipartUploads.
    ListMultipartUploads,
    /// ListParts.
    ListParts,
    /// CopyObject.
    CopyObject,
    /// DeleteObjects.
    DeleteObjects,
    /// RenameObject.
    RenameObject,
    /// CreateSession.
    CreateSession,
    /// Any other operation.
    Other,
}

/// A fault, which strikes the next requests that match its operation and its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// The fault strikes only requests of this operation.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// The fault strikes only requests whose key contains this text. Of a listing, the prefix counts.
    #[serde(default)]
    pub key_contains: String,
    /// How many requests the fault strikes.
    #[serde(default = "always")]
    pub count: u32,
    /// The share of the matching requests that the fault strikes. Random numbers choose them, which are the
    /// same in each run.
    #[serde(default = "all")]
    pub share: f64,
    /// What happens to the requests that it strikes.
    pub kind: FaultKind,
}

fn always() -> u32 {
    u32::MAX
}

fn all() -> f64 {
    1.0
}

impl Fault {
    /// A fault that strikes each request.
    pub fn new(kind: FaultKind) -> Self {
        Self { operation: None, key_contains: String::new(), count: always(), share: all(), kind }
    }

    /// Strikes only requests of this operation.
    #[must_use]
    pub fn on(self, operation: Operation) -> Self {
        Self { operation: Some(operation), ..self }
    }

    /// Strikes only the next `count` requests.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Strikes only this share of the requests.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The server answers with this status and error code.
    Status(u16, String),
    /// The server answers with this status, and names this region in a header.
    Redirect(u16, String),
    /// The connection is reset without an answer.
    Reset,
    /// The connection closes half-way through the body.
    ShortBody,
    /// The connection is reset half-way through the body.
    ResetBody,
    /// The body stops half-way for this many milliseconds. Of an upload, the server stops taking it.
    StallBody(u64),
    /// The body comes at this many bytes a second. Of an upload, the server takes so many.
    Trickle(u64),
    /// The body is half as long as it should be, and Content-Length says so.
    HalfBody,
    /// The body is twice as long as it should be, or ends with the object. Content-Length says so.
    DoubleBody,
    /// Content-Range names the bytes that follow the range that was asked for.
    WrongRange,
    /// The body is this text, with status 200.
    Body(String),
    /// The answer comes this many milliseconds late.
    Stall(u64),
    /// The answer waits until the server is thawed.
    Freeze,
    /// The answer's ETag is not that of the object.
    WrongEtag,
    /// One bit of the body is flipped, also of the body of an upload.
    FlipBit,
    /// The server does what the request asks for, and resets the connection instead of answering.
    LostAnswer,
    /// The server resets the connection, and does what the request asks for this many milliseconds later.
    Late(u64),
    /// The server ignores the range, and sends the whole object with status 200.
    WholeObject,
    /// The server's clock is this many seconds ahead of the machine's, as the header Date says. If the clocks differ by
    /// 15 minutes, the server refuses the request, as S3 does.
    Clock(i64),
}

impl FaultKind {
    /// The server answers with status 200 and the body of an error, and does nothing. S3 may do so when it has
    /// begun its answer before it knows the result: to CompleteMultipartUpload and to copies.
    pub fn error_body(code: &str) -> Self {
        Self::Body(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
             <Message>a fault of the test server</Message></Error>"
        ))
    }

    /// All kinds of faults that a client gets over when it sends the request again.
    pub fn passing() -> Vec<Self> {
        let status = |status, code: &str| Self::Status(status, code.to_owned());
        vec![
            status(500, "InternalError"),
            status(503, "SlowDown"),
            status(429, "TooManyRequests"),
            status(408, "RequestTimeout"),
            Self::Reset,
            Self::ShortBody,
            Self::ResetBody,
            Self::HalfBody,
            Self::DoubleBody,
            Self::WrongRange,
            Self::WholeObject,
            Self::Body("<html>busy</html>".to_owned()),
        ]
    }
}

/// The faults that have not struck all their requests yet, the random numbers that choose the requests, and how many
/// requests were struck.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>, Sequence, AtomicU64);

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The kind of the fault that strikes this request, if there is one.
    pub(crate) fn strike(&self, operation: Operation, key: &str) -> Option<FaultKind> {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = faults.iter().position(|fault| {
            fault.count > 0
                && fault.operation.is_none_or(|only| only == operation)
                && key.contains(&fault.key_contains)
                && (fault.share >= 1.0 || self.1.uniform() < fault.share)
        })?;
        let fault = &mut faults[index];
        if fault.count < always() {
            fault.count -= 1;
        }
        let kind = fault.kind.clone();
        if fault.count == 0 {
            faults.remove(index);
        }
        self.2.fetch_add(1, Ordering::Relaxed);
        Some(kind)
    }

    /// How many requests faults have struck.
    pub(crate) fn struck(&self) -> u64 {
        self.2.load(Ordering::Relaxed)
    }
}
