//! The names of a mount that has them from a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use s3mount_listed::Named;
use s3mount_settings::resolved::Config;
use s3mount_settings::resolved::names::NamesFrom;
use s3mount_system::terminal;
use tokio::runtime::Handle;

use super::manager;

/// How often it is told how far an index is.
const TOLD_EACH: Duration = Duration::from_secs(10);

/// How much longer systemd has to wait after it was told so, in microseconds.
const PATIENCE_US: u32 = 60_000_000;

/// Finds the index of the list, or builds it.
///
/// # Errors
/// What is wrong with the list, and where.
pub(super) fn find(from: &NamesFrom, config: &Config, runtime: &Handle) -> anyhow::Result<Named> {
    let names = from.names(SystemTime::now(), runtime)?;
    if let Some(named) = names.find(config.shown.prefix()).context("--names-from")? {
        warn_if_empty(&named, from, config);
        tracing::info!(names = named.index.keys(), index = %named.path.display(), "the index of the list was found");
        return Ok(named);
    }
    let text = format!("building the index of the names in {}; later mounts find it", from.shown());
    tracing::info!(dir = %from.dir.display(), "{text}");
    if !config.foreground {
        terminal::notice(&text);
    }
    let began = Instant::now();
    let telling = runtime.spawn(tell(names.rows.clone()));
    let built = names.build().context("--names-from");
    telling.abort();
    let named = built?;
    let (count, bytes, took) = (named.index.keys(), named.index.bytes(), began.elapsed());
    tracing::info!(names = count, bytes, ?took, index = %named.path.display(), "the index of the list was built");
    s3mount_memory::trim_heap();
    warn_if_empty(&named, from, config);
    let bucket = config.shown.bucket().map(|shown| &shown.store.bucket);
    if let (Some(listed), Some(bucket)) = (&named.source_bucket, bucket)
        && listed != bucket
    {
        let text = format!(
            "--names-from lists the bucket {listed:?}, and the mount is of {bucket:?}: objects that differ can't be read"
        );
        warn(&text, config);
    }
    Ok(named)
}

/// A list without a name is mostly one whose making has failed.
fn warn_if_empty(named: &Named, from: &NamesFrom, config: &Config) {
    if named.index.keys() == 0 {
        warn(&format!("--names-from: {} lists no object, so the mount is empty", from.shown()), config);
    }
}

fn warn(text: &str, config: &Config) {
    tracing::warn!("{text}");
    if !config.foreground {
        terminal::notice(&format!("warning: {text}"));
    }
}

/// Tells the log how many rows were read, and systemd that this takes its time.
async fn tell(rows: Arc<AtomicU64>) {
    loop {
        manager::tell(&format!("EXTEND_TIMEOUT_USEC={PATIENCE_US}"));
        tokio::time::sleep(TOLD_EACH).await;
        tracing::info!(rows = rows.load(Ordering::Relaxed), "the index of the list is being built");
    }
}
