//! How metrics are shown: JSON, Prometheus text, and a page of documentation.

use std::fmt::{self, Write as _};

use crate::instrument::Distribution;
use crate::{Definition, MetricKind, Names, Snapshot, Stability, Unit, Value};

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// A number in the unit that is shown.
fn shown(unit: Unit, raw: u64) -> String {
    match unit {
        Unit::Count | Unit::Bytes => raw.to_string(),
        Unit::Seconds => format!("{}", raw as f64 / NANOS),
    }
}

impl Snapshot {
    /// One JSON object, with a key for each series: the name without `s3mount_` and `_total`, and the values
    /// of its labels. A histogram is an object of `count`, `sum`, and `buckets`: how many values were at most
    /// as large as each bound, and larger than the one before, where there were any.
    pub fn json(&self) -> String {
        let mut members = Vec::new();
        for (definition, samples) in &self.0 {
            for sample in samples {
                let value = match &sample.value {
                    Value::Number(value) => value.to_string(),
                    Value::Distribution(distribution) => json_distribution(definition.unit, distribution),
                };
                members.push(format!("  \"{}\": {value}", definition.key(&sample.labels)));
            }
        }
        format!("{{\n{}\n}}\n", members.join(",\n"))
    }

    /// The text format of Prometheus, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for (definition, samples) in &self.0 {
            let family = samples
                .iter()
                .map(|sample| (pairs(definition.labels, &sample.labels), &sample.value))
                .collect::<Vec<_>>();
            write_family(&mut text, definition, &family).expect("a String takes all that is written");
        }
        text
    }
}

/// `text` as a string of JSON, with its quotes.
pub fn json_string(text: &str) -> String {
    let mut string = String::with_capacity(text.len() + 2);
    string.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => string.extend(['\\', character]),
            '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(string, "\\u{:04x}", u32::from(character));
            }
            _ => string.push(character),
        }
    }
    string.push('"');
    string
}

fn json_distribution(unit: Unit, distribution: &Distribution) -> String {
    let bounds = distribution.bounds.iter().map(|bound| shown(unit, *bound));
    let bounds = bounds.chain([String::from("+Inf")]);
    let buckets = bounds.zip(&distribution.counts).filter(|(_, count)| **count > 0);
    let buckets = buckets.map(|(bound, count)| format!("\"{bound}\": {count}"));
    let buckets = buckets.collect::<Vec<_>>().join(", ");
    let (count, sum) = (distribution.count(), shown(unit, distribution.sum));
    format!("{{\"count\": {count}, \"sum\": {sum}, \"buckets\": {{{buckets}}}}}")
}

/// Labels as they stand in a sample's braces.
fn pairs(names: &[Names], values: &[&str]) -> Vec<String> {
    names.iter().zip(values).map(|(label, value)| format!("{}=\"{value}\"", label.name)).collect()
}

fn write_family(
    text: &mut String,
    definition: &Definition,
    family: &[(Vec<String>, &Value)],
) -> Result<(), fmt::Error> {
    let Definition { name, unit, .. } = *definition;
    let help = definition.help.trim().replace('\\', "\\\\").replace('\n', " ");
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind(definition.kind))?;
    for (labels, value) in family {
        match value {
            Value::Number(value) => writeln!(text, "{name}{} {value}", braces(labels))?,
            Value::Distribution(distribution) => {
                write_distribution(text, name, unit, labels, distribution)?;
            }
        }
    }
    Ok(())
}

fn write_distribution(
    text: &mut String,
    name: &str,
    unit: Unit,
    labels: &[String],
    distribution: &Distribution,
) -> Result<(), fmt::Error> {
    let mut below = 0;
    let bounds = distribution.bounds.iter().map(|bound| shown(unit, *bound));
    for (bound, count) in bounds.chain([String::from("+Inf")]).zip(&distribution.counts) {
        below += count;
        let labels: Vec<_> = labels.iter().cloned().chain([format!("le=\"{bound}\"")]).collect();
        writeln!(text, "{name}_bucket{} {below}", braces(&labels))?;
    }
    writeln!(text, "{name}_sum{} {}", braces(labels), shown(unit, distribution.sum))?;
    writeln!(text, "{name}_count{} {below}", braces(labels))
}

fn braces(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

/// A section of documentation: a table of the metrics of a layer.
pub fn markdown(title: &str, definitions: &[Definition]) -> String {
    let mut text = format!(
        "## {title}\n\n| metric | key in JSON | kind | labels | stability | what it counts |\n|---|---|---|---|---|---|\n"
    );
    for definition in definitions {
        let stability = match definition.stability {
            Stability::Stable => "stable",
            Stability::Experimental => "experimental",
        };
        let key = definition.labels.iter().fold(definition.short_name().to_owned(), |key, label| {
            format!("{key}_{}", label.name.to_uppercase())
        });
        let labels = definition.labels.iter().map(|label| {
            let values = label.values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>();
            format!("`{}`: {}", label.name, values.join(", "))
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        let (name, kind, help) = (definition.name, kind(definition.kind), definition.help.trim());
        text += &format!("| `{name}` | `{key}` | {kind} | {labels} | {stability} | {help} |\n");
    }
    text
}
