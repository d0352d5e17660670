//! What goes wrong, and how often.

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
    /// Anything else.
    Other,
}

/// A fault that strikes the next requests that it fits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Only this operation.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// Only keys (or prefixes, for a listing) that contain this.
    #[serde(default)]
    pub key_contains: String,
    /// How many requests it strikes.
    #[serde(default = "always")]
    pub count: u32,
    /// Of the requests that it fits, the part that it strikes: by a row of numbers that is the same in
    /// each run.
    #[serde(default = "all")]
    pub share: f64,
    /// What happens to them.
    pub kind: FaultKind,
}

fn always() -> u32 {
    u32::MAX
}

fn all() -> f64 {
    1.0
}

impl Fault {
    /// Strikes each request.
    pub fn new(kind: FaultKind) -> Self {
        Self { operation: None, key_contains: String::new(), count: always(), share: all(), kind }
    }

    /// Only this operation.
    #[must_use]
    pub fn on(self, operation: Operation) -> Self {
        Self { operation: Some(operation), ..self }
    }

    /// Only the next `count` requests.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Only this part of the requests.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// It is answered with this status and code.
    Status(u16, String),
    /// It is answered with this status, and the region of [`Redirect`](Self::Redirect) in a header.
    Redirect(u16, String),
    /// The connection is reset without an answer.
    Reset,
    /// The connection closes half-way through the body.
    ShortBody,
    /// The connection is reset half-way through the body.
    ResetBody,
    /// The body stops half-way for this many milliseconds.
    StallBody(u64),
    /// The body comes at this many bytes a second.
    Trickle(u64),
    /// The body is half as long as it should be, and Content-Length says so.
    HalfBody,
    /// The body is twice as long as it should be, and Content-Length says so.
    DoubleBody,
    /// Content-Range names the bytes behind the ones that were asked for.
    WrongRange,
    /// The body is this, with status 200.
    Body(String),
    /// The answer comes this many milliseconds late.
    Stall(u64),
    /// The answer waits until the server is thawed.
    Freeze,
    /// The answer has another ETag than the object.
    WrongEtag,
    /// One bit of the body is another.
    FlipBit,
    /// The range is ignored: 200 with the whole object.
    WholeObject,
}

impl FaultKind {
    /// All that passes when a request is sent again, at once.
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

/// The faults that are still to strike.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>, Sequence);

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What strikes this request, if anything does.
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
        Some(kind)
    }
}
