//! Credentials of the profiles that the CRT cannot load, or loads without saying what went wrong: SSO, login,
//! roles, web identities and processes. `aws-config` finds them; this crate says when it is asked.
//!
//! [`kind`] reads of a profile where its credentials come from, without asking anybody. A [`ProfileSource`]
//! then keeps the keys of the profile and renews them before they end. Each time it reads the files of `~/.aws`
//! again, and asks in a thread of its own, so that neither a file nor a process can hold up a thread of the
//! mount. Decision 44 says why the CRT keeps the other sources.
#![expect(
    clippy::disallowed_methods,
    reason = "keys end by the time of day, and are found in threads of their own"
)]

mod config;
mod explain;
mod fetch;
mod http;
mod kind;
mod plan;
mod sdk;
mod source;

pub use config::SourceConfig;
pub use kind::{BadProfile, CredentialKind, Settings, kind};
pub use sdk::sdk_config;
pub use source::ProfileSource;
