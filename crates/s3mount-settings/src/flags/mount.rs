//! The flags of a mount.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Id};
use hyper::Uri;
use s3mount_changes::QueueName;

use crate::flags::access::{AccessArgs, READING};
use crate::flags::preset::Preset;
use crate::flags::size::Size;
use crate::flags::ttl::MetadataTtl;
use crate::flags::values::{address, byte_rate, collector, mode};
use crate::flags::writing::WriteArgs;

const SOURCE: &str = "What to mount";
const SETTINGS: &str = "Settings";
const PERMISSIONS: &str = "Who may use it";
const RESOURCES: &str = "Connections and threads";
const METADATA: &str = "Freshness";
const CACHE: &str = "Disk cache";
const SHARED: &str = "Shared cache";
const RUNNING: &str = "Running and logging";

/// The flags of a mount.
#[derive(Clone, Debug, clap::Args)]
pub struct MountArgs {
    /// Bucket, with or without s3://, and the prefix to show.
    ///
    /// s3://data/train/ shows the key train/a/0.tar as a/0.tar. The ARN of an access point, or its alias, can replace
    /// the bucket's name.
    #[arg(value_name = "[s3://]BUCKET[/PREFIX]", required_unless_present = "buckets")]
    pub source: Option<String>,

    /// Empty folder to mount at.
    ///
    /// A mount that a killed daemon left there is unmounted first. /dev/fd/N is an open /dev/fuse that the program
    /// which starts s3mount has mounted, as CSI drivers do; s3mount then needs no privileges.
    #[arg(value_name = "DIR", required_unless_present = "buckets")]
    pub dir: Option<PathBuf>,

    /// Show several buckets, each in a folder of its own: s3mount --buckets train=s3://data/train/,test=s3://other DIR.
    ///
    /// They share the memory, the connections and all other settings, and can be read, not written. Each folder is there,
    /// also if the bucket has no key below its prefix. At AWS, each bucket may be in a region of its own. The flag can be
    /// given several times.
    #[arg(long, value_name = "NAME=BUCKET[/PREFIX],...", value_delimiter = ',', action = ArgAction::Append, help_heading = SOURCE)]
    pub buckets: Vec<String>,

    /// Read settings from this file.
    ///
    /// TOML, with the names of the flags: part-size = "16MiB". A flag overrides its variable of the environment
    /// ($S3MOUNT_PART_SIZE), and that overrides the file. See docs/CONFIGURATION.md.
    #[arg(long, value_name = "FILE", help_heading = SETTINGS)]
    pub(crate) config: Option<PathBuf>,

    /// Begin with settings that suit a kind of job; all others override them.
    ///
    /// `s3mount config --preset NAME` shows them.
    #[arg(long, value_name = "NAME", value_enum, help_heading = SETTINGS)]
    pub(crate) preset: Option<Preset>,

    /// Show only keys below this prefix.
    ///
    /// The same as BUCKET/PREFIX; give one of them. A slash is added to a prefix that does not end in one.
    #[arg(long, value_name = "PREFIX", hide = true)]
    pub prefix: Option<String>,

    /// Make the kernel refuse all writes.
    ///
    /// Without --allow s3mount never writes to the bucket, with or without this flag. With the flag,
    /// hints can't be written to .s3mount/prefetch either.
    #[arg(long, help_heading = SOURCE)]
    pub(crate) read_only: bool,

    /// Make the kernel run no programs from the mount.
    #[arg(long, hide = true)]
    pub(crate) noexec: bool,

    /// Mount over a folder that is not empty, and hide its files.
    #[arg(long, hide = true)]
    pub nonempty: bool,

    // A doc comment here would be part of the help.
    #[expect(missing_docs, reason = "its type says it")]
    #[command(flatten)]
    pub access: AccessArgs,

    #[command(flatten)]
    pub(crate) writing: WriteArgs,

    /// Let all users use the mount [default: only you].
    ///
    /// Needed when the jobs run as another user. If you are not root, /etc/fuse.conf must contain the line
    /// user_allow_other.
    #[arg(long, help_heading = PERMISSIONS)]
    pub allow_other: bool,

