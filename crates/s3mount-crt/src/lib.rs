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
#![expect(
    clippy::disallowed_methods,
    reason = "the CRT's callbacks come by the machine's time, in threads of its own"
)]

mod answer;
mod checksum;
mod client;
mod config;
mod endpoint;
mod error;
mod get;
mod keep_warm;
mod logging;
mod pool;
mod request;
mod signer;
mod tuning;
mod warm;
mod xml;

pub use client::CrtClient;
pub use config::{Credentials, CrtConfig};
pub use logging::init_logging;

/// What fuzzers reach of this crate: `cargo fuzz` builds with it, nothing else does.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use s3mount_object::ListPage;

    pub fn list_page(xml: &[u8]) -> Option<ListPage> {
        crate::xml::list_page(xml).ok()
    }

    pub fn error(xml: &[u8]) {
        let _ = crate::xml::s3_error(xml);
    }

    pub fn content_range(header: &str) {
        if let Some(range) = crate::answer::content_range(header) {
            assert!(range.len() > 0);
        }
    }
}
