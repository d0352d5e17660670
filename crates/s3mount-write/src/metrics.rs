//! The metrics of writing.

use s3mount_metrics::{Counter, Gauge, metrics};

metrics! {
    /// Files that are being written, and what is uploaded of them.
    pub struct WriteMetrics {
        /// Bytes that programs have written.
        written_bytes: Counter = ("s3mount_written_bytes_total", Bytes, Stable),
        /// Versions that were published.
        published: Counter = ("s3mount_published_objects_total", Count, Stable),
        /// Parts that were uploaded, or copied inside the store.
        parts: Counter = ("s3mount_upload_parts_total", Count, Stable),
        /// Bytes that were uploaded, in parts and in whole objects.
        uploaded_bytes: Counter = ("s3mount_uploaded_bytes_total", Bytes, Stable),
        /// Bytes that were copied inside the store.
        copied_bytes: Counter = ("s3mount_copied_bytes_total", Bytes, Stable),
        /// Uploads in parts that were begun.
        uploads: Counter = ("s3mount_uploads_total", Count, Stable),
        /// Uploads in parts that were given up.
        aborted: Counter = ("s3mount_uploads_aborted_total", Count, Stable),
        /// Files whose writing failed.
        failed: Counter = ("s3mount_writes_failed_total", Count, Stable),
        /// Files that are being written.
        drafts: Gauge = ("s3mount_drafts", Count, Experimental),
        /// Requests that upload or copy bytes now.
        in_flight: Gauge = ("s3mount_uploads_in_flight", Count, Experimental),
        /// How many bytes of `--memory-limit` files that are being written hold.
        memory: Gauge = ("s3mount_upload_memory_bytes", Bytes, Experimental),
        /// How many bytes of files that are being written lie in the spool.
        spool: Gauge = ("s3mount_spool_bytes", Bytes, Experimental),
    }
}
