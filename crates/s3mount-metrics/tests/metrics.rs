//! Counting, and what is shown of it.

use std::sync::Arc;
use std::time::Duration;

use s3mount_metrics::{Counter, Family, Gauge, Histogram, Key, Registry, Total, labels, metrics};

labels! {
    /// What was asked.
    enum Operation("operation") {
        /// A GET.
        Get = "get",
        /// A LIST.
        List = "list",
    }
}

labels! {
    /// What came of it.
    enum Outcome("outcome") {
        /// An answer.
        Ok = "ok",
        /// None.
        Failed = "failed",
    }
}

metrics! {
    /// Some of each.
    struct Some {
        /// Reads.
        reads: Counter = ("s3mount_reads_total", Count, Stable),
        /// Bytes held,
        /// now.
        held: Gauge = ("s3mount_held_bytes", Bytes, Stable),
        /// Copied.
        copied: Total = ("s3mount_copied_total", Count, Experimental),
        /// Requests.
        requests: Family<Counter, (Operation, Outcome)> = ("s3mount_requests_total", Count, Stable),
        /// Times.
        times: Family<Histogram, Operation> =
            ("s3mount_request_seconds", Seconds, Stable, &[1_000_000, 500_000_000]),
    }
}

/// A mount that has done a little.
fn registry() -> (Registry, Arc<Some>) {
    let (registry, some) = (Registry::default(), Arc::new(Some::default()));
    some.reads.add(7);
    some.held.inc();
    some.held.inc();
    some.held.dec();
    some.requests.at((Operation::List, Outcome::Ok)).inc();
    for millis in [1, 2, 2000] {
        some.times.at(Operation::Get).note_time(Duration::from_millis(millis));
    }
    let copy = some.clone();
    registry.add(some.clone(), move || copy.copied.set(3));
    (registry, some)
}

#[test]
fn prometheus_text() {
    let expected = r#"# HELP s3mount_reads_total Reads.
# TYPE s3mount_reads_total counter
s3mount_reads_total 7
# HELP s3mount_held_bytes Bytes held, now.
# TYPE s3mount_held_bytes gauge
s3mount_held_bytes 1
# HELP s3mount_copied_total Copied.
# TYPE s3mount_copied_total counter
s3mount_copied_total 3
# HELP s3mount_requests_total Requests.
# TYPE s3mount_requests_total counter
s3mount_requests_total{operation="get",outcome="ok"} 0
s3mount_requests_total{operation="get",outcome="failed"} 0
s3mount_requests_total{operation="list",outcome="ok"} 1
s3mount_requests_total{operation="list",outcome="failed"} 0
# HELP s3mount_request_seconds Times.
# TYPE s3mount_request_seconds histogram
s3mount_request_seconds_bucket{operation="get",le="0.001"} 1
s3mount_request_seconds_bucket{operation="get",le="0.5"} 2
s3mount_request_seconds_bucket{operation="get",le="+Inf"} 3
s3mount_request_seconds_sum{operation="get"} 2.003
s3mount_request_seconds_count{operation="get"} 3
s3mount_request_seconds_bucket{operation="list",le="0.001"} 0
s3mount_request_seconds_bucket{operation="list",le="0.5"} 0
s3mount_request_seconds_bucket{operation="list",le="+Inf"} 0
s3mount_request_seconds_sum{operation="list"} 0
s3mount_request_seconds_count{operation="list"} 0
"#;
    assert_eq!(registry().0.snapshot().prometheus(), expected);
}

#[test]
fn json() {
    let expected = r#"{
  "reads": 7,
  "held_bytes": 1,
  "copied": 3,
  "requests_get_ok": 0,
  "requests_get_failed": 0,
  "requests_list_ok": 1,
  "requests_list_failed": 0,
  "request_seconds_get": {"count": 3, "sum": 2.003, "buckets": {"0.001": 1, "0.5": 1, "+Inf": 1}},
  "request_seconds_list": {"count": 0, "sum": 0, "buckets": {}}
}
"#;
    assert_eq!(registry().0.snapshot().json(), expected);
}

#[test]
fn names_are_the_keys_that_are_shown() {
    let shown = registry().0.snapshot().json();
    let names = Some::NAMES;
    let keys = [
        (Key::from(names.reads).as_str().to_owned(), "7"),
        (Key::from(names.held).as_str().to_owned(), "1"),
        (Key::from(names.copied).as_str().to_owned(), "3"),
        (names.requests.at((Operation::List, Outcome::Ok)).as_str().to_owned(), "1"),
        (names.times.at(Operation::List).as_str().to_owned(), "{"),
    ];
    for (key, value) in keys {
        assert!(shown.contains(&format!("  \"{key}\": {value}")), "{key}");
    }
    assert_eq!(names.reads.as_str(), "s3mount_reads_total");
    assert_eq!(Operation::ALL.iter().map(|operation| operation.name()).collect::<Vec<_>>(), ["get", "list"]);
}

#[test]
fn threads_add_up() {
    let some = Some::default();
    let count = || {
        for value in 0..1000 {
            some.reads.inc();
            some.times.at(Operation::List).note(value * 1_000_000);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(count);
        }
    });
    let times = some.times.at(Operation::List).get();
    assert_eq!((some.reads.get(), times.count()), (20_000, 20_000));
    assert_eq!(times.counts, [2 * 20, 499 * 20, 499 * 20], "0 and 1 ms, up to 500 ms, and above");
    assert_eq!(times.sum, 20 * 999 * 500 * 1_000_000);
}

#[test]
fn names_that_do_not_say_what_they_are_show() {
    assert_eq!(Some::DEFINITIONS.iter().find_map(|definition| definition.fault()), None);
    let reads = Some::DEFINITIONS[0];
    for name in ["reads_total", "s3mount_reads", "s3mount_Reads_total", "s3mount_read_bytes_total"] {
        assert!(s3mount_metrics::Definition { name, ..reads }.fault().is_some(), "{name}");
    }
    let times = Some::DEFINITIONS[4];
    for bounds in [&[] as &[u64], &[2, 1], &[1, 1]] {
        assert!(s3mount_metrics::Definition { bounds, ..times }.fault().is_some(), "{bounds:?}");
    }
}
