//! The S3 client, built on the AWS Common Runtime (CRT). All FFI to the CRT is in this crate.
//!
//! [`CrtClient`] speaks S3 for one bucket. A part is one `GetObject` request of the CRT. *We* choose the
//! range and the version of the part, so the CRT neither splits requests nor orders them. The CRT writes the
//! body of the part straight into the buffer that the caller lent ([`pool`] says how). The caller gets the
//! same memory back as `Bytes`.
//!
//! Invariants:
//! - No callback panics: a panic in a callback ends the process.
//! - The process must fork *before* it makes the first client: the CRT's threads do not survive a fork.
//! - There is one client per endpoint host, or one [`Transport`] for all clients of a host: the CRT caches connections by
//!   host name alone, without port and scheme.
#![expect(
    clippy::disallowed_methods,
    reason = "the CRT's callbacks come by the machine's time, in threads of its own"
)]

mod answer;
mod attempts;
mod checksum;
mod client;
mod clock;
mod config;
mod create_session;
pub mod directory_bucket;
mod encoding;
mod endpoint;
mod error;
mod get;
mod keep_alive;
mod keep_alive_request;
mod logging;
mod network;
mod object_headers;
mod pool;
mod request;
mod session;
mod signer;
mod source;
mod transport;
mod tuning;
mod upload_xml;
mod writer;
mod xml;

pub use client::CrtClient;
pub use config::{Addressing, Credentials, CrtConfig, Variants, usual_event_loops};
pub use logging::init_logging;
pub use source::{CredentialSource, Keys, NoKeys};
pub use transport::{Transport, TransportConfig};

/// The functions of this crate that fuzzers call. Only `cargo fuzz` builds this module.
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
