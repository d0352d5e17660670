//! From flags and environment to settings, checked once.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::args::MountArgs;
use crate::size::Size;

const MIB: u64 = 1 << 20;

/// The least memory that reads anything at speed: a few parts for each of a few streams.
const MIN_MEMORY_BYTES: u64 = 64 * MIB;

/// Everything that a mount is to be.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) bucket: String,
    /// Empty, or ending in `/`.
    pub(crate) prefix: String,
    /// Absolute.
    pub(crate) dir: PathBuf,
    pub(crate) nonempty: bool,
    pub(crate) region: Option<String>,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) force_path_style: bool,
    pub(crate) profile: Option<String>,
    pub(crate) no_sign_request: bool,
    pub(crate) ca_bundle: Option<PathBuf>,
    pub(crate) allow_other: bool,
    pub(crate) allow_root: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) dir_mode: u16,
    pub(crate) file_mode: u16,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) part_bytes: u64,
    pub(crate) max_window_bytes: u64,
    pub(crate) initial_window_bytes: u64,
    pub(crate) random_read_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) read_timeout: Duration,
    pub(crate) max_connections: u32,
    pub(crate) threads: usize,
    pub(crate) metadata_ttl: MetadataTtl,
    pub(crate) foreground: bool,
    pub(crate) log_directory: Option<PathBuf>,
    pub(crate) debug: bool,
}

/// `--metadata-ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataTtl(pub(crate) s3mount_fs::MetadataTtl);

impl FromStr for MetadataTtl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use s3mount_fs::MetadataTtl::{For, Indefinite, Minimal};
        Ok(Self(match text {
            "minimal" => Minimal,
            "indefinite" => Indefinite,
            seconds => For(Duration::from_secs(
                seconds
                    .parse::<u32>()
                    .map_err(|_| "neither seconds, such as 60, nor minimal, nor indefinite")?
                    .into(),
            )),
        }))
    }
}

