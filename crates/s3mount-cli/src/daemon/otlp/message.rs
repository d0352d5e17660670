//! The metrics as OTLP has them. Names are those of `.s3mount/metrics`, so that dashboards fit both.

use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use s3mount_metrics::{Definition, Distribution, MetricKind, Sample, Snapshot, Unit, Value};

use super::settings::key_value;

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// The time that metrics span, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) started: u64,
    pub(super) now: u64,
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What is sent to the collector.
pub(super) fn request(snapshot: &Snapshot, resource: &Resource, times: Times) -> ExportMetricsServiceRequest {
    let metrics = snapshot.iter().map(|(definition, samples)| metric(definition, samples, times)).collect();
    let scope = InstrumentationScope {
        name: "s3mount".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource.clone());
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn metric(definition: &Definition, samples: &[Sample], times: Times) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let numbers = || samples.iter().filter_map(|sample| number(definition, sample, times)).collect();
    let data = match definition.kind {
        MetricKind::Counter => {
            metric::Data::Sum(Sum { data_points: numbers(), aggregation_temporality, is_monotonic: true })
        }
        MetricKind::Gauge => metric::Data::Gauge(Gauge { data_points: numbers() }),
        MetricKind::Histogram => {
            let data_points = samples.iter().filter_map(|sample| histogram(definition, sample, times));
            metric::Data::Histogram(Histogram { data_points: data_points.collect(), aggregation_temporality })
        }
    };
    let unit = match definition.unit {
        Unit::Count => "1",
        Unit::Bytes => "By",
        Unit::Seconds => "s",
    };
    Metric {
        name: definition.name.to_owned(),
        description: definition.help.trim().to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn attributes(definition: &Definition, sample: &Sample) -> Vec<KeyValue> {
    let labels = definition.labels.iter().zip(&sample.labels);
    labels.map(|(label, value)| key_value(label.name, (*value).to_owned())).collect()
}

fn number(definition: &Definition, sample: &Sample, times: Times) -> Option<NumberDataPoint> {
    let Value::Number(raw) = sample.value else { return None };
    let value = match definition.unit {
        Unit::Seconds => number_data_point::Value::AsDouble(raw as f64 / NANOS),
        Unit::Count | Unit::Bytes => number_data_point::Value::AsInt(i64::try_from(raw).unwrap_or(i64::MAX)),
    };
    Some(NumberDataPoint {
        attributes: attributes(definition, sample),
        start_time_unix_nano: times.started,
        time_unix_nano: times.now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(definition: &Definition, sample: &Sample, times: Times) -> Option<HistogramDataPoint> {
    let Value::Distribution(Distribution { bounds, counts, sum }) = &sample.value else { return None };
    let shown = |raw: u64| if definition.unit == Unit::Seconds { raw as f64 / NANOS } else { raw as f64 };
    Some(HistogramDataPoint {
        attributes: attributes(definition, sample),
        start_time_unix_nano: times.started,
        time_unix_nano: times.now,
        count: counts.iter().sum(),
        sum: Some(shown(*sum)),
        bucket_counts: counts.clone(),
        explicit_bounds: bounds.iter().map(|bound| shown(*bound)).collect(),
        ..HistogramDataPoint::default()
    })
}
