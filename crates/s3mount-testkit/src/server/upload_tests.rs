//! What the server refuses of writes, as S3 does, through plain sockets.

use std::time::{Duration, Instant};

use super::tests::{Reply, ask, expect, send, start};
use crate::{Fault, FaultKind, FirstByte, Operation, Shape, TestS3};

/// Sends a request with a body, and compares the answer's status, and the error code in its body.
fn write(server: &TestS3, request: &str, headers: &[&str], body: &[u8], status: u16, code: &str) -> Reply {
    let reply = send(server, request, headers, body).expect("an answer");
    assert_eq!(reply.status, status, "{request}: {}", reply.text());
    let code = if code.is_empty() { String::new() } else { format!("<Code>{code}</Code>") };
    assert!(reply.text().contains(&code), "{request}: {}", reply.text());
    reply
}

fn element(reply: &Reply, name: &str) -> String {
    let text = reply.text();
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.split('<').next().unwrap_or_default().replace("&quot;", "")
}

/// The body that completes an upload of these parts.
fn complete(parts: &[(u32, &str)]) -> Vec<u8> {
    let part = |(number, etag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes()
}

fn begin(server: &TestS3, headers: &[&str]) -> String {
    element(&write(server, "POST /b/k?uploads", headers, b"", 200, ""), "UploadId")
}

/// MD5s as `md5sum` computes them.
const MD5_OF_A: &str = "0cc175b9c0f1b6a831c399e269772661";
const MD5_OF_B: &str = "92eb5ffee6ae2fec3ad71c777531578f";

#[test]
fn puts_are_compared_with_each_checksum_they_bring() {
    let server = start(TestS3::builder().bucket("b"));
    let put =
        |headers: &[&str], status, code| write(&server, "PUT /b/k", headers, b"123456789", status, code);
    for (name, good) in [
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ] {
        let header = format!("{name}: {good}");
        let told = put(&[&header], 200, "");
        assert_eq!((told.header(name), told.header("x-amz-checksum-type")), (good, "FULL_OBJECT"));
        let found = ask(&server, "HEAD /b/k", &["x-amz-checksum-mode: ENABLED"]);
        assert_eq!(found.header(name), good);
        put(
            &[&format!("{name}: {}", good.replacen(|c: char| c.is_ascii_alphanumeric(), "A", 2))],
            400,
            "BadDigest",
        );
    }
    put(&["x-amz-checksum-crc32: ?"], 400, "InvalidRequest");
    put(&["x-amz-checksum-crc32: y/Q5Jg==", "x-amz-checksum-crc32c: 4waSgw=="], 400, "InvalidRequest");
    put(&["Content-MD5: JfnnlDI7RTiF9RgfG2JNCw=="], 200, "");
    put(&["Content-MD5: AAAAAAAAAAAAAAAAAAAAAA=="], 400, "BadDigest");
    put(&["Content-MD5: AAAA"], 400, "InvalidDigest");
    assert_eq!(put(&[], 200, "").header("etag"), "\"25f9e794323b453885f5181f1b624d0b\"");
    let too_long = format!("PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", (5_u64 << 30) + 1);
    assert_eq!(send_head(&server, &too_long), 400);
    assert_eq!(send_head(&server, "PUT /b/k HTTP/1.1\r\nHost: x\r\n"), 411);
}

/// Sends the head of a request without its body, and returns the status of the answer.
fn send_head(server: &TestS3, head: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(100))).expect("a limit");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).expect("a request sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[9..]).parse().expect("a status")
}

