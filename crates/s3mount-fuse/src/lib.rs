//! The thin layer between fuser and [`s3mount_fs::Filesystem`]: the only crate that names fuser's
//! types.
//!
//! The session thread that takes a request answers it whenever nothing has to be fetched. It hands a
//! READ its reply, which is answered from memory. It polls the future of a metadata operation once. Only a
//! future that is not ready then goes to the runtime, with its reply. So no session thread ever waits for the
//! network. Callers that are killed while they wait are answered at once (`interrupt.rs`).

mod adapter;
mod audit;
mod buffers;
mod closing;
mod config;
mod gate;
mod handshake;
mod interrupt;
mod kernel;
mod make_way;
mod metrics;
mod modes;
mod mount;
mod mount_point;
mod parking;
mod passthrough;
mod readahead;
mod takeover;

pub use audit::{AuditSink, AuditedCall, program_of};
pub use config::FuseConfig;
pub use make_way::{Busy, MadeWay};
pub use metrics::{Failure, FuseMetrics, Operation, Refusal};
pub use mount::{Mount, mount, serve_device, take_over};
pub use mount_point::{MountId, MountPoint, Place, abort};
pub use takeover::KeptSession;
