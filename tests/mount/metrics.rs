//! The metrics of a mount, as a program that scrapes them sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use s3mount_testkit::{MountGuard, TestS3};

use crate::world::{BUCKET, MIB, World, s3mount};

/// The samples of a scrape. A sample's name and labels, as the scrape writes them, are the key.
pub(crate) type Samples = BTreeMap<String, f64>;

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(is_plain)
}

/// The name and the labels of a series. No label of the mount has a value that needs an escape.
fn parse_series(series: &str) -> (&str, BTreeMap<&str, &str>) {
    let Some((name, labels)) = series.split_once('{') else { return (series, BTreeMap::new()) };
    let labels = labels.strip_suffix('}').expect("labels have an end");
    let labels = labels.split(',').map(|pair| {
        let (label, value) = pair.split_once("=\"").expect("a label and its value");
        assert!(is_name(label), "{series}");
        let value = value.strip_suffix('"').expect("a value has an end");
        assert!(!value.contains(['"', '\\', '\n']), "{series}");
        (label, value)
    });
    (name, labels.collect())
}

/// Parses the text format of Prometheus, version 0.0.4, and checks it. Each family has HELP and TYPE before
/// its samples. No family and no series comes twice. The buckets of a histogram grow up to +Inf, and the
/// value of this last bucket is the histogram's count.
pub(crate) fn parse(text: &str) -> Samples {
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut helped, mut family, mut kind) = ("", "", "");
    // The series of the histogram that is being parsed: its labels, its last bound, and how many values lie
    // below this bound.
    let mut below: Option<(BTreeMap<&str, &str>, f64, f64)> = None;
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a name and a text").0;
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            (family, kind) = typed.split_once(' ').expect("a name and a type");
            assert!(is_name(family) && helped == family, "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(families.insert(family), "{family} comes twice");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        let value: f64 = value.parse().expect("a number");
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
        let (name, mut labels) = parse_series(series);
        let part = name.strip_prefix(family).unwrap_or_else(|| panic!("{series} is not in {family}"));
        match (kind, part) {
            ("counter" | "gauge", "") => assert!(value >= 0.0 && !labels.contains_key("le"), "{line}"),
            ("histogram", "_bucket") => {
                let bound: f64 = labels.remove("le").expect("a bound").parse().expect("a number");
                if let Some((of, last_bound, last)) = &below {
                    assert!(*of == labels && *last_bound < bound && *last <= value, "{line}");
                }
                below = Some((labels, bound, value));
            }
            ("histogram", "_sum") => assert!(value >= 0.0, "{line}"),
            ("histogram", "_count") => {
                let (of, bound, last) = below.take().expect("buckets before the count");
                assert!(of == labels && bound.is_infinite() && last == value, "{line}");
            }
            _ => panic!("{line} is no sample of a {kind}"),
        }
    }
    assert!(below.is_none() && !families.is_empty());
    samples
}

fn scrape(world: &World) -> Samples {
    parse(&fs::read_to_string(world.path(".s3mount/metrics")).expect("the metrics"))
}

#[test]
fn a_scrape_parses_and_tells_what_the_store_has_seen() {
    let server = TestS3::builder().synthetic(BUCKET, "a/one.bin", 20 * MIB).synthetic(BUCKET, "two.bin", MIB);
    let world = World::counting(server, &[]);
    let before = scrape(&world);
    for name in ["a/one.bin", "two.bin"] {
        fs::read(world.path(name)).expect("its bytes");
    }
    assert!(fs::metadata(world.path("none")).is_err());
    let (after, seen) = (scrape(&world), world.server.stats());
    let grown = |series: &str| after[series] - before[series];
    let gets = seen.get_object.requests as f64;
    assert!(gets >= 2.0);
    assert_eq!(grown("s3mount_requests_total{operation=\"get\",status=\"ok\"}"), gets);
    assert_eq!(grown("s3mount_get_requests_total"), gets);
    assert_eq!(grown("s3mount_request_seconds_count{operation=\"get\"}"), gets);
    assert_eq!(grown("s3mount_part_bytes_count"), gets);
    assert_eq!(grown("s3mount_part_bytes_sum"), (21 * MIB) as f64);
    let lists = seen.list_objects.requests as f64;
    assert_eq!(grown("s3mount_requests_total{operation=\"list\",status=\"ok\"}"), lists);
    assert_eq!(grown("s3mount_fuse_failures_total{operation=\"lookup\",status=\"not_found\"}"), 1.0);
    let reads = grown("s3mount_reads_total");
    let found = ["window", "cache", "in_flight", "store"];
    let found = found.map(|tier| grown(&format!("s3mount_reads_found_total{{tier=\"{tier}\"}}")));
    assert_eq!(found.iter().sum::<f64>(), reads, "{found:?}");
    assert_eq!(grown("s3mount_read_wait_seconds_count"), grown("s3mount_waits_total"));
    assert_eq!(found[2] + found[3], grown("s3mount_waits_total"));
    // A scrape reads a file of the mount, too. So each scrape counts as a read.
    assert!(grown("s3mount_fuse_seconds_count{operation=\"read\"}") >= reads);
    assert_eq!(after["s3mount_requests_in_flight{operation=\"get\"}"], 0.0);
    assert_eq!(grown("s3mount_wasted_bytes_total"), 0.0, "all was read");
    assert!(before["s3mount_connections"] >= 1.0, "the mount has asked for its bucket");
    let connections = grown("s3mount_connections");
    assert!(connections >= 1.0 && connections <= seen.connections as f64, "{connections} more connections");
    // The JSON has the same values.
    let stats = world.stats();
    assert_eq!(
        stats["requests_get_ok"].as_f64(),
        Some(after["s3mount_requests_total{operation=\"get\",status=\"ok\"}"])
    );
    assert_eq!(stats["part_bytes"]["count"].as_f64(), Some(after["s3mount_part_bytes_count"]));
}

/// The answer to one HTTP request: its first line, and its body.
pub(crate) fn http(port: u16, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(request.as_bytes()).expect("to be heard");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().expect("a line").to_owned(), body.to_owned())
}

#[test]
fn prometheus_scrapes_a_port() {
    // The test gives the port back just before the mount takes it. No other test asks for this one.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let flags = ["--metrics-listen", &format!("127.0.0.1:{port}")];
    let world = World::counting(TestS3::builder().object(BUCKET, "f", "text"), &flags);
    fs::read(world.path("f")).expect("its bytes");
    // Clients that say nothing keep nobody out.
    let idle: Vec<_> =
        (0..10).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens")).collect();
    let (status, body) = http(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(parse(&body)["s3mount_get_requests_total"], 1.0);
    drop(idle);
    let (status, body) = http(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status.as_str(), body.contains("/metrics")), ("HTTP/1.1 404 Not Found", true));
    let (status, _) = http(port, "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
    // A second mount can't have the same port.
    let dir = world.folder().join("second");
    fs::create_dir(&dir).expect("a folder");
    let flags = [&["--foreground"], flags.as_slice()].concat();
    let error = MountGuard::new(&mut s3mount(&world.server.endpoint(), BUCKET, &dir, &flags), &dir);
    let said = format!("{:#}", error.expect_err("the port is taken"));
    let expected =
        format!("cannot listen at --metrics-listen 127.0.0.1:{port}: another process listens there");
    assert!(said.contains(&expected), "{said}");
}
