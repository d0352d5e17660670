//! Requests to a store: when a failed one is made again, and how requests are counted.
//!
//! - [`Retries`] is the one loop in which a request is made again. The layers above drive it, because each
//!   attempt at a GET needs another buffer, a turn, and a reader that still waits, and only the caller knows
//!   of these. All requests of a mount take their retries from one [`RetryBudget`].
//! - [`MeasuredClient`] stands around another client, and counts and times its requests by operation and
//!   status. Retries and second GETs pass it like any other request.

mod attempts;
mod budget;
mod measured;
mod metrics;
mod retries;

pub use attempts::Attempts;
pub use budget::RetryBudget;
pub use measured::MeasuredClient;
pub use metrics::{Operation, Outcome, RequestMetrics, RetryMetrics, WriteOperation, WriteRequestMetrics};
pub use retries::Retries;
