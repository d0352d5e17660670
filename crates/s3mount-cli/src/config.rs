//! Makes the settings from flags and environment, and checks them once.

pub(crate) mod cache;
pub(crate) mod credentials;
pub(crate) mod defaults;
pub(crate) mod directory_bucket;
pub(crate) mod environment;
pub(crate) mod globs;
pub(crate) mod journal;
pub(crate) mod memory;
pub(crate) mod place;
pub(crate) mod profile;
pub(crate) mod shared_cache;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod target;
pub(crate) mod writes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use globset::GlobSet;
use hyper::Uri;
use s3mount_cache::DiskConfig;
use s3mount_prefetch::KeyFilter;
use s3mount_system::threads::EventLoops;

use self::globs::globs;
use self::shared_cache::SharedCache;
use self::store::Store;
use self::target::Target;
use self::writes::WriteConfig;
use crate::flags::mount::{MountArgs, Verify};
use crate::flags::size::Size;
use crate::flags::ttl::MetadataTtl;
use crate::flags::writing::WriteArgs;

const MIB: u64 = 1 << 20;

/// All settings of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) store: Store,
    /// The prefix of the keys that the mount shows. It is empty or ends in `/`.
    pub(crate) prefix: String,
    /// What `mount` and `df` show as the source of the mount.
    pub(crate) fs_name: String,
    pub(crate) target: Target,
    pub(crate) nonempty: bool,
    pub(crate) read_only: bool,
    pub(crate) noexec: bool,
    pub(crate) allow_other: bool,
    pub(crate) allow_root: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) dir_mode: u16,
    pub(crate) file_mode: u16,
    pub(crate) memory_limit_bytes: u64,
    /// The part of the limit that threads take.
    pub(crate) threads_bytes: u64,
    pub(crate) part_bytes: u64,
    pub(crate) max_window_bytes: u64,
    pub(crate) initial_window_bytes: u64,
    pub(crate) random_read_bytes: u64,
    pub(crate) small_object_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) read_timeout: Duration,
    pub(crate) verify: Verify,
    pub(crate) no_hedging: bool,
    pub(crate) direct_io: GlobSet,
    pub(crate) direct_auto: bool,
    pub(crate) max_connections: u32,
    pub(crate) threads: usize,
    pub(crate) event_loops: EventLoops,
    pub(crate) metadata_ttl: MetadataTtl,
    pub(crate) negative_metadata_ttl: MetadataTtl,
    pub(crate) metadata_limit_bytes: usize,
    pub(crate) inode_limit: usize,
    pub(crate) cache: Option<DiskConfig>,
    /// Which files are kept in the cache.
    pub(crate) kept: KeyFilter,
    pub(crate) passthrough: bool,
    pub(crate) shared_cache: Option<SharedCache>,
    /// Unset if nothing may be written.
    pub(crate) writes: Option<WriteConfig>,
    /// Whether owner, mode and time of files are kept beside the objects.
    pub(crate) keeps_attributes: bool,
    pub(crate) foreground: bool,
    pub(crate) control_socket: Option<PathBuf>,
    /// Where the metrics are served over HTTP.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The collector of OpenTelemetry that metrics are sent to.
    pub(crate) otlp_endpoint: Option<Uri>,
    pub(crate) log_directory: Option<PathBuf>,
    pub(crate) debug: bool,
    /// Warnings that the user gets before the mount starts.
    pub(crate) warnings: Vec<String>,
}

/// The time for which `--immutable` believes a listing.
const FOR_EVER: MetadataTtl = MetadataTtl(s3mount_fs::MetadataTtl::Indefinite);

impl Config {
    /// Checks the flags, and fills in the defaults of flags that were not given.
    pub(crate) fn new(args: &MountArgs) -> anyhow::Result<Self> {
        let source = args.source.as_deref().context("no bucket was given; see s3mount --help")?;
        let dir = args.dir.as_deref().context("no folder was given; see s3mount --help")?;
        let source = source::parse(source, args.prefix.as_deref())?;
        let store = Store::new(source.bucket, &args.access)?;
        let WriteArgs { storage_class, sse, .. } = &args.writing;
        directory_bucket::check_objects(&store.bucket, storage_class.as_deref(), sse.as_deref())?;
        let metadata_limit_bytes = metadata_limit(args.metadata_limit)?;
        let memory_limit_bytes = memory::limit(args.memory_limit)?;
        let (threads, session_bytes) =
            memory::threads(args.max_threads, memory_limit_bytes, args.writing.allows_writes())?;
        let (event_loops, loop_bytes) =
            memory::event_loops(args.max_threads, memory_limit_bytes, args.shared_cache.is_some());
        let (part_bytes, warning) = memory::part(args.part_size, memory_limit_bytes)?;
        let (max_window_bytes, initial_window_bytes) = windows(args, memory_limit_bytes)?;
        let target = Target::new(dir)?;
        target.check_flags(&[
            ("--allow-root", args.allow_root),
            ("--noexec", args.noexec),
            ("--nonempty", args.nonempty),
        ])?;
        let cache = cache::disk(args, &store, target.dir(), memory_limit_bytes, part_bytes)?;
        let shared_cache = shared_cache::shared(args, &store, memory_limit_bytes)?;
        let kept = KeyFilter::new(
            &source.prefix,
            globs("--cache-include", &args.cache_include)?,
            globs("--cache-exclude", &args.cache_exclude)?,
        );
        Ok(Self {
            fs_name: format!("s3://{}/{}", store.bucket, source.prefix),
            store,
            prefix: source.prefix,
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
            threads,
            event_loops,
            metadata_ttl: if args.immutable { FOR_EVER } else { args.metadata_ttl },
            negative_metadata_ttl: if args.immutable { FOR_EVER } else { args.negative_metadata_ttl },
            metadata_limit_bytes,
            inode_limit: memory::inodes(),
            cache,
            kept,
            passthrough: !args.no_passthrough,
            shared_cache,
            writes: writes::writes(&args.writing, memory_limit_bytes)?,
            keeps_attributes: args.writing.keep_attributes,
            foreground: args.foreground,
            control_socket: args.control_socket.as_deref().map(std::path::absolute).transpose()?,
            metrics_listen: args.metrics_listen,
            otlp_endpoint: args.otlp_endpoint.clone(),
            log_directory: args.log_directory.as_deref().map(std::path::absolute).transpose()?,
            debug: args.debug,
            warnings: warning.into_iter().collect(),
        })
    }
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

    use super::{direct_io, random_read};
    use crate::flags::size::Size;

    #[test]
    fn auto_is_no_pattern_of_direct_io() {
        let set = direct_io(&["auto".to_owned(), "*.tar".to_owned()]).expect("patterns");
        assert_eq!(["x.tar", "auto"].map(|path| set.is_match(path)), [true, false]);
    }

    #[test]
    fn random_reads_have_units_of_a_power_of_two() {
        assert_eq!(random_read(Size(128 << 10)).ok(), Some(128 << 10));
        for bytes in [0, 32 << 10, 192 << 10, 16 << 20] {
            assert!(random_read(Size(bytes)).is_err(), "{bytes}");
        }
    }
}