#[test]
fn uploads_become_objects_only_if_everything_is_right() {
    let server = start(TestS3::builder().bucket("b").min_part(1));
    let id = begin(&server, &["Content-Type: text/x", "x-amz-meta-w: 1", "x-amz-tagging: t=1&u=2"]);
    for (number, byte) in [(1, b"a"), (2, b"b")] {
        let part = write(&server, &format!("PUT /b/k?partNumber={number}&uploadId={id}"), &[], byte, 200, "");
        assert!(!part.header("x-amz-checksum-crc64nvme").is_empty());
    }
    let end = |parts: &[(u32, &str)], headers: &[&str], status, code| {
        write(&server, &format!("POST /b/k?uploadId={id}"), headers, &complete(parts), status, code)
    };
    let good = [(1, MD5_OF_A), (2, MD5_OF_B)];
    for number in [0, 10_001] {
        let request = format!("PUT /b/k?partNumber={number}&uploadId={id}");
        write(&server, &request, &[], b"a", 400, "InvalidArgument");
    }
    write(&server, "PUT /b/k?partNumber=1&uploadId=other", &[], b"a", 404, "NoSuchUpload");
    end(&[], &[], 400, "MalformedXML");
    end(&[good[1], good[0]], &[], 400, "InvalidPartOrder");
    end(&[good[0], good[0]], &[], 400, "InvalidPartOrder");
    end(&[(1, MD5_OF_B)], &[], 400, "InvalidPart");
    end(&[(3, MD5_OF_A)], &[], 400, "InvalidPart");
    end(&good, &["x-amz-mp-object-size: 3"], 400, "InvalidRequest");
    end(&good, &["x-amz-checksum-crc64nvme: rosUhgp5mIg="], 400, "BadDigest");
    end(&good, &["x-amz-checksum-crc32: y/Q5Jg=="], 400, "InvalidRequest");
    end(&good, &["x-amz-checksum-type: COMPOSITE"], 400, "InvalidRequest");
    end(&good, &["If-Match: \"x\""], 404, "NoSuchKey");
    assert_eq!(server.open_uploads("b")[0].parts, [(1, 1), (2, 1)]);
    let done = end(&good, &["If-None-Match: *", "x-amz-mp-object-size: 2"], 200, "");
    assert_eq!(element(&done, "ETag"), "96e024ba2074fe77e8e965ba43a704be-2");
    let stored = server.stored("b", "k").expect("the object");
    assert_eq!((stored.bytes(), stored.beside.metadata["w"].as_str()), (b"ab".to_vec(), "1"));
    assert!(ask(&server, "GET /b/k?tagging", &[]).text().contains("<Key>u</Key><Value>2</Value>"));
    end(&good, &[], 404, "NoSuchUpload");
}

#[test]
fn uploads_of_other_checksums_need_one_of_each_part() {
    let server = start(TestS3::builder().bucket("b"));
    write(
        &server,
        "POST /b/k?uploads",
        &["x-amz-checksum-algorithm: SHA256", "x-amz-checksum-type: FULL_OBJECT"],
        b"",
        400,
        "InvalidRequest",
    );
    let id = begin(&server, &["x-amz-checksum-algorithm: CRC32"]);
    let part = format!("PUT /b/k?partNumber=1&uploadId={id}");
    write(&server, &part, &[], b"123456789", 400, "InvalidRequest");
    write(&server, &part, &["x-amz-checksum-crc32c: 4waSgw=="], b"123456789", 400, "InvalidRequest");
    let etag = write(&server, &part, &["x-amz-checksum-crc32: y/Q5Jg=="], b"123456789", 200, "");
    let tag = etag.header("etag").trim_matches('"');
    let end = format!("POST /b/k?uploadId={id}");
    write(&server, &end, &[], &complete(&[(1, tag)]), 400, "InvalidRequest");
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag>\
         <ChecksumCRC32>y/Q5Jg==</ChecksumCRC32></Part></CompleteMultipartUpload>"
    );
    let done = write(&server, &end, &[], body.as_bytes(), 200, "");
    assert_eq!(element(&done, "ChecksumType"), "COMPOSITE");
    let attributes = ask(&server, "GET /b/k?attributes", &["x-amz-object-attributes: ObjectParts"]);
    assert_eq!(element(&attributes, "ChecksumCRC32"), "y/Q5Jg==");
}

#[test]
fn parts_have_a_smallest_length_and_may_have_to_be_equal() {
    let server = start(TestS3::builder().bucket("b").min_part(4).equal_parts());
    let check = |lengths: &[usize], status, code| {
        let id = begin(&server, &[]);
        let tags: Vec<_> = lengths
            .iter()
            .zip(1..)
            .map(|(len, number)| {
                let request = format!("PUT /b/k?partNumber={number}&uploadId={id}");
                let reply = write(&server, &request, &[], &vec![7; *len], 200, "");
                (number, reply.header("etag").to_owned())
            })
            .collect();
        let parts: Vec<_> = tags.iter().map(|(number, tag)| (*number, tag.as_str())).collect();
        write(&server, &format!("POST /b/k?uploadId={id}"), &[], &complete(&parts), status, code);
    };
    check(&[5, 5, 1], 200, "");
    check(&[3], 200, "");
    check(&[3, 5], 400, "EntityTooSmall");
    check(&[5, 6, 1], 400, "InvalidPart");
    check(&[5, 6], 400, "InvalidPart");
}