/// An environment variable that is set and not empty.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Config {
    /// Checks the flags and fills in what they leave open.
    pub(crate) fn new(args: &MountArgs) -> anyhow::Result<Self> {
        let source = args.source.as_deref().context("no bucket was given")?;
        let (bucket, prefix) = bucket_and_prefix(source, args.prefix.as_deref())?;
        let dir = args.dir.as_deref().context("no folder was given")?;
        let memory_limit_bytes = memory_limit(args.memory_limit)?;
        let window = args.prefetch_window.map_or((memory_limit_bytes / 2).min(512 * MIB), |size| size.0);
        let part_bytes = multiple("--part-size", args.part_size, MIB, 64 * MIB)?;
        let random_read_bytes = multiple("--random-read-size", args.random_read_size, MIB / 16, 8 * MIB)?;
        ensure!(window >= MIB, "--prefetch-window {} is too small: it needs at least 1MiB", Size(window));
        let initial = args.prefetch_initial.0.min(window);
        ensure!(
            initial >= MIB / 16,
            "--prefetch-initial {} is too small: it needs at least 64KiB",
            args.prefetch_initial
        );
        Ok(Self {
            bucket,
            prefix,
            dir: std::path::absolute(dir).with_context(|| format!("{} is no path", dir.display()))?,
            nonempty: args.nonempty,
            region: args.region.clone().or_else(|| env("AWS_REGION")).or_else(|| env("AWS_DEFAULT_REGION")),
            endpoint_url: args
                .endpoint_url
                .clone()
                .or_else(|| env("AWS_ENDPOINT_URL_S3"))
                .or_else(|| env("AWS_ENDPOINT_URL")),
            force_path_style: args.force_path_style,
            profile: args.profile.clone(),
            no_sign_request: args.no_sign_request,
            ca_bundle: args.ca_bundle.clone().or_else(|| env("AWS_CA_BUNDLE").map(PathBuf::from)),
            allow_other: args.allow_other,
            allow_root: args.allow_root,
            uid: args.uid.unwrap_or_else(|| nix::unistd::getuid().as_raw()),
            gid: args.gid.unwrap_or_else(|| nix::unistd::getgid().as_raw()),
            dir_mode: args.dir_mode,
            file_mode: args.file_mode,
            memory_limit_bytes,
            part_bytes,
            max_window_bytes: window,
            initial_window_bytes: initial,
            random_read_bytes,
            read_ahead_bytes: args.read_ahead.0,
            read_timeout: Duration::from_secs(args.read_timeout),
            max_connections: args.max_connections,
            threads: args.max_threads.map_or_else(cores, usize::from),
            metadata_ttl: args.metadata_ttl,
            foreground: args.foreground,
            log_directory: args.log_directory.as_deref().map(std::path::absolute).transpose()?,
            debug: args.debug,
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(4, usize::from).clamp(2, 16)
}

fn bucket_and_prefix(source: &str, flag: Option<&str>) -> anyhow::Result<(String, String)> {
    let path = source.strip_prefix("s3://").unwrap_or(source);
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if bucket.is_empty() || bucket.len() > 255 || !bucket.chars().all(allowed) {
        bail!(
            "{source:?} does not begin with a bucket's name; write BUCKET, BUCKET/PREFIX or s3://BUCKET/PREFIX"
        );
    }
    let prefix = match (prefix, flag.unwrap_or_default()) {
        (prefix, "") | ("", prefix) => prefix,
        (prefix, flag) => {
            bail!("two prefixes were given, {prefix:?} with the bucket and --prefix {flag:?}; give one")
        }
    };
    let slash = if prefix.is_empty() || prefix.ends_with('/') { "" } else { "/" };
    Ok((bucket.to_owned(), format!("{prefix}{slash}")))
}

fn multiple(flag: &str, size: Size, unit: u64, largest: u64) -> anyhow::Result<u64> {
    let fits = size.0 > 0 && size.0 <= largest && size.0.is_multiple_of(unit);
    ensure!(
        fits,
        "{flag} {size} is not a multiple of {} from {} to {}",
        Size(unit),
        Size(unit),
        Size(largest)
    );
    Ok(size.0)
}

fn memory_limit(flag: Option<Size>) -> anyhow::Result<u64> {
    if let Some(Size(bytes)) = flag {
        ensure!(
            bytes >= MIN_MEMORY_BYTES,
            "--memory-limit {} is too small: s3mount needs at least {}; try --memory-limit 256MiB",
            Size(bytes),
            Size(MIN_MEMORY_BYTES)
        );
        return Ok(bytes);
    }
    let machine = meminfo_total().unwrap_or(8 << 30);
    let bound = cgroup_limit().map_or(machine, |limit| limit.min(machine));
    Ok((bound / 8).clamp(256 * MIB, 4096 * MIB) / MIB * MIB)
}

fn meminfo_total() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The least memory limit of this process's cgroup and those above it.
fn cgroup_limit() -> Option<u64> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = cgroups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let own = Path::new(root).join(path.trim_start_matches('/'));
        own.ancestors()
            .take_while(|group| group.starts_with(root))
            .filter_map(|group| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok())
            .collect::<Vec<u64>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::{bucket_and_prefix, memory_limit, multiple};
    use crate::size::Size;

    #[test]
    fn sources_are_read_with_and_without_scheme() {
        let read = |source, flag| bucket_and_prefix(source, flag).map_err(|error| error.to_string());
        let parts = |bucket: &str, prefix: &str| Ok((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("b", None), parts("b", ""));
        assert_eq!(read("s3://b/", None), parts("b", ""));
        assert_eq!(read("s3://b/p/q", None), parts("b", "p/q/"));
        assert_eq!(read("b", Some("p/")), parts("b", "p/"));
        assert!(
            read("b/p", Some("q")).is_err_and(|error| error.contains("\"p\"") && error.contains("\"q\""))
        );
        assert!(read("s3://", None).is_err() && read("b c", None).is_err());
    }

    #[test]
    fn limits_name_value_and_remedy() {
        let error = memory_limit(Some(Size(1 << 20))).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("--memory-limit 1MiB is too small: s3mount needs at least 64MiB; try --memory-limit 256MiB"
                .into())
        );
        assert!(multiple("--part-size", Size(3 << 19), 1 << 20, 64 << 20).is_err());
        assert_eq!(multiple("--part-size", Size(3 << 20), 1 << 20, 64 << 20).ok(), Some(3 << 20));
        let default = memory_limit(None).expect("a default");
        assert!((256 << 20..=4u64 << 30).contains(&default));
    }
}
