//! Settings of the client, as plain data.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::CredentialSource;
use crate::transport::{Transport, TransportConfig};

/// Settings of a client for one bucket.
#[derive(Clone, Debug)]
pub struct CrtConfig {
    /// The bucket's name.
    pub bucket: String,
    /// The bucket's region. If it is `None`, [`CrtClient::connect`](crate::CrtClient::connect) asks the
    /// store.
    pub region: Option<String>,
    /// The `http://` or `https://` URL of an endpoint that replaces AWS's public endpoint.
    pub endpoint_url: Option<String>,
    /// The place of the bucket's name in URLs.
    pub addressing: Addressing,
    /// Which of AWS's endpoints is used. Without effect for an `endpoint_url`.
    pub variants: Variants,
    /// The credentials that sign the requests.
    pub credentials: Credentials,
    /// A PEM file of certificate authorities. The client trusts these instead of the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Ask the store for checksums of objects, and compare each checksum that covers exactly the fetched
    /// bytes.
    pub verify: bool,
    /// The largest number of connections to the store.
    pub max_connections: u32,
    /// The number of event loops, each with a thread for the network's I/O. The CRT starts the same number of threads
    /// again, which hand bodies over.
    pub event_loops: u16,
    /// Event loops and connections that clients of several buckets share. Unset if the client has its own.
    pub transport: Option<Transport>,
    /// The names of the network interfaces that the connections to the bucket take in turn. If there is none, the
    /// system's routes choose.
    pub network_interfaces: Vec<String>,
    /// The account that the bucket has to belong to. The store refuses requests to a bucket of another one.
    pub expected_bucket_owner: Option<String>,
    /// Tells the store in each request that the caller pays for it, as requester-pays buckets demand.
    pub requester_pays: bool,
    /// The product's part of the `User-Agent` header.
    pub user_agent: String,
}

impl CrtConfig {
    /// Settings for `bucket`; every other setting has its default.
    pub fn new(bucket: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            region: None,
            endpoint_url: None,
            addressing: Addressing::Auto,
            variants: Variants::default(),
            credentials: Credentials::Chain,
            ca_bundle: None,
            verify: true,
            max_connections: 512,
            event_loops: usual_event_loops(),
            transport: None,
            network_interfaces: Vec::new(),
            expected_bucket_owner: None,
            requester_pays: false,
            user_agent: concat!("s3mount/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl CrtConfig {
    /// The settings of a transport for this client alone.
    pub fn transport_config(&self) -> TransportConfig {
        TransportConfig {
            event_loops: self.event_loops,
            max_connections: self.max_connections,
            ca_bundle: self.ca_bundle.clone(),
            network_interfaces: self.network_interfaces.clone(),
        }
    }
}

impl Default for CrtConfig {
    /// Settings without a bucket: its name is empty.
    fn default() -> Self {
        Self::new("")
    }
}

/// How many event loops suit the machine: one for each two processors, and at most 32.
///
/// On four cores, two event loops bring 8 GB/s over plain connections and about 3 GB/s over TLS. So half of the cores are
/// enough for event loops, and the readers have the other half. By that measurement, 32 loops bring 384 Gbit/s over TLS.
/// That is on paper: no such network was at hand.
pub fn usual_event_loops() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u16::try_from((processors / 2).clamp(1, 32)).unwrap_or(1)
}

/// Where in a URL the bucket's name is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In the host name at AWS, unless the name has dots, and in the path elsewhere: a host name per bucket needs
    /// DNS entries and certificates that few stores have.
    #[default]
    Auto,
    /// In the path.
    Path,
    /// Before the host name.
    Virtual,
}

/// Which of AWS's endpoints are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variants {
    /// The endpoints that have IPv6 addresses, too.
    pub dual_stack: bool,
    /// The endpoints with cryptography that is validated by FIPS 140.
    pub fips: bool,
    /// The endpoints of transfer acceleration.
    pub accelerate: bool,
}

/// The source of the credentials.
#[derive(Clone, Default)]
pub enum Credentials {
    /// The CRT's default chain: environment, profile, web identity, ECS, EC2.
    #[default]
    Chain,
    /// The keys in a profile of the AWS configuration files.
    Profile(String),
    /// Keys that are found outside of the CRT.
    Source(Arc<dyn CredentialSource>),
    /// These credentials.
    Static {
        /// The access key id.
        access_key_id: String,
        /// The secret access key.
        secret_access_key: String,
        /// The session token of temporary credentials.
        session_token: Option<String>,
    },
    /// No credentials: requests are not signed.
    Anonymous,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Chain => f.write_str("Chain"),
            Credentials::Profile(profile) => f.debug_tuple("Profile").field(profile).finish(),
            Credentials::Source(source) => f.debug_tuple("Source").field(source).finish(),
            Credentials::Static { .. } => f.write_str("Static(redacted)"),
            Credentials::Anonymous => f.write_str("Anonymous"),
        }
    }
}
