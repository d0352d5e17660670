//! Counters of the requests that came, and of the bytes that were sent.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::server::fault::Operation;

/// The most ranges that are kept.
const MAX_RANGES: usize = 1_000_000;

/// How many operations there are. The last is any other.
const OPERATIONS: usize = Operation::Other as usize + 1;

/// One operation's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// How many requests came.
    pub requests: u64,
    /// How many of these requests were refused or redirected, or not answered at all.
    pub errors: u64,
    /// How many bytes of bodies were sent.
    pub bytes: u64,
    /// How many bytes of bodies were received.
    #[serde(default)]
    pub received: u64,
}

/// All counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// GetObject.
    pub get_object: Counts,
    /// HeadObject.
    pub head_object: Counts,
    /// ListObjectsV2 and V1.
    pub list_objects: Counts,
    /// HeadBucket.
    pub head_bucket: Counts,
    /// PutObject.
    pub put_object: Counts,
    /// DeleteObject.
    pub delete_object: Counts,
    /// GetObjectAttributes.
    pub get_object_attributes: Counts,
    /// CreateMultipartUpload.
    #[serde(default)]
    pub create_multipart_upload: Counts,
    /// UploadPart.
    #[serde(default)]
    pub upload_part: Counts,
    /// UploadPartCopy.
    #[serde(default)]
    pub upload_part_copy: Counts,
    /// CompleteMultipartUpload.
    #[serde(default)]
    pub complete_multipart_upload: Counts,
    /// AbortMultipartUpload.
    #[serde(default)]
    pub abort_multipart_upload: Counts,
    /// ListMultipartUploads.
    #[serde(default)]
    pub list_multipart_uploads: Counts,
    /// ListParts.
    #[serde(default)]
    pub list_parts: Counts,
    /// CopyObject.
    #[serde(default)]
    pub copy_object: Counts,
    /// DeleteObjects.
    #[serde(default)]
    pub delete_objects: Counts,
    /// RenameObject.
    #[serde(default)]
    pub rename_object: Counts,
    /// CreateSession.
    #[serde(default)]
    pub create_session: Counts,
    /// All other operations.
    pub other: Counts,
    /// How many connections were accepted.
    pub connections: u64,
    /// The largest number of GETs whose answers were under way at the same time.
    pub most_concurrent_gets: u64,
}

impl Stats {
    /// The number of all requests.
    pub fn requests(&self) -> u64 {
        [
            self.get_object,
            self.head_object,
            self.list_objects,
            self.head_bucket,
            self.put_object,
            self.delete_object,
            self.get_object_attributes,
            self.create_multipart_upload,
            self.upload_part,
            self.upload_part_copy,
            self.complete_multipart_upload,
            self.abort_multipart_upload,
            self.list_multipart_uploads,
            self.list_parts,
            self.copy_object,
            self.delete_objects,
            self.rename_object,
            self.create_session,
            self.other,
        ]
        .iter()
        .map(|counts| counts.requests)
        .sum()
    }
}

/// Counters that tasks share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    requests: [AtomicU64; OPERATIONS],
    errors: [AtomicU64; OPERATIONS],
    bytes: [AtomicU64; OPERATIONS],
    received: [AtomicU64; OPERATIONS],
    connections: AtomicU64,
    concurrent_gets: AtomicU64,
    most_concurrent_gets: AtomicU64,
    ranges: Mutex<Vec<(String, Range<u64>)>>,
    no_ranges: AtomicBool,
}

/// An answer under way. It counts the bytes that are sent. A GET counts as running until its answer is
/// dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Counters, Operation);

impl UnderWay {
    pub(crate) fn sent(&self, bytes: u64) {
        self.0.0.bytes[self.1 as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.0.0.received[self.1 as usize].fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.1 == Operation::GetObject {
            self.0.0.concurrent_gets.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Counters {
    pub(crate) fn connection(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request(&self, operation: Operation) -> UnderWay {
        self.0.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
        if operation == Operation::GetObject {
            let now = self.0.concurrent_gets.fetch_add(1, Ordering::Relaxed) + 1;
            self.0.most_concurrent_gets.fetch_max(now, Ordering::Relaxed);
        }
        UnderWay(self.clone(), operation)
    }

    pub(crate) fn error(&self, operation: Operation) {
        self.0.errors[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets whether the ranges of GETs are written down.
    pub(crate) fn log_ranges(&self, log: bool) {
        self.0.no_ranges.store(!log, Ordering::Relaxed);
    }

    pub(crate) fn range(&self, key: &str, range: Range<u64>) {
        if self.0.no_ranges.load(Ordering::Relaxed) {
            return;
        }
        let mut ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.len() < MAX_RANGES {
            ranges.push((key.to_owned(), range));
        }
    }

    /// The ranges of `key` that were sent, in order.
    pub(crate) fn ranges(&self, key: &str) -> Vec<Range<u64>> {
        let ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().filter(|(of, _)| of == key).map(|(_, range)| range.clone()).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let inner = &self.0;
        let counts = |operation: Operation| Counts {
            requests: inner.requests[operation as usize].load(Ordering::Relaxed),
            errors: inner.errors[operation as usize].load(Ordering::Relaxed),
            bytes: inner.bytes[operation as usize].load(Ordering::Relaxed),
            received: inner.received[operation as usize].load(Ordering::Relaxed),
        };
        Stats {
            get_object: counts(Operation::GetObject),
            head_object: counts(Operation::HeadObject),
            list_objects: counts(Operation::ListObjects),
            head_bucket: counts(Operation::HeadBucket),
            put_object: counts(Operation::PutObject),
            delete_object: counts(Operation::DeleteObject),
            get_object_attributes: counts(Operation::GetObjectAttributes),
            create_multipart_upload: counts(Operation::CreateMultipartUpload),
            upload_part: counts(Operation::UploadPart),
            upload_part_copy: counts(Operation::UploadPartCopy),
            complete_multipart_upload: counts(Operation::CompleteMultipartUpload),
            abort_multipart_upload: counts(Operation::AbortMultipartUpload),
            list_multipart_uploads: counts(Operation::ListMultipartUploads),
            list_parts: counts(Operation::ListParts),
            copy_object: counts(Operation::CopyObject),
            delete_objects: counts(Operation::DeleteObjects),
            rename_object: counts(Operation::RenameObject),
            create_session: counts(Operation::CreateSession),
            other: counts(Operation::Other),
            connections: inner.connections.load(Ordering::Relaxed),
            most_concurrent_gets: inner.most_concurrent_gets.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn reset(&self) {
        let inner = &self.0;
        for counters in [&inner.requests, &inner.errors, &inner.bytes, &inner.received] {
            counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        }
        inner.connections.store(0, Ordering::Relaxed);
        inner.most_concurrent_gets.store(0, Ordering::Relaxed);
        inner.ranges.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
