//! Settings of the client, as plain data.

use std::fmt;
use std::path::PathBuf;

/// Settings of a client for one bucket.
#[derive(Clone, Debug)]
pub struct CrtConfig {
    /// The bucket's name.
    pub bucket: String,
    /// Its region. If it is `None`, [`CrtClient::connect`](crate::CrtClient::connect) asks the store.
    pub region: Option<String>,
    /// `http://` or `https://` URL of another endpoint than AWS's public one.
    pub endpoint_url: Option<String>,
    /// Put the bucket into the path and not into the host name. For an `endpoint_url` outside
    /// `amazonaws.com` the bucket is always in the path.
    pub force_path_style: bool,
    /// The credentials that sign the requests.
    pub credentials: Credentials,
    /// PEM file of the certificate authorities to trust, in place of the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Ask for checksums of objects, and compare those that cover the fetched bytes.
    pub verify: bool,
    /// Connections to the store, at most.
    pub max_connections: u32,
    /// Threads for network I/O; the CRT starts as many again to hand bodies over. 0: half of the
    /// cores, at most 8.
    pub event_loop_threads: u16,
    /// The product's part of the `User-Agent` header.
    pub user_agent: String,
}

impl CrtConfig {
    /// Settings for `bucket`, with everything else at its default.
    pub fn new(bucket: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            region: None,
            endpoint_url: None,
            force_path_style: false,
            credentials: Credentials::Chain,
            ca_bundle: None,
            verify: true,
            max_connections: 512,
            event_loop_threads: 0,
            user_agent: concat!("s3mount/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl Default for CrtConfig {
    /// Settings with no bucket yet.
    fn default() -> Self {
        Self::new("")
    }
}

/// Where the credentials come from.
#[derive(Clone, Default)]
pub enum Credentials {
    /// The CRT's default chain: environment, profile, web identity, ECS, EC2.
    #[default]
    Chain,
    /// A profile of the AWS configuration files.
    Profile(String),
    /// These.
    Static {
        /// Access key id.
        access_key_id: String,
        /// Secret access key.
        secret_access_key: String,
        /// Session token of temporary credentials.
        session_token: Option<String>,
    },
    /// None: requests are not signed.
    Anonymous,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Chain => f.write_str("Chain"),
            Credentials::Profile(profile) => f.debug_tuple("Profile").field(profile).finish(),
            Credentials::Static { .. } => f.write_str("Static(redacted)"),
            Credentials::Anonymous => f.write_str("Anonymous"),
        }
    }
}
