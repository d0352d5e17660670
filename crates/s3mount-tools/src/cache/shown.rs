//! How cached objects, times and totals are shown.

use std::path::Path;
use std::time::{Duration, SystemTime};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use s3mount_cache::{Cached, Described};
use s3mount_system::terminal;
use serde::Serialize;

/// The bucket and the key of a cached object, as users write them. What is stored under `source` is the URL of
/// the bucket.
pub(super) fn object(described: &Described) -> String {
    format!("s3://{}/{}", bucket(described), described.key)
}

/// The bucket of a cached object.
pub(super) fn bucket(described: &Described) -> &str {
    let source = &described.source;
    source.strip_prefix("s3://").unwrap_or_else(|| source.rsplit('/').next().unwrap_or(source))
}

/// How long ago a time was. A time in the future comes from a clock that was wrong.
pub(super) fn since(time: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(time)
}

/// A time with one unit, such as `3h`.
pub(super) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A number of objects and of bytes.
pub(super) fn sum(objects: u64, bytes: u64) -> String {
    let s = if objects == 1 { "" } else { "s" };
    format!("{} object{s}, {}", HumanCount(objects), BinaryBytes(bytes))
}

/// Prints one line of JSON.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    terminal::json(value).map(drop)
}

/// A cached object as JSON.
#[derive(Serialize)]
pub(super) struct Object<'a> {
    dir: &'a Path,
    file: &'a Path,
    /// `None` where nothing is written down about the file.
    object: Option<String>,
    source: Option<&'a str>,
    key: Option<&'a str>,
    etag: Option<&'a str>,
    state: &'static str,
    size_bytes: u64,
    held_bytes: Option<u64>,
    disk_bytes: u64,
    /// Seconds since 1970.
    used: u64,
    written: u64,
}

impl<'a> Object<'a> {
    pub(super) fn new(dir: &'a Path, file: &'a Path, cached: &Cached, about: Option<&'a Described>) -> Self {
        Self {
            dir,
            file,
            object: about.map(object),
            source: about.map(|about| about.source.as_str()),
            key: about.map(|about| about.key.as_str()),
            etag: about.map(|about| about.etag.as_str()),
            state: if cached.is_whole { "whole" } else { "part" },
            size_bytes: cached.size,
            held_bytes: about.map(|about| about.held_bytes),
            disk_bytes: cached.disk_bytes,
            used: cached.used.as_secs(),
            written: cached.written.as_secs(),
        }
    }
}

/// A bar for a number of bytes.
pub(super) fn bytes_bar(bytes: u64) -> ProgressBar {
    let template =
        "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left {msg}";
    let style = ProgressStyle::with_template(template).expect("a template that is right");
    ProgressBar::new(bytes).with_style(style)
}

/// A bar for the shards of some folders.
pub(super) fn shards_bar(shards: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} % {msg}").expect("a template that is right");
    ProgressBar::new(shards).with_style(style)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3mount_cache::Described;

    use super::{object, short};

    #[test]
    fn objects_are_named_by_bucket_and_key() {
        let shown = |source: &str| {
            let (source, key, etag) = (source.to_owned(), "a/b c".to_owned(), "\"1\"".to_owned());
            object(&Described { source, key, etag, held_bytes: 0 })
        };
        assert_eq!(shown("s3://bucket"), "s3://bucket/a/b c");
        assert_eq!(shown("http://127.0.0.1:9000/data"), "s3://data/a/b c");
        let arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint/name";
        assert_eq!(shown(&format!("s3://{arn}")), format!("s3://{arn}/a/b c"));
    }

    #[test]
    fn times_have_one_unit() {
        let shown = |seconds| short(Duration::from_secs(seconds));
        assert_eq!(
            ["119s", "2m", "119m", "2h", "47h", "2d"],
            [119, 120, 7199, 7200, 172_799, 172_800].map(shown)
        );
    }
}
