//! The medians of the passes, the table, and the history.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::reader::Read;
use crate::scenario::{GIB, MIB, Scenario};

/// The result of one pass, and what it cost.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) read: Read,
    /// CPU seconds.
    pub(crate) daemon_cpu: f64,
    pub(crate) reader_cpu: f64,
    pub(crate) server_cpu: f64,
    /// How often the daemon's threads have given up their processor to wait.
    pub(crate) switches: u64,
    /// Bytes.
    pub(crate) peak_rss: u64,
    pub(crate) requests: u64,
    /// Bytes of objects that the server sent.
    pub(crate) fetched: u64,
}

/// The medians of one target's passes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    scenario: &'static str,
    pub(crate) target: &'static str,
    passes: usize,
    /// 10^9 bytes a second.
    pub(crate) gb_s: f64,
    gb_s_least: f64,
    gb_s_most: f64,
    /// The same from 1.5 s on.
    ramped_gb_s: f64,
    /// CPU seconds for each GiB read.
    pub(crate) daemon_cpu: f64,
    pub(crate) reader_cpu: f64,
    pub(crate) server_cpu: f64,
    /// Of the daemon's threads, for each GiB read.
    pub(crate) switches: f64,
    /// MiB; the highest of the passes.
    pub(crate) peak_rss_mib: u64,
    requests: u64,
    fetched_per_read: f64,
    first_byte_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    slowest_of_mean: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Row {
    pub(crate) fn new(scenario: &Scenario, target: &'static str, passes: &[Pass]) -> Self {
        let all = |value: &dyn Fn(&Pass) -> f64| passes.iter().map(value).collect::<Vec<_>>();
        let of = |value: &dyn Fn(&Pass) -> f64| median(all(value));
        let gib = |pass: &Pass| pass.read.bytes as f64 / GIB as f64;
        let speeds = all(&|pass| pass.read.bytes as f64 / pass.read.seconds / 1e9);
        Self {
            scenario: scenario.name,
            target,
            passes: passes.len(),
            gb_s_least: speeds.iter().copied().fold(f64::INFINITY, f64::min),
            gb_s_most: speeds.iter().copied().fold(0.0, f64::max),
            gb_s: median(speeds),
            ramped_gb_s: of(&|pass| pass.read.after_ramp / 1e9),
            daemon_cpu: of(&|pass| pass.daemon_cpu / gib(pass)),
            reader_cpu: of(&|pass| pass.reader_cpu / gib(pass)),
            server_cpu: of(&|pass| pass.server_cpu / gib(pass)),
            switches: of(&|pass| pass.switches as f64 / gib(pass)),
            peak_rss_mib: passes.iter().map(|pass| pass.peak_rss / MIB).max().unwrap_or(0),
            requests: of(&|pass| pass.requests as f64) as u64,
            fetched_per_read: of(&|pass| pass.fetched as f64 / pass.read.bytes as f64),
            first_byte_ms: of(&|pass| pass.read.first_byte_ms),
            p50_ms: of(&|pass| pass.read.p50_ms),
            p99_ms: of(&|pass| pass.read.p99_ms),
            max_ms: of(&|pass| pass.read.max_ms),
            slowest_of_mean: of(&|pass| pass.read.slowest / pass.read.mean),
        }
    }
}

/// GB/s in five characters or six.
pub(crate) fn rate(gb_s: f64) -> String {
    if gb_s < 0.1 { format!("{gb_s:.4}").trim_start_matches('0').to_owned() } else { format!("{gb_s:.2}") }
}

/// The scenario's rows, and how near the mount comes to the ceilings.
pub(crate) fn table(scenario: &Scenario, rows: &[Row]) -> String {
    let mut text = format!(
        "{:<24} {:>6} {:>11} {:>6} {:>6} {:>6} {:>6} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7} {:>5}\n",
        scenario.name,
        "GB/s",
        "least-most",
        "ramped",
        "daemon",
        "reader",
        "server",
        "MiB",
        "reqs",
        "f/read",
        "ttfb ms",
        "p50 ms",
        "p99 ms",
        "max ms",
        "slow"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "  {:<22} {:>6} {:>5}-{:<5} {:>6} {:>6.2} {:>6.2} {:>6.2} {:>5} {:>6} {:>6.2} {:>7.1} {:>7.2} {:>7.2} {:>7.1} {:>5.2}",
            row.target,
            rate(row.gb_s),
            rate(row.gb_s_least),
            rate(row.gb_s_most),
            rate(row.ramped_gb_s),
            row.daemon_cpu,
            row.reader_cpu,
            row.server_cpu,
            row.peak_rss_mib,
            row.requests,
            row.fetched_per_read,
            row.first_byte_ms,
            row.p50_ms,
            row.p99_ms,
            row.max_ms,
            row.slowest_of_mean,
        );
    }
    let find = |name: &str| rows.iter().find(|row| row.target == name);
    if let (Some(raw), Some(null), Some(mount)) = (find("raw"), find("null"), find("mount")) {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let cpu = raw.server_cpu + raw.daemon_cpu + null.daemon_cpu + null.reader_cpu;
        let by_cores = cores / cpu * GIB as f64 / 1e9;
        let limit = raw.gb_s.min(null.gb_s).min(by_cores);
        let floor = raw.daemon_cpu + null.daemon_cpu;
        let _ = writeln!(
            text,
            "  limit {limit:.2} GB/s (cores {by_cores:.2}): mount has {:.2} of it, at {:.2} of the CPU of raw and null",
            mount.gb_s / limit,
            mount.daemon_cpu / floor,
        );
    }
    text
}

/// One line of the history.
#[derive(Serialize)]
struct Line<'a> {
    commit: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// Appends the rows to the history.
pub(crate) fn record(rows: &[Row]) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let describe =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(folder).output()?;
    let commit = String::from_utf8(describe.stdout)?;
    let mut history =
        OpenOptions::new().create(true).append(true).open(folder.join("benches/history.jsonl"))?;
    for row in rows {
        writeln!(history, "{}", serde_json::to_string(&Line { commit: commit.trim(), row })?)?;
    }
    Ok(())
}
