//! Makes the settings from flags and environment, and checks them once.

pub mod cache;
pub mod credentials;
pub mod defaults;
pub mod directory_bucket;
pub mod environment;
pub(crate) mod globs;
pub mod journal;
pub mod memory;
pub mod names;
pub(crate) mod place;
pub mod profile;
pub(crate) mod shared_cache;
pub mod shown;
pub mod source;
pub mod store;
pub mod target;
pub mod writes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use globset::GlobSet;
use hyper::Uri;
use s3mount_cache::DiskConfig;
use s3mount_changes::QueueName;
use s3mount_fs::MetadataTtl;
use s3mount_prefetch::KeyFilter;
use s3mount_system::threads::EventLoops;

use self::globs::globs;
use self::names::NamesFrom;
use self::shared_cache::SharedCache;
use self::shown::{Shown, Subtree};
use self::target::Target;
use self::writes::WriteConfig;
use crate::flags::mount::{LogFormat, MountArgs, Verify};
use crate::flags::size::Size;
use crate::flags::writing::WriteArgs;

const MIB: u64 = 1 << 20;

/// All settings of a mount.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the mount shows.
    pub shown: Shown,
    /// What `mount` and `df` show as the source of the mount.
    pub fs_name: String,
    /// The folder to mount at, or the device that is mounted already.
    pub target: Target,
    /// Whether the folder may have something in it.
    pub nonempty: bool,
    /// Whether the kernel refuses all writes.
    pub read_only: bool,
    /// Whether the kernel runs no program of the mount.
    pub noexec: bool,
    /// Whether all users may use the mount.
    pub allow_other: bool,
    /// Whether root may use the mount, beside its user.
    pub allow_root: bool,
    /// The owner of all files and folders.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// The permission bits of folders.
    pub dir_mode: u16,
    /// The permission bits of files.
    pub file_mode: u16,
    /// The bound on memory.
    pub memory_limit_bytes: u64,
    /// The bound that the mount begins with, and the least that it may become. The same as `memory_limit_bytes` unless
    /// others divide the memory.
    pub memory_floor_bytes: u64,
    /// The part of the limit, and of the floor, that threads take.
    pub threads_bytes: u64,
    /// The size of a GET of a stream.
    pub part_bytes: u64,
    /// How far a stream is read ahead at most.
    pub max_window_bytes: u64,
    /// How far a stream is read ahead at first.
    pub initial_window_bytes: u64,
    /// The unit of random reads.
    pub random_read_bytes: u64,
    /// Objects up to this size are fetched whole when they are opened.
    pub small_object_bytes: u64,
    /// How far the kernel reads ahead.
    pub read_ahead_bytes: u64,
    /// How long a read waits for the store.
    pub read_timeout: Duration,
    /// When bytes are compared with checksums.
    pub verify: Verify,
    /// Whether slow GETs are not sent a second time.
    pub no_hedging: bool,
    /// The files that are read without the page cache.
    pub direct_io: GlobSet,
    /// Whether the mount chooses such files by itself.
    pub direct_auto: bool,
    /// The most connections to the store.
    pub max_connections: u32,
    /// The most bytes that are read from the store in a second.
    pub max_read_rate: Option<u64>,
    /// The most bytes that are written to the store in a second.
    pub max_write_rate: Option<u64>,
    /// The most requests in a second.
    pub max_request_rate: Option<u32>,
    /// The threads for the requests of the kernel, and as many for tasks.
    pub threads: usize,
    /// The event loops of the clients.
    pub event_loops: EventLoops,
    /// The list that the names are taken from, if there is one.
    pub names_from: Option<NamesFrom>,
    /// How long a name and its attributes are believed.
    pub metadata_ttl: MetadataTtl,
    /// How long it is believed that a name is absent.
    pub negative_metadata_ttl: MetadataTtl,
    /// The queue that tells of changes, if there is one.
    pub events_from: Option<QueueName>,
    /// The bound on the memory for names.
    pub metadata_limit_bytes: usize,
    /// The most names that the kernel may know.
    pub inode_limit: usize,
    /// The disk cache, if there is one.
    pub cache: Option<DiskConfig>,
    /// Which files are kept in the cache.
    pub kept: KeyFilter,
    /// Whether the kernel reads files of the disk cache by itself.
    pub passthrough: bool,
    /// The shared cache, if there is one.
    pub shared_cache: Option<SharedCache>,
    /// Unset if nothing may be written.
    pub writes: Option<WriteConfig>,
    /// Whether owner, mode and time of files are kept beside the objects.
    pub keeps_attributes: bool,
    /// Whether the process stays where it was started.
    pub foreground: bool,
    /// Whether the mount goes on when its daemon is killed.
    pub keep_alive: bool,
    /// Where the mount listens for hints and questions.
    pub control_socket: Option<PathBuf>,
    /// Where the metrics are served over HTTP.
    pub metrics_listen: Option<SocketAddr>,
    /// The collector of OpenTelemetry that metrics are sent to.
    pub otlp_endpoint: Option<Uri>,
    /// The folder for logs, if one is named.
    pub log_directory: Option<PathBuf>,
    /// The form of the log's lines.
    pub log_format: LogFormat,
    /// Where the audit log goes, if there is one.
    pub audit_log: Option<AuditTarget>,
    /// Whether details are logged.
    pub debug: bool,
    /// The text of the file that settings were read from, for the daemons after the first one.
    pub file: Option<String>,
    /// Warnings that the user gets before the mount starts.
    pub warnings: Vec<String>,
}

