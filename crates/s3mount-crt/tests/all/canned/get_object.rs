//! The bytes of a part are written into the lent buffer; if the part fails, the buffer comes back.

use std::time::Duration;

use s3mount_object::{ByteRange, ETag, ErrorKind, GetObject, ObjectClient as _, ObjectId};

use super::store::{
    self, ETAG, Lent, OBJECT_BYTES, Reply, Request, Store, answer, asked, content, error, get, run,
    serve_range,
};

/// The range that most tests ask for.
fn range() -> ByteRange {
    ByteRange::new(1000, 301_000)
}

/// Sends a GET to a store that always answers with `reply`, and returns the kind of the error. The buffer has
/// to come back.
async fn kind_of(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> ErrorKind {
    let client = Store::new(reply).client();
    let (buffer, lender) = Lent::new(range().len());
    let error = client.get_object(get("k", range()), buffer).await.unwrap_err();
    lender.wait();
    error.kind().clone()
}

#[test]
fn a_part_lands_in_the_lent_buffer() {
    run(async {
        let store = Store::new(|request| Reply::Send(serve_range(request)));
        let client = store.client();
        // The buffer may be longer than the range.
        for spare in [0, 1, 5000] {
            let (buffer, lender) = Lent::new(range().len() + spare);
            let bytes = client.get_object(get("a b/ü+%2F", range()), buffer).await.unwrap().bytes;
            assert_eq!(bytes.as_ptr(), lender.address, "no copy");
            assert_eq!(bytes, content(range()));
            let tail = bytes.slice(bytes.len() - 1..);
            drop(bytes);
            std::thread::sleep(Duration::from_millis(100));
            assert!(lender.is_lent(), "one byte keeps the buffer");
            drop(tail);
            lender.wait();
        }
        let seen = store.seen();
        assert_eq!(seen.len(), 3, "one request a part");
        assert_eq!(seen[0].path, "/bucket/a%20b/%C3%BC%2B%252F");
        assert_eq!(seen[0].headers["range"], "bytes=1000-300999");
        assert_eq!(seen[0].headers["if-match"], ETAG);
        assert!(seen[0].headers["user-agent"].starts_with("s3mount/"));
        assert!(seen[0].headers["authorization"].starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"));
    });
}

#[test]
fn large_parts_are_one_request() {
    run(async {
        let store = Store::new(|request| Reply::Send(serve_range(request)));
        let client = store.client();
        let whole = ByteRange::new(0, 40 << 20);
        let (buffer, lender) = Lent::new(whole.len());
        let error = client.get_object(get("k", whole), buffer).await.unwrap_err();
        // The store says that the object is smaller, so the client refuses the answer, after one request.
        assert_eq!(*error.kind(), ErrorKind::Integrity);
        lender.wait();
        let whole = ByteRange::new(0, OBJECT_BYTES);
        let (buffer, lender) = Lent::new(whole.len());
        let bytes = client.get_object(get("k", whole), buffer).await.unwrap().bytes;
        assert_eq!((bytes.as_ptr(), bytes.len()), (lender.address, 4 << 20));
        assert_eq!(store.seen().len(), 2);
    });
}

#[test]
fn bytes_survive_the_client() {
    run(async {
        let client = Store::new(|request| Reply::Send(serve_range(request))).client();
        let (buffer, lender) = Lent::new(range().len());
        let bytes = client.get_object(get("k", range()), buffer).await.unwrap().bytes;
        drop(client);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(bytes, content(range()));
        assert!(lender.is_lent());
        drop(bytes);
        lender.wait();
    });
}

#[test]
fn many_parts_at_once_keep_to_their_buffers() {
    const PART_BYTES: u64 = 64 << 10;
    run(async {
        let client = Store::new(|request| Reply::Send(serve_range(request))).client();
        let mut lenders = Vec::new();
        let parts = (0..64).map(|part| {
            let range = ByteRange::new(part * PART_BYTES, (part + 1) * PART_BYTES);
            let (buffer, lender) = Lent::new(PART_BYTES);
            lenders.push(lender);
            client.get_object(get("k", range), buffer)
        });
        let parts = futures::future::join_all(parts.collect::<Vec<_>>()).await;
        for (part, (bytes, lender)) in (0..64).zip(parts.into_iter().zip(&lenders)) {
            let bytes = bytes.unwrap().bytes;
            let range = ByteRange::new(part * PART_BYTES, (part + 1) * PART_BYTES);
            assert_eq!(bytes.as_ptr(), lender.address);
            assert!(bytes == content(range), "part {part}");
        }
        lenders.iter().for_each(store::Lender::wait);
    });
}

#[test]
fn a_retry_writes_into_the_same_buffer() {
    run(async {
        for broken in [
            |_: &Request| Reply::Send(error("503 Slow Down", "SlowDown")),
            // Half of the body comes, and its last 1,000 bytes are wrong.
            |request: &Request| {
                let mut bytes = serve_range(request);
                bytes.truncate(bytes.len() / 2);
                bytes.iter_mut().rev().take(1000).for_each(|byte| *byte = 0);
                Reply::SendAndClose(bytes)
            },
        ] {
            let store = Store::new(move |request| match request.number {
                0 => broken(request),
                _ => Reply::Send(serve_range(request)),
            });
            let client = store.client();
            let (buffer, lender) = Lent::new(range().len());
            let bytes = client.get_object(get("k", range()), buffer).await.unwrap().bytes;
            assert_eq!(bytes.as_ptr(), lender.address);
            assert!(bytes == content(range()));
            assert_eq!(store.seen().len(), 2);
            drop(bytes);
            lender.wait();
        }
    });
}

#[test]
fn dropping_the_future_returns_the_buffer() {
    run(async {
        for reply in [
            |_: &Request| Reply::SendAndStall(Vec::new()),
            |request: &Request| {
                let mut bytes = serve_range(request);
                bytes.truncate(200_000);
                Reply::SendAndStall(bytes)
            },
        ] {
            let store = Store::new(reply);
            let client = store.client();
            // The request is dropped before its first poll, before the CRT asks for memory, and in the middle
            // of the body.
            for wait in [None, Some(0), Some(300)] {
                let (buffer, lender) = Lent::new(range().len());
                let part = client.get_object(get("k", range()), buffer);
                if let Some(millis) = wait {
                    let waited = tokio::time::timeout(Duration::from_millis(millis), part).await;
                    assert!(waited.is_err(), "the store stalls");
                } else {
                    drop(part);
                }
                lender.wait();
            }
        }
    });
}

#[test]
fn another_version_is_refused() {
    run(async {
        // A store that knows If-Match refuses the request itself. For a store that does not, the client
        // refuses the answer.
        let refused = |_: &Request| Reply::Send(error("412 Precondition Failed", "PreconditionFailed"));
        assert_eq!(kind_of(refused).await, ErrorKind::PreconditionFailed);
        let ignored = |request: &Request| {
            let came = asked(request);
            let content_range = format!("Content-Range: bytes {}-{}/9999999", came.start(), came.end() - 1);
            let headers = [content_range.as_str(), "ETag: \"other\""];
            Reply::Send(answer("206 Partial Content", &headers, &content(came)))
        };
        assert_eq!(kind_of(ignored).await, ErrorKind::PreconditionFailed);
    });
}

#[test]
fn etags_compare_without_their_quotes() {
    run(async {
        let client = Store::new(|request| Reply::Send(serve_range(request))).client();
        let object = ObjectId::new("k", ETag::new(ETAG.trim_matches('"')));
        let (buffer, _lender) = Lent::new(range().len());
        let bytes = client.get_object(GetObject { object, range: range() }, buffer).await;
        assert_eq!(bytes.unwrap().bytes, content(range()));
    });
}

#[test]
fn statuses_become_kinds() {
    run(async {
        let cases = [
            ("404 Not Found", "NoSuchKey", ErrorKind::NotFound),
            ("404 Not Found", "NoSuchBucket", ErrorKind::NoSuchBucket),
            ("403 Forbidden", "AccessDenied", ErrorKind::Forbidden),
            ("403 Forbidden", "InvalidAccessKeyId", ErrorKind::BadCredentials),
            ("403 Forbidden", "InvalidObjectState", ErrorKind::Archived),
            ("416 Range Not Satisfiable", "InvalidRange", ErrorKind::RangeNotSatisfiable),
            ("503 Slow Down", "SlowDown", ErrorKind::Throttled),
            ("500 Internal Server Error", "InternalError", ErrorKind::Server),
            ("405 Method Not Allowed", "MethodNotAllowed", ErrorKind::Rejected),
        ];
        for (status, code, kind) in cases {
            let reply = move |_: &Request| Reply::Send(error(status, code));
            assert_eq!(kind_of(reply).await, kind, "{status} {code}");
        }
    });
}

#[test]
fn errors_keep_what_the_store_said() {
    run(async {
        let client = Store::new(|_| Reply::Send(error("403 Forbidden", "AccessDenied"))).client();
        let (buffer, _lender) = Lent::new(range().len());
        let error = client.get_object(get("k", range()), buffer).await.unwrap_err();
        let detail = error.detail();
        assert_eq!(detail.status, Some(403));
        assert_eq!(detail.code.as_deref(), Some("AccessDenied"));
        assert_eq!(detail.message.as_deref(), Some("said so"));
        assert_eq!(detail.request_id.as_deref(), Some("R1"));
    });
}

#[test]
fn a_body_that_is_not_the_range_is_refused() {
    /// Answers every request with `bytes` of the object, under the header `content_range`.
    fn odd(content_range: &'static str, bytes: ByteRange) -> impl Fn(&Request) -> Reply {
        move |_| {
            let etag = format!("ETag: {ETAG}");
            let headers = [etag.as_str(), content_range];
            Reply::Send(answer("206 Partial Content", &headers, &content(bytes)))
        }
    }
    run(async {
        // The body is shorter than the range, and the header says so or does not.
        let short = ByteRange::new(1000, 2000);
        let kind = kind_of(odd("Content-Range: bytes 1000-1999/9999999", short)).await;
        assert_eq!(kind, ErrorKind::Integrity);
        let kind = kind_of(odd("Content-Range: bytes 1000-300999/9999999", short)).await;
        assert_eq!(kind, ErrorKind::Integrity);
        // The body is longer than the range.
        let long = ByteRange::new(1000, 400_000);
        let kind = kind_of(odd("Content-Range: bytes 1000-300999/9999999", long)).await;
        assert_eq!(kind, ErrorKind::Integrity);
        // The body has the right length, but begins elsewhere.
        let kind = kind_of(odd("Content-Range: bytes 2000-301999/9999999", range())).await;
        assert_eq!(kind, ErrorKind::Integrity);
        // The body is the whole object, without a Content-Range.
        let whole = |_: &Request| {
            let etag = format!("ETag: {ETAG}");
            Reply::Send(answer("200 OK", &[&etag], &content(range())))
        };
        assert_eq!(kind_of(whole).await, ErrorKind::Integrity);
    });
}

#[test]
fn a_wrong_start_does_not_multiply_requests() {
    run(async {
        let store = Store::new(|_| {
            let etag = format!("ETag: {ETAG}");
            let headers = [etag.as_str(), "Content-Range: bytes 0-299999/999999999"];
            Reply::Send(answer("206 Partial Content", &headers, &content(ByteRange::new(0, 300_000))))
        });
        let client = store.client();
        let far = ByteRange::new(900_000_000, 900_300_000);
        let (buffer, lender) = Lent::new(far.len());
        let error = client.get_object(get("k", far), buffer).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Integrity);
        lender.wait();
        std::thread::sleep(Duration::from_millis(300));
        // The CRT would have fetched 3,000 parts from the start of the object.
        assert!(store.seen().len() < 50, "{}", store.seen().len());
    });
}

#[test]
fn an_object_without_etag_is_refused_at_once() {
    run(async {
        let content_range = "Content-Range: bytes 1000-300999/9999999";
        let store = Store::new(move |_| {
            Reply::Send(answer("206 Partial Content", &[content_range], &content(range())))
        });
        let client = store.client();
        let (buffer, lender) = Lent::new(range().len());
        let error = client.get_object(get("k", range()), buffer).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoEtag, "{error}");
        assert!(!error.is_retryable());
        lender.wait();
        // If the listing has no ETag either, the client sends no request.
        let seen = store.seen().len();
        let nameless = GetObject { object: ObjectId::new("k", ETag::new("\"\"")), range: range() };
        let (buffer, lender) = Lent::new(range().len());
        let error = client.get_object(nameless, buffer).await.unwrap_err();
        assert_eq!((error.kind(), store.seen().len()), (&ErrorKind::NoEtag, seen));
        lender.wait();
    });
}

#[test]
fn nobody_at_the_address_is_a_network_error() {
    run(async {
        let nobody = ([127, 0, 0, 1], 1).into();
        let client = s3mount_crt::CrtClient::new(store::config(nobody)).unwrap();
        let (buffer, lender) = Lent::new(range().len());
        let error = client.get_object(get("k", range()), buffer).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Network, "{error}");
        assert!(error.is_retryable());
        lender.wait();
    });
}

#[test]
fn a_range_that_does_not_fit_is_refused_at_once() {
    run(async {
        let store = Store::new(|request| Reply::Send(serve_range(request)));
        let client = store.client();
        for (range, len) in [(range(), range().len() - 1), (ByteRange::new(5, 5), 10)] {
            let (buffer, lender) = Lent::new(len);
            let error = client.get_object(get("k", range), buffer).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Rejected);
            lender.wait();
        }
        assert!(store.seen().is_empty());
    });
}