#[test]
fn many_objects_are_deleted_at_once() {
    let builder = TestS3::builder().object("b", "a&b", "1").object("b", "c", "2").object("b", "d/e", "3");
    let server = start(builder.deny("d/"));
    let body = b"<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>d/e</Key></Object>\
        <Object><Key>none</Key></Object><Object><Key>c</Key><ETag>x</ETag></Object></Delete>";
    write(&server, "POST /b?delete", &[], body, 400, "InvalidRequest");
    let mut sum = crate::sums::Sum::DEFAULT.start();
    sum.update(body);
    let header = format!("x-amz-checksum-crc64nvme: {}", sum.finish().base64());
    let answer = write(&server, "POST /b?delete", &[&header], body, 200, "").text();
    assert!(answer.contains("<Deleted><Key>a&amp;b</Key>") && answer.contains("<Deleted><Key>none</Key>"));
    assert!(answer.contains("<Key>d/e</Key><Code>AccessDenied</Code>"), "{answer}");
    assert!(answer.contains("<Key>c</Key><Code>PreconditionFailed</Code>"), "{answer}");
    assert_eq!(server.keys("b"), ["c", "d/e"]);
}

#[test]
fn copies_keep_or_replace_what_is_beside_the_bytes() {
    let server = start(TestS3::builder().bucket("b").bucket("other"));
    let beside = ["x-amz-meta-w: old", "x-amz-tagging: t=1", "x-amz-storage-class: STANDARD_IA"];
    write(&server, "PUT /b/a%20b", &beside, b"bytes", 200, "");
    let copy = |to: &str, headers: &[&str], status, code| {
        let all = [&["x-amz-copy-source: /b/a%20b"], headers].concat();
        write(&server, &format!("PUT /{to}"), &all, b"", status, code)
    };
    copy("other/k", &[], 200, "");
    let stored = server.stored("other", "k").expect("a copy");
    let beside = &stored.beside;
    assert_eq!((beside.metadata["w"].as_str(), beside.tags.as_deref()), ("old", Some("t=1")));
    assert_eq!((stored.bytes(), &beside.storage_class), (b"bytes".to_vec(), &None));
    copy("b/k", &["x-amz-metadata-directive: REPLACE", "x-amz-meta-w: new"], 200, "");
    assert_eq!(server.stored("b", "k").expect("a copy").beside.metadata["w"], "new");
    copy("b/a%20b", &[], 400, "InvalidRequest");
    copy("b/k", &["x-amz-copy-source-if-match: \"x\""], 412, "PreconditionFailed");
    copy("b/k", &["If-None-Match: *"], 412, "PreconditionFailed");
    expect(&server, "PUT /b/k", &["x-amz-copy-source: b/none"], 404, "NoSuchKey");
    expect(&server, "PUT /b/k?renameObject", &["x-amz-rename-source: a%20b"], 501, "NotImplemented");
    let stats = server.stats();
    assert_eq!((stats.copy_object.requests, stats.rename_object.requests), (6, 1));
    assert_eq!((stats.put_object.requests, stats.put_object.received), (1, 5));
}

#[test]
fn writes_take_their_time_and_meet_faults() {
    let server = start(TestS3::builder().bucket("b").synthetic("b", "s", 1000));
    let took = |request: &str, headers: &[&str], body: &[u8]| {
        let sent = Instant::now();
        write(&server, request, headers, body, 200, "");
        sent.elapsed()
    };
    server.shape(Shape { bytes_per_second: 1_000_000, ..Shape::fast() });
    assert!(took("PUT /b/k", &[], &[0; 200_000]) >= Duration::from_millis(200));
    let shape = Shape { copy_latency_ms: 100.0, copy_bytes_per_second: 10_000, ..Shape::fast() };
    server.shape(Shape { first_byte: FirstByte::AtOnce, ..shape });
    assert!(took("PUT /b/c", &["x-amz-copy-source: b/s"], b"") >= Duration::from_millis(200));
    server.shape(Shape::fast());
    server.fault(Fault::new(FaultKind::Trickle(100_000)).on(Operation::PutObject).times(1));
    assert!(took("PUT /b/k", &[], &[0; 20_000]) >= Duration::from_millis(200));
    server.fault(Fault::new(FaultKind::FlipBit).on(Operation::PutObject).times(1));
    write(&server, "PUT /b/k", &["x-amz-checksum-crc32: y/Q5Jg=="], b"123456789", 400, "BadDigest");
    server.fault(Fault::new(FaultKind::LostAnswer).on(Operation::PutObject).times(1));
    assert!(send(&server, "PUT /b/lost", &[], b"done").is_none());
    assert_eq!(server.stored("b", "lost").expect("it was done").bytes(), b"done");
}
