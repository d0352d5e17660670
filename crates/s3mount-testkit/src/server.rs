//! The S3 server.
//!
//! The server uses hyper directly, because that is cheap. To send 1 GiB of a synthetic object takes 0.21 CPU
//! seconds on one connection, and 0.25 on four (release build, 4 cores, `curl` reading ranges of 1 GiB).
//! Nearly all of this time is the kernel's, which sends the bytes. A body is a slice of memory that exists
//! already.
//!
//! The server checks which access key signs a request. It does not check the signature itself.

mod answer;
mod body;
mod connection;
mod control;
mod directory_bucket;
pub(crate) mod fault;
mod handler;
pub(crate) mod inspect;
mod multipart;
mod read_xml;
mod received;
mod request;
mod sessions;
pub(crate) mod shape;
mod shared;
pub(crate) mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
#[cfg(test)]
mod upload_tests;
mod upload_xml;
mod write_headers;
mod writes;
mod xml;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use bytes::Bytes;
use s3mount_object::ChecksumAlgorithm;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::object::Object;
use crate::server::fault::{Fault, Faults};
use crate::server::sessions::{Sessions, is_directory_bucket};
use crate::server::shape::{Copies, Limiter, Shape};
use crate::server::shared::{Buckets, Shared};
use crate::server::stats::{Counters, Stats};
use crate::uploads::Rules;

/// How long a server waits for the port of one that has stopped.
const PORT_AGAIN: Duration = Duration::from_secs(20);

/// Settings of a server that is not started yet.
#[derive(Debug)]
pub struct Builder {
    buckets: Buckets,
    region: Option<String>,
    access_key: Option<String>,
    owner: Option<String>,
    requester_pays: bool,
    denied: Vec<String>,
    allowed: Option<String>,
    checksum: Option<ChecksumAlgorithm>,
    upload_part: Option<u64>,
    refuses_conditions: bool,
    rules: Rules,
    opaque_etags: bool,
    drops_uploads: bool,
    session_life: Duration,
    shape: Shape,
    threads: usize,
    listen: SocketAddr,
    waits_for_port: bool,
    tls: bool,
}

impl Builder {
    /// Adds an empty bucket. If its name ends in `--x-s3`, it is a directory bucket: it wants sessions, lists in no
    /// order, gives random `ETag`s, renames objects, and knows neither tags nor storage classes.
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

    /// Adds an empty object that was written at `modified`.
    pub fn written_at(self, bucket: &str, key: &str, modified: SystemTime) -> Self {
        self.add(bucket, key, Object { modified, ..Object::bytes(Bytes::new()) })
    }

    /// Adds an object in an archive, which has to be restored before it can be read.
    pub fn archived(self, bucket: &str, key: &str, size: u64) -> Self {
        let mut object = Object::synthetic(key, size);
        object.beside.storage_class = Some("GLACIER".to_owned());
        self.add(bucket, key, object)
    }

    /// Adds each file below `dir` as an object.
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

    /// Makes the server answer only requests that this access key signs.
    pub fn credentials(mut self, access_key: &str) -> Self {
        self.access_key = Some(access_key.to_owned());
        self
    }

    /// Makes the buckets belong to this account, and refuses requests that do not name it as the expected owner.
    /// S3 refuses those that name another one.
    pub fn owner(mut self, account: &str) -> Self {
        self.owner = Some(account.to_owned());
        self
    }

    /// Refuses requests whose sender does not say that it pays for them.
    pub fn requester_pays(mut self) -> Self {
        self.requester_pays = true;
        self
    }

    /// Puts the buckets into this region. The server refuses requests that are signed for another region.
    pub fn region(mut self, region: &str) -> Self {
        self.region = Some(region.to_owned());
        self
    }

    /// Denies access to keys, and to listings of prefixes, that begin with `prefix`.
    pub fn deny(mut self, prefix: &str) -> Self {
        self.denied.push(prefix.to_owned());
        self
    }

    /// Denies access to all keys and listings but those whose key or prefix begins with `prefix`. So does an
    /// IAM policy that is scoped to a prefix.
    pub fn allow_only(mut self, prefix: &str) -> Self {
        self.allowed = Some(prefix.to_owned());
        self
    }

