//! Tests of the server through plain sockets, as any client sees it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{Builder, Fault, FaultKind, FirstByte, Operation, Shape, TestS3, check};

const MIB: u64 = 1 << 20;

/// An answer. Its body is all that came before the connection closed.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Reply {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Sends one request on a connection of its own. Returns `None` when no answer came back.
pub(super) fn send(server: &TestS3, request: &str, headers: &[&str], body: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(100))).expect("a limit");
    let host = if headers.iter().any(|header| header.starts_with("Host:")) { "" } else { "Host: x\r\n" };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head =
        format!("{request} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("a request sent");
    let mut answer = Vec::new();
    // A connection that breaks is an allowed answer, too.
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.into()));
    Some(Reply { status, headers: lines.filter_map(header).collect(), body: answer[end + 4..].to_vec() })
}

pub(super) fn ask(server: &TestS3, request: &str, headers: &[&str]) -> Reply {
    send(server, request, headers, b"").expect("an answer")
}

/// Sends a request, and compares the answer's status, and the error code in the answer's body.
pub(super) fn expect(server: &TestS3, request: &str, headers: &[&str], status: u16, code: &str) -> Reply {
    let reply = ask(server, request, headers);
    assert_eq!(reply.status, status, "{request}: {}", reply.text());
    let code = if code.is_empty() { String::new() } else { format!("<Code>{code}</Code>") };
    assert!(reply.text().contains(&code), "{request}: {}", reply.text());
    assert!(!reply.header("x-amz-request-id").is_empty());
    assert!(!reply.header("x-amz-bucket-region").is_empty());
    reply
}

pub(super) fn start(builder: Builder) -> TestS3 {
    builder.start().expect("a server")
}

#[test]
fn objects_are_served_whole_and_by_range() {
    let server = start(TestS3::builder().synthetic("b", "d/k", 3 * MIB).object("b", "e", ""));
    let whole = expect(&server, "GET /b/d/k", &[], 200, "");
    assert_eq!((whole.body.len() as u64, whole.header("accept-ranges")), (3 * MIB, "bytes"));
    assert_eq!(whole.header("content-type"), "binary/octet-stream");
    check("d/k", 0, &whole.body).expect("the object's bytes");
    httpdate::parse_http_date(whole.header("last-modified")).expect("a date");
    for (range, start, end) in [
        ("0-0", 0, 1),
        ("1048570-2097160", MIB - 6, 2 * MIB + 9),
        ("3145000-", 3_145_000, 3 * MIB),
        ("-7", 3 * MIB - 7, 3 * MIB),
    ] {
        let part = expect(&server, "GET /b/d/k", &[&format!("Range: bytes={range}")], 206, "");
        let content_range = format!("bytes {start}-{}/{}", end - 1, 3 * MIB);
        assert_eq!((part.body.len() as u64, part.header("content-range")), (end - start, &*content_range));
        check("d/k", start, &part.body).expect("the range's bytes");
    }
    expect(&server, "GET /b/d/k", &["Range: bytes=3145728-"], 416, "InvalidRange");
    expect(&server, "GET /b/none", &[], 404, "NoSuchKey");
    expect(&server, "GET /c/none", &[], 404, "NoSuchBucket");
    assert_eq!(expect(&server, "GET /b/e", &[], 200, "").header("content-length"), "0");
    assert_eq!(server.ranges("d/k").len(), 5);
    server.log_ranges(false);
    expect(&server, "GET /b/d/k", &["Range: bytes=0-1"], 206, "");
    assert_eq!(server.ranges("d/k").len(), 5);
}

