//! The object store on the AWS Common Runtime (CRT): all of its FFI.
//!
//! [`CrtClient`] speaks S3 for one bucket. A part is one `GetObject` request of the CRT, with the
//! range and the version that *we* choose, so the CRT neither splits nor orders anything. The CRT
//! writes the part's body straight into the buffer that the caller lent ([`pool`] says how), and
//! the caller gets that same memory back as `Bytes`.
//!
//! Invariants:
//! - No callback panics: a panic there ends the process.
//! - The process must fork *before* the first client is made: the CRT's threads don't survive it.
//! - One client per endpoint host: the CRT caches connections by host name alone, without port
//!   and scheme.

mod answer;
mod client;
mod config;
mod endpoint;
mod error;
mod get;
mod pool;
mod request;
mod tuning;
mod xml;

pub use client::CrtClient;
pub use config::{Credentials, CrtConfig};

/// Sends what the CRT logs to the `log` crate, under targets that begin with `awscrt`. To be
/// called at most once, after the logger was set.
pub fn init_logging() {
    if mountpoint_s3_crt::common::rust_log_adapter::RustLogAdapter::try_init().is_err() {
        tracing::warn!("the CRT has a logger already; its lines go there");
    }
}
