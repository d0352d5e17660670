//! What is counted of the changes that a store tells of.

use s3mount_metrics::{Counter, Histogram, bounds, metrics};

metrics! {
    /// The messages of a queue.
    pub struct ChangeMetrics {
        /// Messages of the queue (`--events-from`) that were taken in and deleted.
        messages: Counter = ("s3mount_queue_messages_total", Count, Experimental),
        /// Messages that were left in the queue: they are no notifications, or those of another bucket.
        left: Counter = ("s3mount_queue_messages_left_total", Count, Experimental),
        /// Requests to the queue that failed.
        errors: Counter = ("s3mount_queue_errors_total", Count, Experimental),
        /// How long ago a change had happened when the queue told of it.
        lag: Histogram = ("s3mount_queue_lag_seconds", Seconds, Experimental, bounds::ANSWERS),
    }
}