/// The time for which `--immutable` and `--names-from` believe a listing.
const FOR_EVER: MetadataTtl = MetadataTtl::Indefinite;

impl Config {
    /// Checks the flags, and fills in the defaults of flags that were not given.
    pub fn new(args: &MountArgs) -> anyhow::Result<Self> {
        let shown = Shown::new(args)?;
        let (_, dir) = args.places();
        let dir = dir.context("no folder was given; see s3mount --help")?;
        let WriteArgs { storage_class, sse, .. } = &args.writing;
        if let Some(Subtree { store, .. }) = shown.bucket() {
            directory_bucket::check_objects(&store.bucket, storage_class.as_deref(), sse.as_deref())?;
            directory_bucket::check_events(&store.bucket, args.events_from.is_some())?;
        }
        let metadata_limit_bytes = metadata_limit(args.metadata_limit)?;
        let memory_limit_bytes = memory::limit(args.memory_limit)?;
        let memory_floor_bytes = memory::floor(args.memory_floor, memory_limit_bytes)?;
        let is_divided = memory_floor_bytes < memory_limit_bytes;
        let least = if is_divided { "--memory-floor" } else { "--memory-limit" };
        let least = (least, memory_floor_bytes);
        let (threads, session_bytes) =
            memory::threads(args.max_threads, least, args.writing.allows_writes())?;
        let (event_loops, loop_bytes) =
            memory::event_loops(args.max_threads, memory_floor_bytes, args.shared_cache.is_some());
        let (part_bytes, warning) = memory::part(args.part_size, memory_floor_bytes)?;
        let (max_window_bytes, initial_window_bytes) = windows(args, memory_limit_bytes)?;
        let target = Target::new(dir)?;
        let mounted_at = target.dir().map(Path::to_owned);
        target.check_flags(&[("--noexec", args.noexec), ("--nonempty", args.nonempty)])?;
        let cache = cache::disk(args, shown.identity(), target.dir(), memory_limit_bytes, part_bytes)?;
        let shared_cache = match shown.bucket() {
            Some(bucket) => shared_cache::shared(args, &bucket.store, memory_limit_bytes)?,
            None => None,
        };
        let names_from = match shown.bucket() {
            Some(bucket) => names::names_from(args, &bucket.store, memory_limit_bytes, threads)?,
            None => None,
        };
        let (metadata_ttl, negative_metadata_ttl) = match args.immutable || names_from.is_some() {
            true => (FOR_EVER, FOR_EVER),
            false => (args.metadata_ttl.0, args.negative_metadata_ttl.0),
        };
        let kept = KeyFilter::new(
            shown.prefix(),
            globs("--cache-include", &args.cache_include)?,
            globs("--cache-exclude", &args.cache_exclude)?,
        );
        Ok(Self {
            fs_name: shown.to_string(),
            shown,
            audit_log: audit_log(args, target.dir())?,
            target,
            nonempty: args.nonempty,
            read_only: args.read_only,
            noexec: args.noexec,
            allow_other: args.allow_other,
            allow_root: args.allow_root,
            uid: args.uid.unwrap_or_else(|| nix::unistd::getuid().as_raw()),
            gid: args.gid.unwrap_or_else(|| nix::unistd::getgid().as_raw()),
            dir_mode: args.dir_mode,
            file_mode: args.file_mode,
            memory_limit_bytes,
            memory_floor_bytes,
            threads_bytes: session_bytes + loop_bytes,
            part_bytes,
            max_window_bytes,
            initial_window_bytes,
            random_read_bytes: random_read(args.random_read_size)?,
            small_object_bytes: args.small_file_size.0,
            read_ahead_bytes: args.read_ahead.0,
            read_timeout: Duration::from_secs(args.read_timeout),
            verify: args.verify,
            no_hedging: args.no_hedging,
            direct_io: direct_io(&args.direct_io)?,
            direct_auto: args.direct_io.iter().any(|pattern| pattern == AUTO),
            max_connections: args.max_connections,
            max_read_rate: args.max_read_rate.map(|rate| rate.0),
            max_write_rate: args.max_write_rate.map(|rate| rate.0),
            max_request_rate: args.max_request_rate,
            threads,
            event_loops,
            names_from,
            metadata_ttl,
            negative_metadata_ttl,
            events_from: args.events_from.clone(),
            metadata_limit_bytes,
            inode_limit: memory::inodes(),
            cache,
            kept,
            passthrough: !args.no_passthrough,
            shared_cache,
            writes: writes::writes(&args.writing, memory_floor_bytes).and_then(|writes| {
                ensure!(
                    !args.keep_alive || writes.as_ref().is_none_or(|writes| writes.outbox.is_none()),
                    "--write-behind can't be used with --keep-alive yet: leave one of them out (a mount that begins anew uploads \
                     what waits, too)"
                );
                let outbox = writes.as_ref().and_then(|writes| writes.outbox.as_ref());
                if let (Some(outbox), Some(mount)) = (outbox, &mounted_at) {
                    ensure!(
                        !outbox.dir.starts_with(mount),
                        "--write-behind {} lies in the mount itself; name a folder outside of it",
                        outbox.dir.display()
                    );
                }
                Ok(writes)
            })?,
            keeps_attributes: args.writing.keep_attributes,
            foreground: args.foreground,
            keep_alive: args.keep_alive,
            control_socket: args.control_socket.as_deref().map(std::path::absolute).transpose()?,
            metrics_listen: args.metrics_listen,
            otlp_endpoint: args.otlp_endpoint.clone(),
            log_directory: args.log_directory.as_deref().map(std::path::absolute).transpose()?,
            log_format: args.log_format,
            debug: args.debug,
            file: None,
            warnings: warning.into_iter().collect(),
        })
    }
}

