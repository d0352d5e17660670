//! `s3mount trace DIR`: records what a mount does for a while, and writes it down as one HTML page.

mod page;
mod recording;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use s3mount_system::ending::Ending;
use s3mount_system::terminal;
use tempfile::NamedTempFile;

use self::recording::Recording;
use super::stats::{answer, seconds};
use crate::watch::daemon::Daemon;
use crate::watch::prices::Prices;
use crate::watch::sample::Sample;

/// The flags of `s3mount trace`.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceArgs {
    /// Folder where the bucket is mounted, or the control socket of the mount.
    #[arg(value_name = "DIR|SOCKET")]
    mount: PathBuf,

    /// How long to record, in seconds.
    #[arg(long = "for", value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    time: Duration,

    /// File that the page is written to. A file that is there is replaced.
    #[arg(short, long, value_name = "FILE", default_value = "s3mount-trace.html")]
    output: PathBuf,

    #[command(flatten)]
    prices: Prices,
}

/// Records, and writes the page.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let daemon = Daemon::at(&args.mount)?;
    Sample::take(&daemon)?;
    // A file that can't be written shall not be found out about after the recording.
    let mut file = make(&args.output)?;
    let ending = Ending::watch().context("cannot catch signals")?;
    terminal::notice(&format!("recording for {} s; Ctrl-C ends it early", args.time.as_secs_f64()));
    let recording = Recording::make(&daemon, args.time, args.prices, || ending.is_asked())?;
    let shown = args.output.display();
    file.write_all(page::html(&recording)?.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    file.persist(&args.output)
        .map_err(|error| error.error)
        .with_context(|| format!("cannot write {shown}"))?;
    terminal::result(&format!("{shown}: waiting for storage? {}", answer(&recording.report.waiting)));
    Ok(())
}

/// A file beside `output` that takes its place in the end.
fn make(output: &Path) -> anyhow::Result<NamedTempFile> {
    let failed = || format!("cannot write {}; name a file with --output", output.display());
    anyhow::ensure!(!output.is_dir(), "{} is a folder; name a file with --output", output.display());
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Temporary files are for their owner alone. A report is as other files are: as the umask has it.
    let mode = Permissions::from_mode(0o666);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".s3mount-trace-").permissions(mode).tempfile_in(folder).with_context(failed)
}