    /// Let root use the mount, besides you.
    ///
    /// Needs the same line as --allow-other. Other users can see size, owner and time of names that you or root have
    /// just looked up, because the kernel answers that by itself. They can open nothing.
    #[arg(long, conflicts_with = "allow_other", help_heading = PERMISSIONS)]
    pub allow_root: bool,

    /// Owner of all files [default: you].
    #[arg(long, value_name = "UID", help_heading = PERMISSIONS, hide_short_help = true)]
    pub(crate) uid: Option<u32>,

    /// Group of all files [default: yours].
    #[arg(long, value_name = "GID", help_heading = PERMISSIONS, hide_short_help = true)]
    pub(crate) gid: Option<u32>,

    /// Permission bits of folders, octal.
    ///
    /// Nobody can write, whatever these bits say. 0750 keeps other users out under --allow-other.
    #[arg(long, value_name = "MODE", default_value = "0755", value_parser = mode, help_heading = PERMISSIONS, hide_short_help = true)]
    pub(crate) dir_mode: u16,

    /// Permission bits of files, octal.
    ///
    /// 0755 makes files executable.
    #[arg(long, value_name = "MODE", default_value = "0644", value_parser = mode, help_heading = PERMISSIONS, hide_short_help = true)]
    pub(crate) file_mode: u16,

    /// Memory for object data: in flight, read ahead and cached [default: an eighth of the
    /// machine's or the cgroup's, from 256MiB to 4GiB, but no more than fits the cgroup].
    ///
    /// A hard bound: the whole process takes at most 64MiB more, what --metadata-limit allows for
    /// names, and 1MiB for each write that waits beyond an eighth of it. Raise it for many streams at once, lower it where the loaders
    /// need the memory. At least 64MiB.
    #[arg(long, value_name = "SIZE", help_heading = READING)]
    pub memory_limit: Option<Size>,

    /// Begin with this part of --memory-limit, and let others change how much it is.
    ///
    /// For a program that divides a machine's memory among mounts: a number of bytes that is written to .s3mount/memory
    /// is the limit from then on, from this size up to --memory-limit. What is above goes back to the kernel.
    /// .s3mount/memory shows how much that is, and how much memory the mount uses. Threads, and files that are being
    /// written, have their part of this size. At least 64MiB.
    #[arg(long, value_name = "SIZE", help_heading = READING, hide_short_help = true)]
    pub memory_floor: Option<Size>,

    /// Largest GET [default: 8MiB, less below 128MiB of memory].
    ///
    /// A multiple of 1MiB, up to 64MiB. New and short-windowed streams use smaller ones. Smaller
    /// parts bring more speed for each byte of memory, larger ones fewer requests.
    #[arg(long, value_name = "SIZE", help_heading = READING)]
    pub(crate) part_size: Option<Size>,

    /// Most bytes to read ahead of one stream [default: three quarters of the memory
    /// limit, up to 512MiB].
    ///
    /// Windows grow from --prefetch-initial while their reader has to wait. Raise it where one
    /// stream is to fill a fast or far link: bandwidth x latency x 2 is enough.
    #[arg(long, value_name = "SIZE", help_heading = READING)]
    pub(crate) prefetch_window: Option<Size>,

    /// Bytes to read ahead of a stream that has just begun.
    ///
    /// Lower it for readers that only look at headers, down to 64KiB; raise it for files of a few
    /// MiB that are read whole.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", help_heading = READING, hide_short_help = true)]
    pub(crate) prefetch_initial: Size,

    /// Random reads fetch the requested range, rounded up to units of this size.
    ///
    /// A power of two from 64KiB to 8MiB. Raise it where records are read soon after
    /// their neighbours.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", help_heading = READING, hide_short_help = true)]
    pub(crate) random_read_size: Size,

    /// Files up to this size are fetched whole when they are opened.
    ///
    /// So a small file costs one GET and one round trip. Lower it where only headers are read; not
    /// above --part-size.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", help_heading = READING, hide_short_help = true)]
    pub(crate) small_file_size: Size,

