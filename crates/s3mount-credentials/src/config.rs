//! Settings of a source, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use crate::CredentialKind;

/// Which profile, and how its services are asked.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// The profile's name.
    pub profile: String,
    /// Where its credentials come from, for messages.
    pub kind: CredentialKind,
    /// The region in which roles are asked for.
    pub region: String,
    /// A PEM file of certificate authorities to trust instead of the system's.
    pub ca_bundle: Option<PathBuf>,
    /// How long a search for keys may take. A process that takes longer is killed.
    pub limit: Duration,
}
