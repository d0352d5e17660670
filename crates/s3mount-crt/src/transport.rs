//! What clients of several buckets share: event loops, connections, and the pool that lends buffers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mountpoint_s3_crt::auth::credentials::CredentialsProvider;
use mountpoint_s3_crt::common::allocator::Allocator;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::io::retry_strategy::{RetryStrategy, StandardRetryOptions};
use mountpoint_s3_crt::io::tls::{TlsConnectionOptions, TlsContext, TlsContextOptions};
use mountpoint_s3_crt::s3::client::{
    Client, ClientConfig, MetaRequest, MetaRequestOptions, init_signing_config,
};
use mountpoint_s3_crt::s3::pool::{CrtBufferPoolFactory, MemoryPoolFactoryOptions, MemoryPoolFactoryWrapper};
use s3mount_object::{ErrorKind, ObjectError};

use crate::error::crt_error;
use crate::keep_alive::KeepAlive;
use crate::network::Network;
use crate::pool::LendingPool;
use crate::tuning::tune;

/// The throughput that the CRT expects of one connection, in Gbit/s. The CRT divides its target by this to
/// get the number of connections (`s_throughput_per_connection_gbps` in its source).
const GBPS_PER_CONNECTION: f64 = 0.4;

/// Without an override, the CRT uses at least this many connections.
const MIN_CONNECTIONS: u32 = 10;

/// The CRT refuses a lower limit. This limit bounds no memory here: bodies are written into lent buffers.
const CRT_MEMORY_LIMIT_BYTES: u64 = 1 << 30;

/// For what a client needs a region before it knows that of its bucket. The endpoint of this one knows the regions of all
/// buckets.
pub(crate) const FIRST_REGION: &str = "us-east-1";

/// Settings of a [`Transport`]: those of a client that are not of its bucket.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// See [`CrtConfig::event_loops`](crate::CrtConfig::event_loops).
    pub event_loops: u16,
    /// The largest number of connections, of all clients together.
    pub max_connections: u32,
    /// See [`CrtConfig::ca_bundle`](crate::CrtConfig::ca_bundle).
    pub ca_bundle: Option<PathBuf>,
    /// See [`CrtConfig::network_interfaces`](crate::CrtConfig::network_interfaces).
    pub network_interfaces: Vec<String>,
}

/// What clients of several buckets share. The buckets are of one store, or all of AWS. Cheap to clone.
#[derive(Clone)]
pub struct Transport(Arc<Parts>);

struct Parts {
    client: Client,
    network: Network,
    tls: Option<TlsContext>,
    pool: LendingPool,
    max_connections: u32,
    /// The id of the next request.
    next_id: AtomicU64,
    /// How many clients there are.
    clients: AtomicU64,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("max_connections", &self.0.max_connections).finish_non_exhaustive()
    }
}

impl Transport {
    /// Starts event loops. A process that forks must fork before.
    ///
    /// # Errors
    /// `Tls` for a CA bundle that can't be read, and those of starting threads.
    pub fn new(config: &TransportConfig) -> Result<Self, ObjectError> {
        tune();
        let fail = |error: CrtError| crt_error("create client", "", error);
        let allocator = Allocator::default();
        let mut network = Network::start(config.event_loops, &allocator).map_err(fail)?;
        let bootstrap = network.bootstrap(&allocator).map_err(fail)?;
        let mut event_loops = network.event_loops.clone();
        let mut retries = StandardRetryOptions::default(&mut event_loops);
        // One retry without delay, for a connection that the store has closed meanwhile. A value of 0 would mean
        // three retries. The layers above retry until a deadline of their own.
        retries.backoff_retry_options.max_retries = 1;
        retries.backoff_retry_options.backoff_scale_factor = Duration::from_millis(50);
        let retries = RetryStrategy::standard(&allocator, &retries).map_err(fail)?;
        let tls = config.ca_bundle.as_deref().map(|pem| trust(pem, &allocator)).transpose()?;
        let pool = LendingPool::default();
        let lending = pool.clone();
        let factory = MemoryPoolFactoryWrapper::new(move |_: MemoryPoolFactoryOptions| lending.clone());
        let max_connections = config.max_connections.max(1);
        let nobody = CredentialsProvider::new_anonymous(&allocator).map_err(fail)?;
        let mut options = ClientConfig::new();
        options
            // The CRT wants both. Each request says how it is signed, and for which region.
            .region(FIRST_REGION)
            .signing_config(init_signing_config(FIRST_REGION, nobody, None, None, None))
            .client_bootstrap(bootstrap)
            .retry_strategy(retries)
            .throughput_target_gbps(f64::from(max_connections.max(MIN_CONNECTIONS)) * GBPS_PER_CONNECTION)
            .max_active_connections_override(max_connections)
            .memory_limit_in_bytes(CRT_MEMORY_LIMIT_BYTES)
            .buffer_pool_factory(CrtBufferPoolFactory::new(factory, event_loops));
        if !config.network_interfaces.is_empty() {
            options.network_interface_names(config.network_interfaces.clone());
        }
        if let Some(tls) = &tls {
            options.tls_connection_options(TlsConnectionOptions::new(tls));
        }
        let client = Client::new(&allocator, options).map_err(fail)?;
        let (next_id, clients) = (AtomicU64::default(), AtomicU64::default());
        Ok(Self(Arc::new(Parts { client, network, tls, pool, max_connections, next_id, clients })))
    }

    /// Sends a request.
    pub(crate) fn send(&self, options: MetaRequestOptions) -> Result<MetaRequest, CrtError> {
        self.0.client.make_meta_request(options)
    }

    /// The buffers that are lent.
    pub(crate) fn pool(&self) -> &LendingPool {
        &self.0.pool
    }

    /// A number that no other request has.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn network(&self) -> Network {
        self.0.network.clone()
    }

    pub(crate) fn tls(&self) -> Option<TlsContext> {
        self.0.tls.clone()
    }

    /// What keeps the connections of another client, and whether it may. The request that stays under way for that counts
    /// as one of the requests that may run at once. Their number is the number of connections, so half of them stay free.
    pub(crate) fn keep_alive(&self) -> (Arc<KeepAlive>, bool) {
        let keep_alive = KeepAlive::new(self.next_id());
        self.0.pool.wait_for(&keep_alive);
        let before = self.0.clients.fetch_add(1, Ordering::Relaxed);
        (keep_alive, before < u64::from(self.0.max_connections / 2))
    }
}

/// A TLS context that trusts the certificate authorities in `pem`, and no others.
fn trust(pem: &Path, allocator: &Allocator) -> Result<TlsContext, ObjectError> {
    let name = pem.display().to_string();
    let bad = |error: &dyn fmt::Display| {
        ObjectError::new(ErrorKind::Tls, "read CA bundle", &name).with_source(error.to_string())
    };
    let mut options = TlsContextOptions::new_default_client(allocator);
    options.override_default_trust_store_from_path(None, Some(pem)).map_err(|error| bad(&error))?;
    TlsContext::new(allocator, &options).map_err(|error| bad(&error))
}