#[test]
fn a_head_tells_what_a_get_would_and_has_no_body() {
    let server = start(TestS3::builder().object("b", "k", "hello").archived("b", "old", 9));
    let (get, head) = (ask(&server, "GET /b/k", &[]), ask(&server, "HEAD /b/k", &[]));
    for header in ["etag", "content-length", "last-modified", "content-type"] {
        assert_eq!(get.header(header), head.header(header), "{header}");
    }
    assert!(head.body.is_empty());
    for (request, status) in [("HEAD /b", 200), ("HEAD /none", 404), ("HEAD /b/none", 404)] {
        assert!(expect(&server, request, &[], status, "").body.is_empty());
    }
    assert_eq!(ask(&server, "HEAD /b/old", &[]).header("x-amz-storage-class"), "GLACIER");
    expect(&server, "GET /b/old", &[], 403, "InvalidObjectState");
    let etag = get.header("etag");
    expect(&server, "GET /b/k", &[&format!("If-Match: {etag}")], 200, "");
    expect(&server, "GET /b/k", &["If-Match: \"other\""], 412, "PreconditionFailed");
    assert!(expect(&server, "GET /b/k", &[&format!("If-None-Match: {etag}")], 304, "").body.is_empty());
}

#[test]
fn what_is_put_can_be_read_and_deleted() {
    let server = start(TestS3::builder().bucket("b"));
    let put = |headers: &[&str], body: &[u8]| send(&server, "PUT /b/a%20b/%C3%BC", headers, body);
    let first = put(&[], b"hello").expect("an answer");
    assert_eq!(ask(&server, "GET /b/a%20b/%C3%BC", &[]).text(), "hello");
    let chunks = "3\r\nbye\r\n1;chunk-signature=0\r\n!\r\n0\r\nx-amz-checksum-crc32:CRC\r\n\r\n";
    let (chunks, damaged) = (chunks.replace("CRC", "v6g89w=="), chunks.replace("CRC", "AAAAAA=="));
    let headers =
        ["Content-Encoding: aws-chunked", "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER"];
    assert!(put(&headers, damaged.as_bytes()).expect("an answer").text().contains("BadDigest"));
    let second = put(&headers, chunks.as_bytes()).expect("an answer");
    assert_eq!((first.status, second.status), (200, 200));
    assert_ne!(first.header("etag"), second.header("etag"));
    assert_eq!(ask(&server, "GET /a%20b/%C3%BC", &["Host: b.localhost:80"]).text(), "bye!");
    assert_eq!(put(&headers, b"9\r\nbye").expect("an answer").status, 400);
    assert_eq!(ask(&server, "DELETE /b/a%20b/%C3%BC", &[]).status, 204);
    expect(&server, "GET /b/a%20b/%C3%BC", &[], 404, "NoSuchKey");
    expect(&server, "PUT /new", &[], 200, "");
    expect(&server, "HEAD /new", &[], 200, "");
    assert!(ask(&server, "GET /", &[]).text().contains("<Name>new</Name>"));
    assert!(ask(&server, "GET /b?location", &[]).text().contains(">us-east-1<"));
}