/// Where an audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// To a file.
    File(PathBuf),
    /// To standard output.
    Stdout,
}

fn audit_log(args: &MountArgs, dir: Option<&Path>) -> anyhow::Result<Option<AuditTarget>> {
    let Some(path) = &args.audit_log else { return Ok(None) };
    if path.as_os_str() == "-" {
        ensure!(args.foreground, "--audit-log - needs --foreground; name a file, or give both");
        return Ok(Some(AuditTarget::Stdout));
    }
    let path = std::path::absolute(path)?;
    ensure!(
        !dir.is_some_and(|dir| path.starts_with(dir)),
        "--audit-log {} lies in the mount itself; name a file outside of it",
        path.display()
    );
    Ok(Some(AuditTarget::File(path)))
}

/// The value of `--direct-io` with which the mount chooses the files by itself.
const AUTO: &str = "auto";

/// The files that are read without the page cache.
fn direct_io(patterns: &[String]) -> anyhow::Result<GlobSet> {
    globs("--direct-io", patterns.iter().filter(|pattern| *pattern != AUTO))
}

/// The limit on the memory for names. It holds at least a page or two of a listing.
fn metadata_limit(flag: Option<Size>) -> anyhow::Result<usize> {
    let size = flag.unwrap_or_else(|| Size(memory::names().max(MIB)));
    ensure!(
        size.0 >= MIB,
        "--metadata-limit {size} is too small: it needs at least 1MiB; leave it out for the default"
    );
    Ok(usize::try_from(size.0).unwrap_or(usize::MAX))
}

