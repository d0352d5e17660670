//! A store of canned answers, and lent buffers that report when they come back.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ByteRange, ETag, GetObject, ObjectId};

/// The time after which a test that hangs is ended.
const LIMIT: Duration = Duration::from_secs(100);

/// The size of the object that [`serve_range`] serves.
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;

/// The ETag of that object.
pub(crate) const ETAG: &str = "\"0123456789abcdef-2\"";

/// Runs a test, at most for [`LIMIT`].
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("in time") });
}

/// The head of a request. The names of headers are in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    /// The number of requests before this one, on all connections.
    pub(crate) number: usize,
}

/// What the store does with a request.
pub(crate) enum Reply {
    /// Sends these bytes, which include the head, and takes the next request.
    Send(Vec<u8>),
    /// Sends these bytes and closes the connection.
    SendAndClose(Vec<u8>),
    /// Sends these bytes, and nothing after them.
    SendAndStall(Vec<u8>),
}

/// An answer with a `Content-Length`. `headers` are lines without line ends.
pub(crate) fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len()).into_bytes();
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// An S3 error.
pub(crate) fn error(status: &str, code: &str) -> Vec<u8> {
    let body = format!("<Error><Code>{code}</Code><Message>said so</Message></Error>");
    let headers = ["Content-Type: application/xml", "x-amz-request-id: R1"];
    answer(status, &headers, body.as_bytes())
}

/// The object's bytes in `range`.
pub(crate) fn content(range: ByteRange) -> Vec<u8> {
    (range.start()..range.end())
        .map(|at| u8::try_from((at * 7 + at / 253) % 251).expect("below 251"))
        .collect()
}

/// The range that a request asks for.
pub(crate) fn asked(request: &Request) -> ByteRange {
    let text = request.headers.get("range").expect("a Range header");
    let (first, last) =
        text.strip_prefix("bytes=").and_then(|range| range.split_once('-')).expect("a range of bytes");
    let last: u64 = last.parse().expect("its last byte");
    ByteRange::new(first.parse().expect("its first byte"), last + 1)
}

/// The answer to a ranged GET, as S3 gives it.
pub(crate) fn serve_range(request: &Request) -> Vec<u8> {
    let range = asked(request);
    let (first, last) = (range.start(), range.end() - 1);
    let content_range = format!("Content-Range: bytes {first}-{last}/{OBJECT_BYTES}");
    let etag = format!("ETag: {ETAG}");
    answer("206 Partial Content", &[&content_range, &etag], &content(range))
}

/// A store that answers with `reply`. It lives as long as the test.
pub(crate) struct Store {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Store {
    pub(crate) fn new(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (seen, reply) = (Arc::new(Mutex::new(Vec::new())), Arc::new(reply));
        let requests = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, reply, seen) = (stream.expect("a stream"), reply.clone(), requests.clone());
                thread::spawn(move || serve(&stream, &*reply, &seen));
            }
        });
        Self { address, seen }
    }

    /// The requests that the store has received.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn config(&self) -> CrtConfig {
        config(self.address)
    }

    pub(crate) fn client(&self) -> CrtClient {
        CrtClient::new(self.config()).expect("a client")
    }
}

pub(crate) fn config(address: SocketAddr) -> CrtConfig {
    CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(format!("http://{address}")),
        credentials: Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI".to_owned(),
            session_token: None,
        },
        ..CrtConfig::new("bucket")
    }
}

fn serve(stream: &TcpStream, reply: &dyn Fn(&Request) -> Reply, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(mut request) = read_head(&mut reader) {
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            request.number = seen.len();
            seen.push(request.clone());
        }
        // The client may close the connection while the store writes.
        match reply(&request) {
            Reply::Send(bytes) => {
                if writer.write_all(&bytes).is_err() {
                    return;
                }
            }
            Reply::SendAndClose(bytes) => {
                let _ = writer.write_all(&bytes);
                return;
            }
            Reply::SendAndStall(bytes) => {
                let _ = writer.write_all(&bytes);
                // Wait until the client closes the connection.
                let _ = read_head(&mut reader);
                return;
            }
        }
    }
}

fn read_head(reader: &mut impl std::io::BufRead) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    Some(Request { method, path, headers, number: 0 })
}

/// A GET of `key`.
pub(crate) fn get(key: &str, range: ByteRange) -> GetObject {
    GetObject { object: ObjectId::new(key, ETag::new(ETAG)), range }
}

/// Memory to lend. It reports when the client gives it back.
pub(crate) struct Lent {
    memory: Box<[u8]>,
    back: Sender<()>,
}

/// Receives the report that a buffer came back.
pub(crate) struct Lender {
    back: Receiver<()>,
    /// The address of the buffer.
    pub(crate) address: *const u8,
}

impl Lender {
    /// Whether the buffer has not come back yet.
    pub(crate) fn is_lent(&self) -> bool {
        self.back.try_recv().is_err()
    }

    /// Waits until the buffer comes back.
    pub(crate) fn wait(&self) {
        match self.back.recv_timeout(Duration::from_secs(20)) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("the buffer did not come back");
            }
        }
    }
}

impl Lent {
    pub(crate) fn new(len: u64) -> (Box<Self>, Lender) {
        let memory = vec![0xAA; usize::try_from(len).expect("a size")].into_boxed_slice();
        let (sender, back) = channel();
        let address = memory.as_ptr();
        let lent = Box::new(Self { memory, back: sender });
        (lent, Lender { back, address })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The test may be over, so nobody may receive this.
        let _ = self.back.send(());
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}