    /// Sets the checksum that the server keeps of each object. S3 keeps CRC-64/NVME by default, and so does
    /// this server. With `None`, it keeps no checksum.
    pub fn checksum(mut self, algorithm: Option<ChecksumAlgorithm>) -> Self {
        self.checksum = algorithm;
        self
    }

    /// Treats each object that is longer than `len` bytes as uploaded in parts of `len` bytes. The server
    /// then keeps this checksum of each part, and none of the whole object. S3 does so by default for CRC-32
    /// and CRC-32C.
    pub fn uploaded_in_parts(mut self, len: u64, algorithm: ChecksumAlgorithm) -> Self {
        self.upload_part = Some(len.max(1));
        self.checksum(Some(algorithm))
    }

    /// Makes the server refuse uploads with conditions by 501, as a store does that knows none.
    pub fn refuse_conditions(mut self) -> Self {
        self.refuses_conditions = true;
        self
    }

    /// Sets the smallest part but the last that an upload may have, in bytes. S3 has 5 MiB, and so has this
    /// server without this call.
    pub fn min_part(mut self, bytes: u64) -> Self {
        self.rules.min_part = bytes;
        self
    }

    /// Makes the server refuse uploads whose parts differ in length, except the last, as R2 does.
    pub fn equal_parts(mut self) -> Self {
        self.rules.equal_parts = true;
        self
    }

    /// Makes ETags random instead of MD5s, as those are that S3 gives to objects that it encrypts with KMS
    /// keys. This also saves the time for MD5, which takes 1.6 s for 1 GiB.
    pub fn opaque_etags(mut self) -> Self {
        self.opaque_etags = true;
        self
    }

    /// Drops the bytes of PutObject and UploadPart when their checksums are known, so that uploads of any
    /// length take no memory. The objects can be listed and copied, but GETs of them fail by 500.
    pub fn drop_uploads(mut self) -> Self {
        self.drops_uploads = true;
        self
    }

    /// Sets how long a session of a directory bucket is good for. S3 has 5 minutes, and so has this server without
    /// this call.
    pub fn session_life(mut self, life: Duration) -> Self {
        self.session_life = life;
        self
    }

    /// Makes the server as slow as `shape` says.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Sets how many threads serve requests. Without this, there are 2.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the port. Without this, the kernel chooses a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.listen.set_port(port);
        self
    }

    /// Sets the port to that of a server which has stopped. A connection of another program may have taken it
    /// meanwhile: [`start`](Self::start) waits up to 20 s for it.
    pub fn port_again(self, port: u16) -> Self {
        Self { waits_for_port: true, ..self.port(port) }
    }

    /// Sets the address to listen on. Without this, it is 127.0.0.1. The address belongs to the network
    /// namespace of the thread that starts the server.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.listen.set_ip(address);
        self
    }

    /// Makes the server speak HTTPS. Its certificate is signed by the authority of [`TestS3::ca_pem`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When the server can't listen on the address and the port.
    pub fn start(mut self) -> anyhow::Result<TestS3> {
        if let Some(len) = self.upload_part {
            let objects = self.buckets.values_mut().flat_map(|keys| keys.values_mut());
            objects.for_each(|object| object.upload_in_parts(len));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name("test-s3")
            .enable_all()
            .build()?;
        let until = Instant::now() + if self.waits_for_port { PORT_AGAIN } else { Duration::ZERO };
        let listener = loop {
            match std::net::TcpListener::bind(self.listen) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                result => break result?,
            }
        };
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
            limiter: Limiter::default(),
            copies: Copies::default(),
            frozen: AtomicBool::new(false),
            thaws: AtomicU64::new(0),
            quit: Notify::new(),
            next_request: AtomicU64::new(1),
            strict_region: self.region.is_some(),
            region: self.region.unwrap_or_else(|| "us-east-1".to_owned()),
            access_key: RwLock::new(self.access_key),
            owner: self.owner,
            requester_pays: self.requester_pays,
            denied: self.denied,
            allowed: self.allowed,
            checksum: self.checksum,
            upload_part: self.upload_part,
            refuses_conditions: self.refuses_conditions,
            uploads: Mutex::default(),
            rules: self.rules,
            opaque_etags: self.opaque_etags,
            drops_uploads: self.drops_uploads,
            sessions: Sessions::new(self.session_life),
            renames: Mutex::default(),
            tags: AtomicU64::new(1),
        });
        for (bucket, keys) in &mut *shared.write() {
            if is_directory_bucket(bucket) {
                keys.values_mut().for_each(|object| object.etag = format!("\"{}\"", shared.opaque_tag()));
            }
        }
        runtime.spawn(connection::accept(listener, acceptor, shared.clone()));
        Ok(TestS3 { shared, address, ca_pem, runtime: Some(runtime) })
    }
}

