//! `s3mount stats DIR`: what a mount does now.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::HumanCount;
use s3mount_system::terminal::{self, plain};

use crate::watch::daemon::Daemon;
use crate::watch::prices::Prices;
use crate::watch::report::{Report, Reporter, Verdict, Waiting};
use crate::watch::shown::{bytes, dollars, percent, rate, tail};

/// The most processes and files that are shown.
const MAX_LINES: usize = 10;

/// The flags of `s3mount stats`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatsArgs {
    /// Folder where the bucket is mounted, or the control socket of the mount.
    #[arg(value_name = "DIR|SOCKET")]
    mount: PathBuf,

    /// Print JSON: one object on one line.
    #[arg(long)]
    json: bool,

    /// Go on until Ctrl-C.
    #[arg(short, long)]
    watch: bool,

    /// Seconds over which rates and waits are taken.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    #[command(flatten)]
    prices: Prices,
}

/// A time in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not a time from 0.1 to 3600 seconds; write it like 1 or 30s".to_owned())
}

/// Prints what the mount does, once or again and again.
pub fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let mut reporter = Reporter::new(&Daemon::at(&args.mount)?, args.prices, false)?;
    let mut is_first = true;
    loop {
        let report = reporter.next(args.interval, || false)?;
        let gap = if is_first { "" } else { "\n" };
        // Nobody reads any more if the pipe is broken.
        let is_read = if args.json {
            terminal::json(&report)?
        } else {
            writeln!(io::stdout(), "{gap}{}", page(&report)).and_then(|()| io::stdout().flush()).is_ok()
        };
        if !args.watch || !is_read {
            return Ok(());
        }
        is_first = false;
    }
}

/// The answer to the question whether the loader waits for storage.
pub(crate) fn answer(waiting: &Waiting) -> String {
    let count = waiting.processes.len();
    let share = percent(waiting.share.unwrap_or(0.0));
    let who = if count == 1 { "one process reads".to_owned() } else { format!("{count} processes read") };
    match waiting.verdict {
        Verdict::Yes => format!("yes, {share} of the time ({who})"),
        Verdict::Partly => format!("partly, {share} of the time ({who})"),
        Verdict::No => format!("no, {share} of the time ({who})"),
        Verdict::Idle => "no: nobody asks the mount for anything".to_owned(),
        Verdict::Unknown => "not known: the daemon does not tell this command who waits".to_owned(),
    }
}

/// The report as a page of text.
fn page(report: &Report) -> String {
    let mut page = String::new();
    // A String takes all that is written.
    let _ = write(&mut page, report);
    page.truncate(page.trim_end().len());
    page
}

fn write(page: &mut String, report: &Report) -> std::fmt::Result {
    let Report { waiting, memory, so_far, .. } = report;
    if !report.source.is_empty() {
        writeln!(page, "{}, over {:.1} s", plain(&report.source), report.seconds)?;
    }
    writeln!(page, "waiting for storage?  {}", answer(waiting))?;
    for reason in &waiting.reasons {
        writeln!(page, "  because     {reason}")?;
    }
    for process in waiting.processes.iter().take(MAX_LINES) {
        let name = format!("{} ({})", plain(&process.name), process.pid);
        let speed = rate(process.bytes as f64 / report.seconds);
        writeln!(page, "  {name:<28} waits {:>5}  reads {speed}", percent(process.share))?;
    }
    if waiting.calls > 0 {
        writeln!(
            page,
            "  now         {} calls wait, the longest for {:.1} s",
            waiting.calls, waiting.longest_seconds
        )?;
    }
    let per_second = |count: f64| HumanCount(count.round() as u64);
    writeln!(
        page,
        "read          {} in {} reads/s",
        rate(report.read_bytes_per_second),
        per_second(report.reads_per_second)
    )?;
    writeln!(
        page,
        "fetched       {} in {} GETs/s{}",
        rate(report.fetched_bytes_per_second),
        per_second(report.gets_per_second),
        report.get_seconds.map(|seconds| format!(", {:.0} ms each", seconds * 1e3)).unwrap_or_default()
    )?;
    if so_far.written_bytes > 0 {
        let (written, uploaded) = (report.written_bytes_per_second, report.uploaded_bytes_per_second);
        writeln!(page, "written       {}, uploaded {}", rate(written), rate(uploaded))?;
    }
    writeln!(
        page,
        "in flight     {} GETs ({} ahead of readers), {} LISTs, {} uploads, {} connections",
        report.gets_in_flight,
        report.gets_ahead,
        report.lists_in_flight,
        report.uploads_in_flight,
        report.connections
    )?;
    writeln!(
        page,
        "windows       {} streams, {} in all, the widest {}",
        report.streams,
        bytes(report.window_bytes),
        bytes(report.widest_window_bytes)
    )?;
    writeln!(page, "memory        {} of {}", bytes(memory.used_bytes), bytes(memory.limit_bytes))?;
    let owners = [
        ("in flight", memory.in_flight_bytes),
        ("read ahead", memory.read_ahead_bytes),
        ("block cache", memory.block_cache_bytes),
        ("uploads", memory.uploads_bytes),
        ("other", memory.other_bytes),
    ];
    for (owner, held) in owners.into_iter().filter(|(_, held)| *held > 0) {
        writeln!(page, "  {owner:<12}{}", bytes(held))?;
    }
    if let Some(found) = &report.found {
        writeln!(
            page,
            "reads found   {} in memory, {} on their way, {} asked for",
            percent(found.in_memory),
            percent(found.in_flight),
            percent(found.asked_for)
        )?;
    }
    if let Some(share) = report.disk_hits {
        writeln!(page, "disk cache    {} of what memory did not have", percent(share))?;
    }
    if let Some(share) = report.shared_hits {
        writeln!(page, "shared cache  {} of the ranges that it was asked for", percent(share))?;
    }
    for file in report.files.iter().take(MAX_LINES) {
        let waits = if file.waiting > 0 { format!(", {} reads wait", file.waiting) } else { String::new() };
        let (name, ahead) = (tail(&file.key, 40), bytes(file.unread_bytes));
        writeln!(page, "  {name:<40} {} GETs, {ahead} ahead{waits}", file.gets_in_flight)?;
    }
    writeln!(
        page,
        "so far        {} read, {} fetched ({} for nothing); {} GETs, {} HEADs, {} LISTs",
        bytes(so_far.read_bytes),
        bytes(so_far.fetched_bytes),
        bytes(so_far.wasted_bytes),
        HumanCount(so_far.gets),
        HumanCount(so_far.heads),
        HumanCount(so_far.lists)
    )?;
    writeln!(
        page,
        "trouble       {} retries, {} throttled answers, {} stalls",
        so_far.retries, so_far.throttled, so_far.stalls
    )?;
    writeln!(page, "cost so far   {}, about", dollars(so_far.dollars))?;
    if report.lost_events > 0 {
        writeln!(page, "{} calls were too many to look at; the shares are too small", report.lost_events)?;
    }
    Ok(())
}
