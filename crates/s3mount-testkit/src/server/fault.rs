//! What goes wrong, and how often.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

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
    pub count: u32,
    /// What happens to them.
    pub kind: FaultKind,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// It is answered with this status and code.
    Status(u16, String),
    /// The connection closes without an answer.
    Reset,
    /// The connection closes half-way through the body.
    ShortBody,
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

/// The faults that are still to strike.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

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
        })?;
        let fault = &mut faults[index];
        fault.count -= 1;
        let kind = fault.kind.clone();
        if fault.count == 0 {
            faults.remove(index);
        }
        Some(kind)
    }
}