    /// The kernel's own readahead on this mount; only root can set it.
    ///
    /// More than 1MiB only makes random reads of mapped files more expensive.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", hide = true)]
    pub(crate) read_ahead: Size,

    /// A read without an answer fails after this many seconds, retries included.
    ///
    /// Lower it where a job would rather fail and restart than wait out an outage.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), help_heading = READING)]
    pub(crate) read_timeout: u64,

    /// Read files that match without the kernel's page cache; may be repeated.
    ///
    /// '*.safetensors' is a name in any folder, 'models/**' a path. Then large reads take half the processor time, and
    /// evict nothing from the page cache; small ones, of less than 100KiB, become slow, and a second read asks the
    /// store again. A file opened with O_DIRECT needs no flag.
    ///
    /// `auto` chooses files by itself: those of 16MiB and more, in a folder with twice as much as the page cache can
    /// hold, as long as they are read in large pieces and not again soon. Give it to jobs that go through such a data
    /// set file by file.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append, help_heading = READING)]
    pub(crate) direct_io: Vec<String>,

    /// When to compare the bytes with the checksums that S3 keeps of objects.
    ///
    /// `free`: if an answer contains a checksum of its bytes, as for files that are fetched whole (--small-file-size).
    /// It costs 0.1 CPU seconds a GiB for a CRC, which S3 computes by itself, and up to 3 for a SHA-256, if that was
    /// asked for.
    ///
    /// `whole`: also larger files, when all of one has been fetched since it was opened: if its checksum differs from
    /// the store's, the read that completes it fails with EIO. Where S3 keeps CRCs of the parts of a multipart upload
    /// instead, each part is compared when all of it has been fetched, which needs the permission
    /// s3:GetObjectAttributes. It costs one or two requests for a file, and 0.04 CPU seconds a GiB. Use it where there
    /// is no TLS.
    ///
    /// The lengths, ranges and versions of answers are checked in any case.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Verify::Free, help_heading = READING)]
    pub(crate) verify: Verify,

    /// Do not send a second GET for a part that takes much longer than its peers.
    ///
    /// A few of S3's answers come very late; the second GET, at most one for each twenty
    /// GETs, mostly brings the part at once. Give this flag where each request is expensive.
    #[arg(long, help_heading = READING, hide_short_help = true)]
    pub(crate) no_hedging: bool,

    /// Most connections to the store.
    ///
    /// 1 to 1024. They are opened as requests need them. Files are fetched ahead by 64 requests at
    /// once, and by more as long as that makes no request slower. Lower it where the store or a proxy takes few
    /// connections.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = RESOURCES)]
    pub max_connections: u32,

