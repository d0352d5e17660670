//! The thin layer between fuser and [`s3mount_fs::Filesystem`]: the only crate that names fuser's
//! types.
//!
//! A request is answered by the session thread that took it whenever nothing has to be fetched:
//! a read is handed its reply and answers from memory, and the future of a metadata operation is
//! polled once on the spot. Only a future that is not ready then is spawned on the runtime, with
//! its reply. So no session thread ever waits for the network. Callers that are killed meanwhile are
//! let go.

mod adapter;
mod kernel;
mod metrics;
mod mount;
mod readahead;
mod waiting;

pub use metrics::{Failure, FuseMetrics, Operation};
pub use mount::{FuseConfig, Mount, mount};