/// How long a session of a directory bucket is good for at S3 (API reference of CreateSession).
const SESSION_LIFE: Duration = Duration::from_secs(300);

/// How long [`TestS3::stop`] waits at most for the server's tasks. None of these tasks blocks a thread.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A running server. Dropping it ends the server and breaks its connections.
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
            owner: None,
            requester_pays: false,
            denied: Vec::new(),
            allowed: None,
            checksum: Some(ChecksumAlgorithm::Crc64Nvme),
            upload_part: None,
            refuses_conditions: false,
            rules: Rules::default(),
            opaque_etags: false,
            drops_uploads: false,
            session_life: SESSION_LIFE,
            shape: Shape::fast(),
            threads: 2,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            waits_for_port: false,
            tls: false,
        }
    }

    /// The server's URL. It has the name `localhost` under TLS, and the address otherwise.
    pub fn endpoint(&self) -> String {
        match self.ca_pem {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The certificate of the authority that a client has to trust under TLS, as PEM.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    fn insert(&self, bucket: &str, key: &str, mut object: Object) {
        if let Some(len) = self.shared.upload_part {
            object.upload_in_parts(len);
        }
        if is_directory_bucket(bucket) {
            object.etag = format!("\"{}\"", self.shared.opaque_tag());
        }
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

    /// The keys of a bucket, in order.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.shared.read().get(bucket).map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Deletes an object.
    pub fn delete(&self, bucket: &str, key: &str) {
        self.shared.write().get_mut(bucket).and_then(|keys| keys.remove(key));
    }

    /// Makes the server slow, or fast again.
    pub fn shape(&self, shape: Shape) {
        self.shared.set_shape(shape);
    }

    /// Makes the server answer only requests that this access key signs.
    pub fn set_access_key(&self, access_key: &str) {
        *self.shared.access_key.write().unwrap_or_else(PoisonError::into_inner) = Some(access_key.to_owned());
    }

    /// Ends all sessions of directory buckets before their time.
    pub fn end_sessions(&self) {
        self.shared.sessions.end_all();
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults.add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// While the server is frozen, it takes requests but does not answer them.
    pub fn freeze(&self, frozen: bool) {
        self.shared.freeze(frozen);
    }

    /// Answers all requests that wait: those that came while the server was frozen, and those that
    /// [`FaultKind::Freeze`](crate::FaultKind::Freeze) holds.
    pub fn thaw(&self) {
        self.freeze(false);
    }

    /// Sets whether the ranges of GETs are written down for [`ranges`](Self::ranges). They are from the
    /// start, up to a million ranges.
    pub fn log_ranges(&self, log: bool) {
        self.shared.counters.log_ranges(log);
    }

    /// Returns when a request to `/_test/quit` asks the server to end.
    pub async fn quit_requested(&self) {
        self.shared.quit.notified().await;
    }

    /// Ends the server, waits until its port is free, and returns the port. Dropping the server does not
    /// wait.
    ///
    /// # Panics
    /// When it is called in async code, because it blocks the thread.
    pub fn stop(mut self) -> u16 {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOP_LIMIT);
        }
        self.address.port()
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&self) {
        self.shared.counters.reset();
    }

    /// The ranges of `key` that were sent since the counters were set to zero, in order.
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
