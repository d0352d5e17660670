//! The S3 server.
//!
//! On hyper, directly: a synthetic object is served at 0.2 CPU seconds per GiB, which is what the
//! kernel takes for sending it. Bodies are slices of memory that is there already.
//!
//! What it does not do: it checks who signs a request, not the signature itself.

mod body;
mod control;
pub(crate) mod fault;
mod handler;
mod request;
pub(crate) mod shape;
pub(crate) mod stats;
mod tls;
mod xml;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::Context;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::object::Object;
use crate::server::fault::{Fault, Faults};
use crate::server::shape::Shape;
use crate::server::stats::{Counters, Stats};

type Keys = BTreeMap<String, Object>;
type Buckets = BTreeMap<String, Keys>;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    buckets: RwLock<Buckets>,
    counters: Counters,
    faults: Faults,
    shape: Mutex<Shape>,
    frozen: AtomicBool,
    next_request: AtomicU64,
    region: String,
    strict_region: bool,
    access_key: Option<String>,
    denied: Vec<String>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Buckets> {
        self.buckets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Buckets> {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn shape(&self) -> Shape {
        *self.shape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_shape(&self, shape: Shape) {
        *self.shape.lock().unwrap_or_else(PoisonError::into_inner) = shape;
    }
}

/// Settings of a server that is to be.
#[derive(Debug)]
pub struct Builder {
    buckets: Buckets,
    region: Option<String>,
    access_key: Option<String>,
    denied: Vec<String>,
    shape: Shape,
    threads: usize,
    port: u16,
    tls: bool,
}

impl Builder {
    /// Adds an empty bucket.
    pub fn bucket(mut self, bucket: &str) -> Self {
        self.buckets.entry(bucket.to_owned()).or_default();
        self
    }

    fn add(mut self, bucket: &str, key: &str, object: Object) -> Self {
        self.buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), object);
        self
    }

    /// Adds an object.
    pub fn object(self, bucket: &str, key: &str, bytes: impl Into<Bytes>) -> Self {
        self.add(bucket, key, Object::bytes(bytes.into()))
    }

    /// Adds an object of computed content (see [`content`](crate::content)).
    pub fn synthetic(self, bucket: &str, key: &str, size: u64) -> Self {
        self.add(bucket, key, Object::synthetic(key, size))
    }

    /// Adds an object that has to be restored before it can be read.
    pub fn archived(self, bucket: &str, key: &str, size: u64) -> Self {
        let object = Object { storage_class: Some("GLACIER".to_owned()), ..Object::synthetic(key, size) };
        self.add(bucket, key, object)
    }

    /// Adds each file below `dir`.
    ///
    /// # Errors
    /// When the folder can't be walked.
    pub fn folder(mut self, bucket: &str, dir: &Path) -> anyhow::Result<Self> {
        let mut folders: Vec<PathBuf> = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in
                std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
            {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let key = path.strip_prefix(dir)?.to_str().context("a file name is not UTF-8")?.to_owned();
                self = self.add(bucket, &key, Object::file(path)?);
            }
        }
        Ok(self)
    }

    /// Answers only requests that this access key signs.
    pub fn credentials(mut self, access_key: &str) -> Self {
        self.access_key = Some(access_key.to_owned());
        self
    }

    /// Says that its buckets are in this region, and refuses requests signed for another.
    pub fn region(mut self, region: &str) -> Self {
        self.region = Some(region.to_owned());
        self
    }

    /// Denies access to keys and listings that begin with this.
    pub fn deny(mut self, prefix: &str) -> Self {
        self.denied.push(prefix.to_owned());
        self
    }

    /// Makes it slow.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Threads that serve; 2 if not set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The port; a free one if not set.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Serves HTTPS, by a certificate of [`TestS3::ca_pem`]'s authority.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the port can't be had.
    pub fn start(self) -> anyhow::Result<TestS3> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("test-s3")
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let tls = self.tls.then(tls::acceptor).transpose()?;
        let (acceptor, ca_pem) = tls.unzip();
        let shared = Arc::new(Shared {
            buckets: RwLock::new(self.buckets),
            counters: Counters::default(),
            faults: Faults::default(),
            shape: Mutex::new(self.shape),
            frozen: AtomicBool::new(false),
            next_request: AtomicU64::new(1),
            strict_region: self.region.is_some(),
            region: self.region.unwrap_or_else(|| "us-east-1".to_owned()),
            access_key: self.access_key,
            denied: self.denied,
        });
        runtime.spawn(accept(listener, acceptor, shared.clone()));
        Ok(TestS3 { shared, address, ca_pem, runtime: Some(runtime) })
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // A listener that fails has run out of descriptors: the connection that finds none is gone.
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        shared.counters.connection();
        tune(&stream);
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, shared).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, shared).await;
                    }
                }
            }
        });
    }
}

/// Sends at once, and under cubic: BBR, where it is the system's default, halves loopback.
fn tune(stream: &TcpStream) {
    // Either is only a matter of speed.
    let _ = (stream.set_nodelay(true), setsockopt(stream, TcpCongestion, &OsString::from("cubic")));
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { handler::handle(&shared, request).await }
    });
    // A connection that ends in an error was broken by a fault, or by the client.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A running server. Dropping it ends it and breaks its connections.
#[derive(Debug)]
pub struct TestS3 {
    shared: Arc<Shared>,
    address: SocketAddr,
    ca_pem: Option<String>,
    runtime: Option<Runtime>,
}

impl TestS3 {
    /// A server without buckets, on a free port.
    pub fn builder() -> Builder {
        Builder {
            buckets: Buckets::new(),
            region: None,
            access_key: None,
            denied: Vec::new(),
            shape: Shape::fast(),
            threads: 2,
            port: 0,
            tls: false,
        }
    }

    /// Its URL. Its name is `localhost` under TLS, its address otherwise.
    pub fn endpoint(&self) -> String {
        match self.ca_pem {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The certificate of the authority to trust under TLS, as PEM.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    fn insert(&self, bucket: &str, key: &str, object: Object) {
        self.shared.write().entry(bucket.to_owned()).or_default().insert(key.to_owned(), object);
    }

    /// Puts an object.
    pub fn put(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        self.insert(bucket, key, Object::bytes(bytes.into()));
    }

    /// Puts an object of computed content.
    pub fn put_synthetic(&self, bucket: &str, key: &str, size: u64) {
        self.insert(bucket, key, Object::synthetic(key, size));
    }

    /// Deletes an object.
    pub fn delete(&self, bucket: &str, key: &str) {
        self.shared.write().get_mut(bucket).and_then(|keys| keys.remove(key));
    }

    /// Makes it slow, or fast again.
    pub fn shape(&self, shape: Shape) {
        self.shared.set_shape(shape);
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults.add(fault);
    }

    /// While frozen, requests are taken and not answered.
    pub fn freeze(&self, frozen: bool) {
        self.shared.frozen.store(frozen, Ordering::Relaxed);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&self) {
        self.shared.counters.reset();
    }

    /// The ranges of `key` that were sent since the counters were zero, in order.
    pub fn ranges(&self, key: &str) -> Vec<Range<u64>> {
        self.shared.counters.ranges(key)
    }
}

impl Drop for TestS3 {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
