//! The metrics of requests.

use s3mount_metrics::{Counter, Family, Gauge, Histogram, Total, bounds, labels, metrics};
use s3mount_object::ErrorKind;

labels! {
    /// The operation of a request.
    pub enum ReadOperation("operation") {
        /// GetObject.
        Get = "get",
        /// HeadObject.
        Head = "head",
        /// GetObjectAttributes, and GetObjectTagging.
        Attributes = "attributes",
        /// ListObjectsV2, ListMultipartUploads and ListParts.
        List = "list",
        /// HeadBucket.
        HeadBucket = "head_bucket",
    }
}

labels! {
    /// How a request ended.
    pub enum Outcome("status") {
        /// It was answered.
        Ok = "ok",
        /// 404: no such object or bucket.
        NotFound = "not_found",
        /// 401 or 403, or there are no credentials.
        Forbidden = "forbidden",
        /// 412: the object is another version.
        Changed = "changed",
        /// 503 or 429: the store asks to slow down.
        Throttled = "throttled",
        /// Another 5xx.
        Server = "server",
        /// Another 4xx.
        Rejected = "rejected",
        /// No connection, a broken one, or TLS.
        Network = "network",
        /// No answer in time.
        TimedOut = "timed_out",
        /// An answer that is not what was asked for.
        Integrity = "integrity",
        /// It was given up before its answer came, because it was too slow or no longer wanted.
        Cancelled = "cancelled",
    }
}

impl From<&ErrorKind> for Outcome {
    fn from(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound | ErrorKind::NoSuchBucket | ErrorKind::NoSuchUpload => Self::NotFound,
            ErrorKind::Forbidden
            | ErrorKind::NoCredentials
            | ErrorKind::BadCredentials
            | ErrorKind::StaleCredentials => Self::Forbidden,
            ErrorKind::PreconditionFailed | ErrorKind::Conflict => Self::Changed,
            ErrorKind::Throttled => Self::Throttled,
            ErrorKind::Server => Self::Server,
            ErrorKind::Network | ErrorKind::Tls => Self::Network,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Integrity | ErrorKind::BadChecksum => Self::Integrity,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::RangeNotSatisfiable
            | ErrorKind::NoEtag
            | ErrorKind::Archived
            | ErrorKind::WrongRegion(_)
            | ErrorKind::Unsupported
            | ErrorKind::InvalidPart
            | ErrorKind::TooLarge
            | ErrorKind::NoSpace
            | ErrorKind::Rejected => Self::Rejected,
        }
    }
}

metrics! {
    /// All requests to the store, second GETs and retries included.
    pub struct RequestMetrics {
        /// Requests that have ended, by operation and by how they ended.
        requests: Family<Counter, (ReadOperation, Outcome)> = ("s3mount_requests_total", Count, Stable),
        /// How long answered requests took, until the last byte of their answer.
        times: Family<Histogram, ReadOperation> = ("s3mount_request_seconds", Seconds, Stable, bounds::REQUESTS),
        /// Requests that wait for their answers.
        in_flight: Family<Gauge, ReadOperation> = ("s3mount_requests_in_flight", Count, Stable),
        /// Answers that asked to slow down (503, 429), also those to requests that the client sent again
        /// by itself.
        throttled: Total = ("s3mount_throttled_answers_total", Count, Stable),
    }
}

labels! {
    /// The operation of a request that changes objects.
    pub enum WriteOperation("operation") {
        /// PutObject.
        Put = "put",
        /// CreateMultipartUpload.
        CreateUpload = "create_upload",
        /// UploadPart.
        UploadPart = "upload_part",
        /// UploadPartCopy.
        CopyPart = "copy_part",
        /// CompleteMultipartUpload.
        CompleteUpload = "complete_upload",
        /// AbortMultipartUpload.
        AbortUpload = "abort_upload",
        /// CopyObject.
        Copy = "copy",
        /// DeleteObject.
        Delete = "delete",
        /// RenameObject.
        Rename = "rename",
    }
}

metrics! {
    /// All requests to the store that change objects, retries included. A mount without `--allow write` has none.
    pub struct WriteRequestMetrics {
        /// Requests that change objects and have ended, by operation and by how they ended.
        requests: Family<Counter, (WriteOperation, Outcome)> = ("s3mount_write_requests_total", Count, Stable),
        /// How long requests that change objects took, until their answer.
        times: Family<Histogram, WriteOperation> = ("s3mount_write_request_seconds", Seconds, Stable, bounds::REQUESTS),
        /// Requests that change objects and wait for their answers.
        in_flight: Family<Gauge, WriteOperation> = ("s3mount_write_requests_in_flight", Count, Stable),
    }
}

metrics! {
    /// Requests that were made again.
    pub struct RetryMetrics {
        /// Requests that were made again because they had failed.
        retries: Counter = ("s3mount_retries_total", Count, Stable),
        /// Requests that were given up because they made no progress.
        stalls: Counter = ("s3mount_stalls_total", Count, Stable),
    }
}

labels! {
    /// A rate that a mount keeps to.
    pub enum Rate("rate") {
        /// `--max-read-rate`.
        ReadBytes = "read_bytes",
        /// `--max-write-rate`.
        WriteBytes = "write_bytes",
        /// `--max-request-rate`.
        Requests = "requests",
    }
}

metrics! {
    /// The rates that a mount keeps to.
    pub struct RateMetrics {
        /// Requests that waited until a rate of this mount had room for them, by the rate.
        held: Family<Counter, Rate> = ("s3mount_held_requests_total", Count, Stable),
        /// Requests that wait for a rate of this mount now, by the rate.
        held_now: Family<Gauge, Rate> = ("s3mount_requests_held", Count, Stable),
    }
}
