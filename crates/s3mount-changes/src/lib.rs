//! Follows the changes of a bucket that its store tells of: S3's event notifications, from a queue of SQS.
//!
//! - [`notification`]: the text of a message, in the forms that S3, SNS and EventBridge give it. Pure;
//! - [`queue_name`]: which queue somebody means. Pure;
//! - [`queue`]: takes messages from a queue, and deletes those that were taken in;
//! - [`follow`]: does so for as long as a mount lives.
//!
//! A message says that something has happened to a key. It comes late, in any order, and sometimes twice. So who is told
//! of it believes nothing, and asks the store.

mod follow;
mod metrics;
mod notification;
mod queue;
mod queue_name;

pub use follow::{Listener, follow};
pub use metrics::ChangeMetrics;
pub use notification::{Change, KeyChange};
pub use queue::{Queue, QueueConfig, QueueError};
pub use queue_name::QueueName;