    /// Read no more than this many bytes a second from the store, so that others have room.
    ///
    /// At least 1MiB. A request waits first, and then comes at once. Reads then take as long as over a link of that rate,
    /// and fail after --read-timeout as there. Bytes from a cache on a disk or from --shared-cache do not count.
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = RESOURCES, hide_short_help = true)]
    pub(crate) max_read_rate: Option<Size>,

    /// Write no more than this many bytes a second to the store.
    ///
    /// At least 1MiB. A part goes out at once, and the next one when its time is over; --write-part-size says how long
    /// parts are. `close` waits for the bytes of the file, and for what others write meanwhile. Copies inside the store do
    /// not count.
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = RESOURCES, hide_short_help = true)]
    pub(crate) max_write_rate: Option<Size>,

    /// Send no more than this many requests a second to the store.
    ///
    /// Requests of all kinds count, retries too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = RESOURCES, hide_short_help = true)]
    pub(crate) max_request_rate: Option<u32>,

    /// Threads that answer the kernel, and as many again that run its requests [default: one per
    /// core, 2 to 16].
    ///
    /// Lower it where the loaders need every core. Each one from the fifth on takes 3MiB of
    /// --memory-limit, and 4MiB with --allow. The network has event loops beside them: one for
    /// two cores, up to 32, and not more than half of the threads given here. Each one from the third
    /// on takes 2MiB of --memory-limit, and all together at most a sixteenth.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = RESOURCES, hide_short_help = true)]
    pub(crate) max_threads: Option<u16>,

    /// How long a listed name counts as current: seconds, `minimal`, or `indefinite` for data that never changes.
    ///
    /// A longer time saves requests; a shorter time shows the writes of others sooner. An open file never mixes two
    /// versions, whatever the time is.
    #[arg(long, value_name = "TTL", default_value = "60", help_heading = METADATA)]
    pub(crate) metadata_ttl: MetadataTtl,

    /// How long a missing name counts as missing, in the form of --metadata-ttl.
    ///
    /// The time counts from the listing that did not have the name. A job that waits for a file sees
    /// the file later by up to this time.
    #[arg(long, value_name = "TTL", default_value = "1", help_heading = METADATA, hide_short_help = true)]
    pub(crate) negative_metadata_ttl: MetadataTtl,

    /// Nothing in the bucket changes while it is mounted.
    ///
    /// A listing counts as current for ever. The same as `indefinite` for both times.
    #[arg(long, conflicts_with_all = ["metadata_ttl", "negative_metadata_ttl"], help_heading = METADATA)]
    pub(crate) immutable: bool,

    /// Hear of changes from this queue, into which S3's event notifications go.
    ///
    /// sqs://NAME, sqs://ACCOUNT/NAME, or the URL or the ARN of a queue of SQS. Names, listings and files that others change
    /// are dropped as soon as S3 tells of it, mostly within seconds, so --metadata-ttl may be long. Each mount needs a queue
    /// of its own, and takes the messages out of it. .s3mount/changes passes the changes on to programs. See
    /// docs/CHANGES.md.
    #[arg(long, value_name = "QUEUE", value_parser = QueueName::from_str, conflicts_with = "immutable", help_heading = METADATA, hide_short_help = true)]
    pub events_from: Option<QueueName>,
    /// Take the names from this list, and send no request for them.
    ///
    /// A file, or s3://BUCKET/KEY: the manifest.json of an S3 Inventory (CSV or Parquet); a .csv, .tsv or .parquet with key,
    /// size and ETag; or an index that `s3mount names` has made. The list is the truth for as long as the mount lives:
    /// what is not in it does not exist, and what has changed since can't be read (ESTALE). An index of the list is
    /// built first, and later mounts find it: in the first folder of --cache, else in $XDG_CACHE_HOME/s3mount/names,
    /// /var/cache/s3mount/names (root) or ~/.cache/s3mount/names. See docs/LISTS.md.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["metadata_ttl", "negative_metadata_ttl", "events_from"], help_heading = METADATA)]
    pub names_from: Option<String>,

    /// Memory for names, besides --memory-limit [default: 128MiB, but no more than an eighth of the
    /// machine's or the cgroup's].
    ///
    /// A name takes 70 to 150 bytes. The names that were not used for longest are
    /// dropped, and listed again when they are looked up.
    #[arg(long, value_name = "SIZE", help_heading = METADATA, hide_short_help = true)]
    pub metadata_limit: Option<Size>,

    /// Cache reads in this folder, on a disk of this machine; may be repeated.
    ///
    /// Later reads of the same version come from the disk, also after a restart and by other mounts
    /// that name the folder. With several folders, one on each disk, the files are spread over them
    /// by the size of the disks, whatever the order of the folders. Of several folders, one that can't be used is left
    /// out, and the log says why; a mount whose only folder can't be used is refused. A missing folder is made. Only
    /// you may have access to it. See `s3mount cache`.
    #[arg(long, value_name = "DIR", action = ArgAction::Append, help_heading = CACHE)]
    pub cache: Vec<PathBuf>,

    /// Room for the disk cache, over all of its folders [default: all but 5 % of each disk].
    ///
    /// Cached files stay while they are used: a file that does not fit is not kept, so that each epoch finds as much as
    /// fits.
    #[arg(long, value_name = "SIZE", requires = "cache", help_heading = CACHE)]
    pub max_cache_size: Option<Size>,

    /// Keep only files that match in the disk cache; may be repeated [default: all files].
    ///
    /// Patterns as of --direct-io: '*.tar' is a name in any folder, 'train/**' a path below the mount.
    /// Other files are neither written to the disk nor looked for there.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append, requires = "cache", help_heading = CACHE, hide_short_help = true)]
    pub(crate) cache_include: Vec<String>,

    /// Do not keep files that match in the disk cache; may be repeated.
    ///
    /// It overrides --cache-include. Give it for data that is read once, such as checkpoints, or is larger than the
    /// disk.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append, requires = "cache", help_heading = CACHE, hide_short_help = true)]
    pub(crate) cache_exclude: Vec<String>,

    /// Read cached files through the daemon, and do not let the kernel read them from the disk.
    ///
    /// The daemon compares all bytes that it reads with checksums, the kernel does not. The kernel reads files by
    /// itself if root mounts, from Linux 6.9 on.
    #[arg(long, requires = "cache", help_heading = CACHE, hide_short_help = true)]
    pub(crate) no_passthrough: bool,

    /// Cache reads in this bucket, and look there before the source is asked.
    ///
    /// The mounts of a fleet that name the same bucket fetch each byte of the source about once. Any S3
    /// server near the machines will do, and also a directory bucket. A server that fails or hangs makes
    /// reads slower, and no read fails because of it. See docs/SHARED-CACHE.md.
    ///
    /// Without a query, the bucket is at AWS, its region is found out, and the credentials are those of the
    /// source. A query changes that: s3://BUCKET/PREFIX?endpoint=http://minio:9000&region=R&profile=P, with the values
    /// of --endpoint-url, --region and --profile.
    #[arg(long, value_name = "s3://BUCKET[/PREFIX][?QUERY]", help_heading = SHARED)]
    pub(crate) shared_cache: Option<String>,

    /// Stay in the foreground, and log to the terminal [default: become a daemon].
    ///
    /// For systemd units (Type=notify) and containers. Ctrl-C unmounts.
    #[arg(short, long, help_heading = RUNNING)]
    pub foreground: bool,

    /// Keep the mount when its daemon is killed: another daemon goes on, and readers only wait.
    ///
    /// A small parent process keeps the mount, and starts the program again when it ends by a crash, by SIGKILL, or because
    /// memory was short. Open files, maps, working directories and the page cache stay, and calls under way get their
    /// answers. Files that were being written go on with --write-spool, and fail with EIO without. Takes root. Before Linux
    /// 6.9, the mount goes on after `s3mount upgrade` only. See docs/RUNNING.md.
    #[arg(long, help_heading = RUNNING, hide_short_help = true)]
    pub keep_alive: bool,

    /// Listen on a Unix socket at this path for hints and queries.
    ///
    /// It serves programs that cannot write to .s3mount/prefetch in the mount. Hints follow a first
    /// line `prefetch`. The line `stats` returns the metrics as JSON, the line `metrics` the same as Prometheus text.
    /// `s3mount stats`, `top` and `trace` take PATH in place of the mount's folder. Only you and root may connect; with
    /// --allow-other, all users.
    #[arg(long, value_name = "PATH", help_heading = RUNNING, hide_short_help = true)]
    pub(crate) control_socket: Option<PathBuf>,

    /// Serve the metrics over HTTP at this address and port, for Prometheus.
    ///
    /// http://ADDRESS:PORT/metrics shows what .s3mount/metrics shows. Each mount needs its own port. Every program that
    /// can reach the port can read the metrics, so name 127.0.0.1, or an address that only your monitoring reaches.
    /// examples/grafana/s3mount.json is a dashboard.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, help_heading = RUNNING)]
    pub(crate) metrics_listen: Option<SocketAddr>,

    /// Send the metrics to an OpenTelemetry collector, by OTLP over HTTP.
    ///
    /// They go to URL/v1/metrics each minute, and when the mount ends, with the names of .s3mount/metrics.
    /// OpenTelemetry's variables hold: OTEL_METRIC_EXPORT_INTERVAL (milliseconds), OTEL_EXPORTER_OTLP_HEADERS
    /// (a token), OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES. A collector that does not answer costs a line in
    /// the log.
    #[arg(long, value_name = "URL", value_parser = collector, help_heading = RUNNING, hide_short_help = true)]
    pub(crate) otlp_endpoint: Option<Uri>,

    /// Write logs to files in this folder [default: syslog, or a folder of your own where there is none].
    ///
    /// Each run writes its own file, of at most 16 MiB; a full file is kept as FILE.1, in place of the former one. A
    /// missing folder is made. Without a syslog, as in most containers, logs go to $XDG_STATE_HOME/s3mount/log, else to
    /// /var/lib/s3mount/log for root and ~/.local/state/s3mount/log for others (at most 64 files), and the mount prints
    /// to which. With --foreground they go to the terminal. A repeated line is written once in a while, with its count.
    #[arg(short, long, value_name = "DIR", help_heading = RUNNING)]
    pub log_directory: Option<PathBuf>,

    /// Form of the log's lines.
    ///
    /// json: an object for each line, with timestamp, level, target, message, and what the line is about.
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = RUNNING, hide_short_help = true)]
    pub(crate) log_format: LogFormat,

    /// Write who opens and changes what to this file, as lines of JSON; - is standard output, with --foreground.
    ///
    /// A line for each open, create, mkdir, symlink, rename, unlink, rmdir, change of attributes, and close of a file that
    /// was open to write: time, call, access, key, result, uid, gid, pid and program. A full file (64 MiB) is kept as
    /// FILE.1, in place of the former one; one that is moved away is followed by a new one. No program waits for this log:
    /// where its disk is too slow, calls are left out, and a line says how many.
    #[arg(long, value_name = "FILE", help_heading = RUNNING, hide_short_help = true)]
    pub(crate) audit_log: Option<PathBuf>,

    /// Log in detail.
    ///
    /// $S3MOUNT_LOG takes filters such as s3mount_prefetch=trace, and overrides this flag.
    #[arg(short, long, help_heading = RUNNING)]
    pub(crate) debug: bool,

    /// Options as mount(8) and fstab have them: the flags' names, separated by commas.
    ///
    /// A line of /etc/fstab: s3://BUCKET /mnt/data s3mount _netdev,nofail,allow_other,part_size=4MiB 0 0
    ///
    /// Besides: `noexec` makes the kernel run no programs from the mount, `nonempty` mounts over a folder that is not
    /// empty and hides its files, and `read_ahead=SIZE` (1MiB; root only) is the kernel's own readahead.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append, help_heading = RUNNING)]
    pub(crate) options: Vec<String>,
}

impl MountArgs {
    /// The bucket and the folder to mount at, if they are given. With `--buckets`, the only place is the folder.
    pub fn places(&self) -> (Option<&str>, Option<&Path>) {
        match (&self.source, &self.dir) {
            (Some(dir), None) if !self.buckets.is_empty() => (None, Some(Path::new(dir))),
            (source, dir) => (source.as_deref(), dir.as_deref()),
        }
    }

    /// Whether it is said what to mount.
    pub fn has_bucket(&self) -> bool {
        self.places().0.is_some() || !self.buckets.is_empty()
    }
}

/// The form of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object of JSON for each line.
    Json,
}

/// When checksums are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// If the store sends one that covers the fetched bytes.
    Free,
    /// Also when all of an object has been fetched in parts.
    Whole,
    /// Never.
    Never,
}

/// The argument of a mount as other commands take it: it can be left out, and its help is that of the mount. The
/// flags of a mount have headings, and those of the commands have none.
pub fn optional(arg: Arg) -> Arg {
    let is_hidden = arg.is_hide_set() || arg.get_help_heading().is_some();
    arg.required(false).required_unless_present(Resettable::<Id>::Reset).hide(is_hidden)
}
