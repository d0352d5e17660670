//! Makes the table and the JSON of a bench.

use s3mount_settings::flags::size::Size;
use serde::Serialize;

use super::measured::{Measured, Point};
use super::subject::Bench;

/// A line of the table. A measurement is missing if it did not fit into the memory limit, if a mount can't
/// have this part size, or if it was not wanted.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) client: Option<Measured>,
    pub(crate) mount: Option<Measured>,
}

impl Row {
    pub(crate) fn line(&self) -> String {
        let Row { point, client, mount } = self;
        format!(
            "{:>8} {:>11} |{} |{}",
            Size(point.part_bytes).to_string(),
            point.connections,
            columns(client.as_ref()),
            columns(mount.as_ref())
        )
    }
}

/// The speed, the CPU time, the memory and the requests, as columns.
pub(crate) fn columns(measured: Option<&Measured>) -> String {
    match measured {
        Some(measured) => format!(
            " {:>6.3} {:>9.2} {:>6} {:>8}",
            measured.gb_s(),
            measured.cpu_per_gib(),
            measured.peak_memory_bytes >> 20,
            measured.requests
        ),
        None => format!(" {:>6} {:>9} {:>6} {:>8}", "-", "-", "-", "-"),
    }
}

/// The headings of these columns.
pub(crate) fn headings() -> String {
    format!(" {:>6} {:>9} {:>6} {:>8}", "GB/s", "CPU s/GiB", "MiB", "requests")
}

/// All results of a bench.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bucket: String,
    key: String,
    size: u64,
    bytes: u64,
    seconds: u64,
    memory_limit_bytes: u64,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(bench: &Bench) -> Self {
        Self {
            bucket: bench.store.bucket.clone(),
            key: bench.object.key().to_owned(),
            size: bench.size,
            bytes: bench.bytes,
            seconds: bench.limit.as_secs(),
            memory_limit_bytes: bench.memory_limit_bytes,
            rows: Vec::new(),
        }
    }

    /// Says in one line what is measured.
    pub(crate) fn title(&self) -> String {
        format!(
            "s3://{}/{} ({}): {} or {} s each, in a memory limit of {}",
            self.bucket,
            self.key,
            Size(self.size),
            Size(self.bytes),
            self.seconds,
            Size(self.memory_limit_bytes)
        )
    }

    pub(crate) fn heading(&self) -> String {
        let headings = headings();
        format!(
            "{}\n{:>20} |{:<width$} | through a mount\n{:>8} {:>11} |{headings} |{headings}",
            self.title(),
            "",
            " client alone",
            "part",
            "connections",
            width = headings.len()
        )
    }

    /// The row with the fastest of the measurements that `of` chooses.
    pub(crate) fn best(&self, of: fn(&Row) -> Option<&Measured>) -> Option<(&Row, &Measured)> {
        let rows = self.rows.iter().filter_map(|row| Some((row, of(row)?)));
        rows.max_by(|(_, a), (_, b)| a.gb_s().total_cmp(&b.gb_s()))
    }

    /// Says in words which settings were the fastest for the client and for the mount.
    pub(crate) fn verdict(&self) -> String {
        let best = |name: &str, of| match self.best(of) {
            Some((Row { point, .. }, measured)) => format!(
                "{name}: {:.2} GB/s, with parts of {} over {} connections",
                measured.gb_s(),
                Size(point.part_bytes),
                point.connections
            ),
            None => format!("{name}: not measured"),
        };
        let client = best("best of the client alone", |row| row.client.as_ref());
        let mount = best("best through a mount", |row| row.mount.as_ref());
        format!("{client}\n{mount}")
    }

    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
