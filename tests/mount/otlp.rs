//! `--otlp-endpoint`, told by a collector that reads by OpenTelemetry's own definitions.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use s3mount_testkit::{Builder, TestS3};
use serde_json::Value;

use crate::world::{BUCKET, MIB, World, check_file};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A collector, which ends with this.
struct Collector {
    child: Child,
    said: BufReader<ChildStdout>,
    port: String,
}

impl Collector {
    fn start() -> Self {
        let mut python = Command::new(format!("{ROOT}/target/venv/bin/python"));
        python.arg(format!("{ROOT}/tests/mount/otlp.py")).stdout(Stdio::piped());
        let mut child = python.spawn().expect("opentelemetry-proto in target/venv; `make test` installs it");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut collector = Self { child, said, port: String::new() };
        collector.port = collector.line();
        collector
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    /// The next request that it took.
    fn next(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("what it was sent")
    }

    /// Mounts the bucket, and sends to this collector.
    fn mount(&self, server: Builder, variables: &[(&str, &str)]) -> World {
        let endpoint = format!("http://127.0.0.1:{}/otlp/", self.port);
        World::with(server, &["--otlp-endpoint", &endpoint, "--no-hedging"], |command| {
            command.envs(variables.iter().copied());
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The points of a metric with these labels.
fn points<'a>(told: &'a Value, name: &str, labels: &[(&str, &str)]) -> Vec<&'a Value> {
    let points = told["metrics"][name]["points"].as_array().expect("points").iter();
    let is_chosen = |point: &&Value| labels.iter().all(|(label, value)| point["labels"][label] == *value);
    points.filter(is_chosen).collect()
}

#[test]
fn a_collector_of_opentelemetry_gets_all_metrics() {
    const SIZE: u64 = 3 * MIB;
    let mut collector = Collector::start();
    let server = || TestS3::builder().synthetic(BUCKET, "f", SIZE);
    let world = collector.mount(
        server(),
        &[
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token"),
            ("OTEL_RESOURCE_ATTRIBUTES", "rank=3"),
        ],
    );
    assert_eq!(check_file(&world.path("f"), "f"), SIZE);
    // It refuses the first request, and gets what that had with the next one.
    let read = |told: &Value| points(told, "s3mount_read_bytes_total", &[])[0]["value"].as_u64();
    let told = loop {
        let told = collector.next();
        if read(&told) == Some(SIZE) {
            break told;
        }
    };
    assert_eq!(told["path"], "/otlp/v1/metrics");
    assert_eq!(told["headers"]["authorization"], "Bearer token");
    assert_eq!(told["headers"]["content-type"], "application/x-protobuf");
    let resource = &told["resource"];
    let named = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
    assert_eq!((named("service.name"), named("rank")), ("s3mount".to_owned(), "3".to_owned()));
    assert_eq!(named("s3mount.source"), "s3://data/");
    assert_eq!(named("s3mount.directory"), world.mount.path().display().to_string());
    assert!(named("service.instance.id").ends_with(&named("s3mount.directory")));
    // The names and kinds are those of the text format.
    let text = std::fs::read_to_string(world.path(".s3mount/metrics")).expect("the metrics");
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in typed.clone() {
        let kind = if kind == "counter" { "sum" } else { kind };
        assert_eq!(told["metrics"][name]["kind"], kind, "{name}");
    }
    assert_eq!(told["metrics"].as_object().map(serde_json::Map::len), Some(typed.count()));
    assert_eq!(told["metrics"]["s3mount_read_bytes_total"]["unit"], "By");
    let gets = points(&told, "s3mount_request_seconds", &[("operation", "get")]);
    assert_eq!(gets.len(), 1);
    assert_eq!(gets[0]["count"].as_u64(), Some(world.server.stats().get_object.requests));
    assert!(gets[0]["sum"].as_f64().is_some_and(|seconds| seconds > 0.0 && seconds < 60.0), "{gets:?}");
    drop(world);

    // A job that is shorter than the time between two requests is told about at its end.
    let mut collector = Collector::start();
    let world = collector.mount(server(), &[("OTEL_METRIC_EXPORT_INTERVAL", "200")]);
    collector.next();
    drop(world);
    let world = collector.mount(server(), &[("OTEL_SERVICE_NAME", "job")]);
    assert_eq!(check_file(&world.path("f"), "f"), SIZE);
    drop(world);
    let told = loop {
        let told = collector.next();
        if told["resource"]["service.name"] == "job" {
            break told;
        }
    };
    assert_eq!(read(&told), Some(SIZE));
}