#[test]
fn listings_roll_up_page_and_escape() {
    let mut builder = TestS3::builder().object("b", "a&<\r>\"'", "x").object("b", "z +%ü", "x");
    for index in 0..30 {
        builder = builder.synthetic("b", &format!("d{:02}/{index}", index / 10), 1);
    }
    let server = start(builder);
    let list = |query: &str| expect(&server, &format!("GET /b?list-type=2{query}"), &[], 200, "").text();
    let all = list("");
    for part in [
        "<Key>a&amp;&lt;&#xd;&gt;&quot;'</Key>",
        "<Key>z +%ü</Key>",
        "<KeyCount>32</KeyCount>",
        "<IsTruncated>false</IsTruncated>",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let encoded = list("&encoding-type=url&prefix=z");
    assert!(encoded.contains("<Key>z+%2B%25%C3%BC</Key>"), "{encoded}");
    assert!(encoded.contains("<EncodingType>url</EncodingType>"), "{encoded}");
    let (mut token, mut pages, mut found) = (String::new(), 0, String::new());
    loop {
        let page = list(&format!("&delimiter=%2F&max-keys=2{token}"));
        pages += 1;
        found += &page;
        let Some((_, rest)) = page.split_once("<NextContinuationToken>") else { break };
        token = format!("&continuation-token={}", rest.split('<').next().expect("a token"));
    }
    assert_eq!((pages, found.matches("<CommonPrefixes>").count(), found.matches("<Key>").count()), (3, 3, 2));
    assert_eq!(list("&prefix=d01/&start-after=d01/17").matches("<Key>").count(), 2);
    let old = ask(&server, "GET /b?delimiter=/&marker=d01/", &[]).text();
    assert!(old.contains("<Prefix>d02/</Prefix>") && !old.contains("d01/<"), "{old}");
    expect(&server, "GET /b?list-type=2&max-keys=many", &[], 400, "InvalidArgument");
    expect(&server, "GET /b?list-type=2&continuation-token=no", &[], 400, "InvalidArgument");
}

#[test]
fn many_keys_are_no_burden() {
    let mut builder = TestS3::builder();
    let start_of_keys = Instant::now();
    for index in 0..100_000 {
        builder = builder.synthetic("b", &format!("many/{index:06}"), 1);
    }
    let server = start(builder.object("b", "zz", ""));
    assert!(start_of_keys.elapsed() < Duration::from_secs(60), "{:?}", start_of_keys.elapsed());
    let start_of_list = Instant::now();
    let page = ask(&server, "GET /b?list-type=2&delimiter=/", &[]).text();
    assert!(page.contains("<Prefix>many/</Prefix>") && page.contains("<Key>zz</Key>"), "{page}");
    assert!(start_of_list.elapsed() < Duration::from_secs(20), "{:?}", start_of_list.elapsed());
}

#[test]
fn who_may_not_ask_is_refused() {
    let builder = TestS3::builder().credentials("AKID").region("eu-north-1").deny("secret/");
    let server = start(builder.object("b", "k", "x").object("b", "secret/k", "x"));
    let signed = |key: &str, region: &str| {
        let scope = format!("{key}/20260101/{region}/s3/aws4_request");
        format!("Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0")
    };
    let (right, elsewhere) = (signed("AKID", "eu-north-1"), signed("AKID", "us-east-1"));
    expect(&server, "GET /b/k", &[], 403, "AccessDenied");
    expect(&server, "GET /b/k", &[&signed("OTHER", "eu-north-1")], 403, "InvalidAccessKeyId");
    expect(&server, "GET /b/k", &[&right], 200, "");
    let reply = expect(&server, "GET /b/k", &[&elsewhere], 400, "AuthorizationHeaderMalformed");
    assert!(reply.text().contains("<Region>eu-north-1</Region>"));
    let reply = expect(&server, "HEAD /b", &[&elsewhere], 301, "");
    assert_eq!((reply.header("x-amz-bucket-region"), reply.body.len()), ("eu-north-1", 0));
    expect(&server, "GET /b/secret/k", &[&right], 403, "AccessDenied");
    expect(&server, "GET /b?list-type=2&prefix=secret/", &[&right], 403, "AccessDenied");
    expect(&server, "GET /b?list-type=2", &[&right], 200, "");
}

#[test]
fn a_policy_that_is_scoped_to_a_prefix_refuses_everything_else() {
    let server = start(TestS3::builder().object("b", "p/k", "x").object("b", "q/k", "x").allow_only("p/"));
    expect(&server, "GET /b/p/k", &[], 200, "");
    expect(&server, "GET /b?list-type=2&prefix=p/", &[], 200, "");
    expect(&server, "GET /b?list-type=2&prefix=p/k", &[], 200, "");
    for outside in ["GET /b/q/k", "GET /b?list-type=2", "GET /b?list-type=2&prefix=p", "GET /b?location"] {
        expect(&server, outside, &[], 403, "AccessDenied");
    }
    expect(&server, "HEAD /b", &[], 403, "");
}

#[test]
fn faults_strike_as_often_as_they_should() {
    let server = start(TestS3::builder().synthetic("b", "k", 4 * MIB));
    let add = |kind| {
        server.fault(Fault {
            key_contains: "k".to_owned(),
            ..Fault::new(kind).on(Operation::GetObject).times(1)
        });
    };
    let range = ["Range: bytes=0-2097151"];
    let get = || send(&server, "GET /b/k", &range, b"");
    add(FaultKind::Status(503, "SlowDown".to_owned()));
    expect(&server, "GET /b/k", &[], 503, "SlowDown");
    add(FaultKind::Reset);
    assert!(get().is_none());
    add(FaultKind::ShortBody);
    let short = get().expect("half an answer");
    assert_eq!(
        (short.status, short.body.len() as u64, short.header("content-length")),
        (206, MIB, "2097152")
    );
    let end_of = |kind| {
        add(kind);
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request sent");
        stream.read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(end_of(FaultKind::ShortBody), Ok(()));
    for kind in [FaultKind::Reset, FaultKind::ResetBody] {
        assert_eq!(end_of(kind), Err(ErrorKind::ConnectionReset));
    }
    add(FaultKind::Stall(200));
    let asked = Instant::now();
    assert_eq!(get().expect("an answer").status, 206);
    assert!(asked.elapsed() >= Duration::from_millis(200));
    add(FaultKind::WrongEtag);
    let etag = ask(&server, "HEAD /b/k", &[]).header("etag").to_owned();
    assert_ne!(get().expect("an answer").header("etag"), etag);
    add(FaultKind::FlipBit);
    check("k", 0, &get().expect("an answer").body).expect_err("a bit is another");
    add(FaultKind::StallBody(200));
    let asked = Instant::now();
    check("k", 0, &get().expect("an answer").body).expect("late, and right");
    assert!(asked.elapsed() >= Duration::from_millis(200));
    add(FaultKind::Trickle(8 * MIB));
    let asked = Instant::now();
    check("k", 0, &get().expect("an answer").body).expect("slow, and right");
    assert!(asked.elapsed() >= Duration::from_millis(200));
    for (kind, len) in [(FaultKind::HalfBody, MIB), (FaultKind::DoubleBody, 4 * MIB)] {
        add(kind);
        let answer = get().expect("an answer");
        assert_eq!((answer.body.len() as u64, answer.header("content-length")), (len, &*len.to_string()));
        assert_eq!(answer.header("content-range"), "bytes 0-2097151/4194304");
    }
    add(FaultKind::WrongRange);
    assert_eq!(get().expect("an answer").header("content-range"), "bytes 2097152-4194303/4194304");
    add(FaultKind::Body("<html/>".to_owned()));
    assert_eq!(ask(&server, "GET /b/k", &[]).text(), "<html/>");
    add(FaultKind::Redirect(301, "eu-west-9".to_owned()));
    assert_eq!(ask(&server, "GET /b/k", &[]).header("x-amz-bucket-region"), "eu-west-9");
    server.fault(Fault::new(FaultKind::Status(500, "InternalError".to_owned())).share(0.25));
    let failed = (0..400).filter(|_| get().expect("an answer").status == 500).count();
    assert!((70..130).contains(&failed), "{failed} of 400");
    ask(&server, "POST /_test/reset", &[]);
    add(FaultKind::WholeObject);
    let whole = get().expect("an answer");
    assert_eq!((whole.status, whole.body.len() as u64), (200, 4 * MIB));
    server.fault(Fault::new(FaultKind::Reset).times(0));
    check("k", 0, &get().expect("an answer").body).expect("no fault is left");
}

#[test]
fn what_is_frozen_waits_for_the_thaw() {
    let server = start(TestS3::builder().object("b", "k", "x"));
    let hold = |server: &TestS3| {
        server.reset_stats();
        std::thread::scope(|scope| {
            let get = scope.spawn(|| ask(server, "GET /b/k", &[]).status);
            while server.stats().get_object.requests == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(150));
            assert!(!get.is_finished(), "it is frozen");
            server.thaw();
            assert_eq!(get.join().expect("an answer"), 200);
        });
    };
    server.freeze(true);
    hold(&server);
    server.fault(Fault::new(FaultKind::Freeze).times(1));
    hold(&server);
    // Dropping a server that holds requests must not hang.
    server.freeze(true);
    let mut waiting = TcpStream::connect(server.address).expect("a connection");
    waiting.write_all(b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request sent");
    let dropped = Instant::now();
    drop(server);
    assert!(matches!(waiting.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert!(dropped.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_slow_server_is_as_slow_as_it_should_be() {
    let server = start(TestS3::builder().synthetic("b", "k", 18_000_000));
    let took = |request: &str| {
        let asked = Instant::now();
        assert_eq!(ask(&server, request, &[]).status, 200);
        asked.elapsed().as_secs_f64()
    };
    server.shape(Shape { bytes_per_second: 90_000_000, ..Shape::fast() });
    let paced = took("GET /b/k");
    assert!(paced >= 0.199, "{paced}");
    server.shape(Shape { first_byte: FirstByte::Fixed(50.0), list_latency_ms: 80.0, ..Shape::fast() });
    for (request, least) in [("GET /b/k", 0.05), ("HEAD /b/k", 0.05), ("GET /b?list-type=2", 0.08)] {
        let took = took(request);
        assert!(took >= least, "{request}: {took}");
    }
    let mut latencies: Vec<_> = (0..1001).map(|_| Shape::aws().first_byte_latency()).collect();
    latencies.sort();
    assert!((20.0..31.0).contains(&(latencies[500].as_secs_f64() * 1000.0)), "{:?}", latencies[500]);
}

#[test]
fn it_counts_and_is_steered_over_http() {
    let server = start(TestS3::builder().synthetic("b", "k", MIB));
    expect(&server, "GET /b/k", &[], 200, "");
    expect(&server, "GET /b/none", &[], 404, "");
    expect(&server, "HEAD /b/k", &[], 200, "");
    let stats = ask(&server, "GET /_test/stats", &[]).text();
    let stats: crate::Stats = serde_json::from_str(&stats).expect("statistics");
    assert_eq!(stats, crate::Stats { connections: 4, ..server.stats() });
    assert_eq!((stats.get_object.requests, stats.get_object.errors, stats.get_object.bytes), (2, 1, MIB));
    assert_eq!((stats.requests(), stats.most_concurrent_gets), (3, 1));
    let steer = |path: &str, body: &str| {
        let reply = send(&server, &format!("POST /_test/{path}"), &[], body.as_bytes()).expect("an answer");
        (reply.status, reply.text())
    };
    let ok = (200, "ok\n".to_owned());
    assert_eq!(steer("put?bucket=b&key=n%2Fm&size=2KiB", ""), ok);
    assert_eq!(ask(&server, "GET /b/n/m", &[]).body.len(), 2048);
    assert_eq!(steer("fault", r#"{"count": 1, "kind": {"Status": [500, "InternalError"]}}"#), ok);
    expect(&server, "GET /b/k", &[], 500, "InternalError");
    assert_eq!(steer("shape", r#"{"first_byte": {"Fixed": 30}, "bytes_per_second": 5000000}"#), ok);
    assert_eq!(server.shared.shape().bytes_per_second, 5_000_000);
    assert_eq!(steer("reset", ""), ok);
    assert_eq!(server.stats().requests(), 0);
    assert_eq!(steer("nonsense", "").0, 400);
    assert_eq!(steer("quit", ""), ok);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(5), server.quit_requested()).await })
        .expect("the request to quit");
}

#[test]
fn a_port_is_free_when_its_server_has_stopped() {
    let mut server = start(TestS3::builder());
    for _ in 0..50 {
        let held = TcpStream::connect(server.address).expect("a connection");
        let port = server.stop();
        server = start(TestS3::builder().port_again(port));
        assert_eq!(server.address.port(), port);
        drop(held);
    }
}

#[test]
fn a_folder_is_a_bucket() {
    let dir = tempfile::tempdir().expect("a folder");
    let bytes = crate::content("f", 0, 2_500_000);
    std::fs::create_dir(dir.path().join("sub")).expect("a folder");
    std::fs::write(dir.path().join("sub/f.bin"), &bytes).expect("a file");
    let server = start(TestS3::builder().folder("b", dir.path()).expect("a folder to serve"));
    check("f", 0, &expect(&server, "GET /b/sub/f.bin", &[], 200, "").body).expect("the file's bytes");
    let part = expect(&server, "GET /b/sub/f.bin", &["Range: bytes=1000000-2400000"], 206, "");
    check("f", 1_000_000, &part.body).expect("the file's bytes");
    assert!(ask(&server, "GET /b?list-type=2", &[]).text().contains("<Key>sub/f.bin</Key>"));
}
