//! The client against answers that no decent store gives, byte for byte.
//!
//! Each test has a store and a client of its own, because the CRT knows endpoints by host alone.
#![expect(clippy::unwrap_used, reason = "a test may")]
#![expect(clippy::disallowed_methods, reason = "the CRT lives by the machine's time")]

mod dialects;
mod get_object;
mod metadata;
mod store;