/// The largest window and the first window of a stream.
fn windows(args: &MountArgs, memory_limit_bytes: u64) -> anyhow::Result<(u64, u64)> {
    let largest = args.prefetch_window.map_or_else(|| memory::window(memory_limit_bytes), |size| size.0);
    ensure!(
        largest >= MIB,
        "--prefetch-window {} is too small: it needs at least 1MiB; leave it out for the default",
        Size(largest)
    );
    let initial = args.prefetch_initial;
    ensure!(
        initial.0 >= MIB / 16,
        "--prefetch-initial {initial} is too small: it needs at least 64KiB; leave it out for the default"
    );
    Ok((largest, initial.0.min(largest)))
}

/// The size of a block. Segments consist of blocks, and have their edges at multiples of 1 MiB, so the size
/// must be a power of two.
fn random_read(size: Size) -> anyhow::Result<u64> {
    ensure!(
        size.0.is_power_of_two() && (MIB / 16..=8 * MIB).contains(&size.0),
        "--random-read-size {size} is not a power of two from 64KiB to 8MiB; try 128KiB"
    );
    Ok(size.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::{AuditTarget, Config, FOR_EVER, MetadataTtl, direct_io, random_read};
    use crate::flags::size::Size;
    use crate::for_tests::Args;

    #[test]
    fn names_are_believed_as_the_flags_say_and_for_ever_if_nothing_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().display().to_string();
        let believed = |flags: &[&str]| {
            let args = Args::parse_from([&["s3mount", "bucket", &dir], flags].concat());
            let config = Config::new(&args.mount).expect("settings");
            (config.metadata_ttl, config.negative_metadata_ttl)
        };
        let seconds = |seconds| MetadataTtl::For(Duration::from_secs(seconds));
        assert_eq!(believed(&[]), (seconds(60), seconds(1)));
        assert_eq!(
            believed(&["--metadata-ttl", "7", "--negative-metadata-ttl", "8"]),
            (seconds(7), seconds(8))
        );
        assert_eq!(believed(&["--metadata-ttl", "minimal"]).0, MetadataTtl::Minimal);
        assert_eq!(believed(&["--metadata-ttl", "indefinite"]), (FOR_EVER, seconds(1)));
        assert_eq!(believed(&["--immutable"]), (MetadataTtl::Indefinite, MetadataTtl::Indefinite));
    }

    #[test]
    fn auto_is_no_pattern_of_direct_io() {
        let set = direct_io(&["auto".to_owned(), "*.tar".to_owned()]).expect("patterns");
        assert_eq!(["x.tar", "auto"].map(|path| set.is_match(path)), [true, false]);
    }

    #[test]
    fn an_audit_log_lies_outside_of_its_mount() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().display().to_string();
        let log = |flags: &[&str]| {
            let args = Args::parse_from([&["s3mount", "bucket", &dir], flags].concat());
            Config::new(&args.mount).map(|config| config.audit_log).map_err(|error| error.to_string())
        };
        let inside = format!("{dir}/log");
        let error = log(&["--audit-log", &inside]).expect_err("it would wait for itself");
        assert_eq!(
            error,
            format!("--audit-log {inside} lies in the mount itself; name a file outside of it")
        );
        assert!(log(&["--audit-log", "-"]).is_err_and(|error| error.contains("needs --foreground")));
        assert_eq!(log(&["--audit-log", "-", "--foreground"]), Ok(Some(AuditTarget::Stdout)));
        assert_eq!(log(&["--audit-log", "/log"]), Ok(Some(AuditTarget::File("/log".into()))));
        assert_eq!(log(&[]), Ok(None));
    }

    #[test]
    fn random_reads_have_units_of_a_power_of_two() {
        assert_eq!(random_read(Size(128 << 10)).ok(), Some(128 << 10));
        for bytes in [0, 32 << 10, 192 << 10, 16 << 20] {
            assert!(random_read(Size(bytes)).is_err(), "{bytes}");
        }
    }
}
