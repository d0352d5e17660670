//! One door to a store: a bucket, its operations, and the one loop that all requests go through.
//!
//! - [`Bucket`] is what all layers of a mount have of the store. It has a function for each [`Operation`]. Each sends
//!   its request by one loop: a permit of the operation's [`Class`], an attempt, and another one while that may help
//!   and the call's time is not over. A write that returns is done, also if its answer was lost.
//! - [`Retries`] is that loop, for who has something of his own for each attempt: a buffer, or a permit.
//! - All requests of a bucket take their permits from one table of [`Limits`], and their retries from one
//!   [`RetryBudget`].
//! - [`Rates`] are what a mount keeps to: a request waits until it may be sent.
//! - [`BucketFolders`] makes one bucket of several, each of which is a folder.
//! - [`MeasuredClient`] stands around another client, and counts and times its requests by operation and
//!   status. Retries and second GETs pass it like any other request.

mod attempts;
mod bucket;
mod budget;
mod door;
mod first;
mod folders;
mod late;
mod limits;
mod measured;
mod metrics;
mod once;
mod operation;
mod own;
mod rates;
mod reads;
mod retries;
mod writes;

pub use attempts::Backoff;
pub use bucket::{Bucket, Failure, WritableBucket};
pub use budget::RetryBudget;
pub use first::first_answer;
pub use folders::{BucketFolder, BucketFolders};
pub use limits::{Limits, Permit};
pub use measured::MeasuredClient;
pub use metrics::{
    Outcome, Rate, RateMetrics, ReadOperation, RequestMetrics, RetryMetrics, WriteOperation,
    WriteRequestMetrics,
};
pub use operation::{Class, Operation};
pub use own::MARK;
pub use rates::Rates;
pub use retries::Retries;
pub use writes::Deleted;
