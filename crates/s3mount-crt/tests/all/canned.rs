//! The client against answers, byte for byte, that no correct store gives.
//!
//! Each test has a store and a client of its own, because the CRT tells endpoints apart by host name alone.
#![expect(clippy::unwrap_used, reason = "a test may")]
#![expect(clippy::disallowed_methods, reason = "the CRT lives by the machine's time")]

mod dialects;
mod get_object;
mod metadata;
mod store;
