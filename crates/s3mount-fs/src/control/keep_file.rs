//! Parses what programs write to `.s3mount/keep`: the paths of files to warm in the disk cache.

use crate::ahead::hints::hint::{Hint, Line};
use crate::open::open_clock::OpenClock;
use crate::sync::{Mutex, lock};

/// A program that writes to `.s3mount/keep`: the bytes of its unfinished line.
#[derive(Debug, Default)]
pub(crate) struct KeepFile(Mutex<Line>);

/// The files that a WRITE to `.s3mount/keep` names. Its caller waits until they are in the disk cache.
#[derive(Debug)]
pub struct WarmRequest(pub(crate) Vec<Option<Hint>>);

impl KeepFile {
    /// Adds bytes, and returns the files that the completed lines name.
    pub(crate) fn push(&self, data: &[u8]) -> WarmRequest {
        let mut line = lock(&self.0);
        let mut lines = data.split(|byte| *byte == b'\n').peekable();
        let mut asked = Vec::new();
        while let Some(part) = lines.next() {
            line.extend(part);
            if lines.peek().is_some() {
                let whole = line.take();
                if whole.as_ref().is_none_or(|text| !text.is_empty()) {
                    asked.push(whole.and_then(|text| Hint::parse(&text, OpenClock::NEVER)));
                }
            }
        }
        WarmRequest(asked)
    }
}
