//! `docs/METRICS.md` is made from the definitions of the metrics.

use std::collections::BTreeSet;

use s3mount_bucket::{RateMetrics, RequestMetrics, RetryMetrics, WriteRequestMetrics};
use s3mount_cache::DiskMetrics;
use s3mount_changes::ChangeMetrics;
use s3mount_fs::FsMetrics;
use s3mount_fuse::FuseMetrics;
use s3mount_metrics::{Definition, markdown};
use s3mount_prefetch::PrefetchMetrics;
use s3mount_shared::SharedMetrics;
use s3mount_system::metrics::DaemonMetrics;
use s3mount_write::WriteMetrics;

const PAGE: &str = "docs/METRICS.md";

/// Set to anything, it has the page written instead of compared.
const WRITE: &str = "WRITE_PAGES";

const HEAD: &str = "\
# Metrics

`.s3mount/metrics` in the root of a mount shows these in the text format of Prometheus, `.s3mount/stats` as one JSON object; `--control-socket` answers a line `metrics` or `stats` with the same. `--metrics-listen 127.0.0.1:9105` serves them to Prometheus at `http://127.0.0.1:9105/metrics`; [a dashboard for Grafana](../examples/grafana/s3mount.json) shows them. `--otlp-endpoint http://localhost:4318` sends them to a collector of OpenTelemetry each minute, and once more when the mount ends, with these names; OpenTelemetry's variables set the time between (`OTEL_METRIC_EXPORT_INTERVAL`), headers (`OTEL_EXPORTER_OTLP_HEADERS`) and what the mount is called (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`). All count from the mount on, and each mount has its own.

A key in JSON is the name without `s3mount_` and `_total`; the values of labels follow it (in capitals here). A histogram is an object: `count`, `sum`, and `buckets`, how many values were at most as large as each bound and larger than the one before, where there were any. In Prometheus text the buckets add up.

A *stable* metric keeps its name, labels and meaning within a major version. An *experimental* one follows the code.

This page is made from the definitions: `WRITE_PAGES=1 cargo test --test metrics` writes it.
";

fn groups() -> Vec<(&'static str, &'static [Definition])> {
    vec![
        ("Reads", PrefetchMetrics::DEFINITIONS),
        ("The disk cache", DiskMetrics::DEFINITIONS),
        ("Names and files", FsMetrics::DEFINITIONS),
        ("Changes of others", ChangeMetrics::DEFINITIONS),
        ("The kernel's requests", FuseMetrics::DEFINITIONS),
        ("Requests to the store", RequestMetrics::DEFINITIONS),
        ("Requests that change objects", WriteRequestMetrics::DEFINITIONS),
        ("Retries", RetryMetrics::DEFINITIONS),
        ("Rates", RateMetrics::DEFINITIONS),
        ("Writing", WriteMetrics::DEFINITIONS),
        ("The shared cache", SharedMetrics::DEFINITIONS),
        ("The daemon", DaemonMetrics::DEFINITIONS),
    ]
}

#[test]
fn the_page_says_what_the_definitions_say() {
    let sections =
        groups().into_iter().map(|(title, definitions)| format!("\n{}", markdown(title, definitions)));
    let page = HEAD.to_owned() + &sections.collect::<String>();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &page).expect("the page is written");
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == page, "{PAGE} is out of date: run `{WRITE}=1 cargo test --test metrics`");
}

#[test]
fn each_metric_is_well_named_and_defined_once() {
    let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for definition in groups().into_iter().flat_map(|(_, definitions)| definitions) {
        assert_eq!(definition.fault(), None, "{}", definition.name);
        assert!(names.insert(definition.name), "{} is defined twice", definition.name);
        assert!(keys.insert(definition.short_name()), "two have the key {}", definition.short_name());
    }
}

/// The names of metrics in a text, with the endings of histograms.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_plain(character));
    words.filter(|word| word.starts_with("s3mount_")).collect()
}

#[test]
fn the_dashboard_shows_metrics_that_the_page_has() {
    let dashboard = std::fs::read_to_string("examples/grafana/s3mount.json").expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut shown = 0;
    for expression in targets.map(|target| target["expr"].as_str().expect("an expression")) {
        let names = names_in(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            let parts = ["_bucket", "_sum", "_count"];
            let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
            let row = |name: &str| page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let found = row(name).or_else(|| row(histogram?).filter(|row| row.contains("| histogram |")));
            let row = found.unwrap_or_else(|| panic!("{PAGE} has no {name}"));
            // Counters grow, so only their rates say anything.
            assert!(!row.contains("| counter |") || expression.contains("rate("), "{expression}");
            shown += 1;
        }
    }
    assert!(shown > 30, "{shown} metrics");
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        for name in variable["definition"].as_str().map(names_in).unwrap_or_default() {
            assert!(page.contains(&format!("| `{name}` |")), "{PAGE} has no {name}");
        }
    }
}
