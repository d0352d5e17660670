//! The flags of other programs that mount buckets, and their equivalents here. Messages about unknown flags, and the
//! page of the configuration, come from this table.
//!
//! The names are those of the public sources: mount-s3 (`mountpoint-s3/src/cli.rs`), goofys (`internal/flags.go`) and
//! gcsfuse (`cfg/params.yaml`, without the flags that it hides).

/// A program, and its flags.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) flags: &'static [Foreign],
}

/// A flag of another program.
#[derive(Clone, Copy)]
pub(crate) struct Foreign {
    /// The flag's name, without hyphens before it.
    pub(crate) name: &'static str,
    /// The flags that do the same here; empty if none does.
    pub(crate) ours: &'static str,
    /// How the two differ, or what to use instead.
    pub(crate) note: &'static str,
}

const fn foreign(name: &'static str, ours: &'static str, note: &'static str) -> Foreign {
    Foreign { name, ours, note }
}

/// A flag whose name and meaning are the same here.
const fn same(name: &'static str) -> Foreign {
    foreign(name, "", "")
}

const UNITS: &str = "sizes have units, such as 10GiB; a number alone is bytes";
const UNIT_SIZE: &str = "with a unit, such as 10GiB";
const SECONDS: &str = "in seconds, minimal or indefinite";
const BOUNDED: &str = "reads are retried until --read-timeout";
const FOLDERS: &str = "folders are always shown, with and without an object of their name";
const AS_NEEDED: &str = "reads become parallel GETs by themselves, inside --memory-limit";

/// All programs of the table.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "mount-s3",
        flags: &[
            foreign("prefix", "BUCKET/PREFIX", "--prefix works, too"),
            same("region"),
            same("endpoint-url"),
            foreign("force-path-style", "--addressing path", ""),
            same("transfer-acceleration"),
            same("dual-stack"),
            same("requester-pays"),
            foreign("bucket-type", "", "the type follows from the bucket's name"),
            same("no-sign-request"),
            same("profile"),
            same("read-only"),
            same("storage-class"),
            foreign("allow-delete", "--allow delete", "also lets programs write new files"),
            foreign("allow-overwrite", "--allow overwrite", "without --allow nothing can be written"),
            foreign("incremental-upload", "--allow overwrite", "existing files can then be appended to"),
            foreign(
                "auto-unmount",
                "",
                "the mount ends with the daemon; the next mount unmounts that of a killed daemon",
            ),
            same("allow-root"),
            same("allow-other"),
            foreign(
                "maximum-throughput-gbps",
                "--max-connections",
                "windows grow as far as the store's latency requires",
            ),
            same("max-threads"),
            foreign("memory-target", "--memory-limit", "a hard limit, with a unit, such as 2GiB"),
            same("part-size"),
            foreign("read-part-size", "--part-size", ""),
            same("write-part-size"),
            same("ca-bundle"),
            same("uid"),
            same("gid"),
            same("dir-mode"),
            same("file-mode"),
            same("foreground"),
            same("expected-bucket-owner"),
            same("log-directory"),
            foreign("log-metrics", "", "DIR/.s3mount/stats and DIR/.s3mount/metrics always have them"),
            foreign("otlp-endpoint", "", "metrics go there each minute, by HTTP"),
            foreign(
                "otlp-export-interval",
                "",
                "OTEL_METRIC_EXPORT_INTERVAL in the environment, in milliseconds",
            ),
            same("debug"),
            foreign("debug-crt", "--debug", "S3MOUNT_LOG=awscrt=trace has more"),
            foreign("no-log", "", "S3MOUNT_LOG=off in the environment"),
            foreign("cache", "", "the folder is kept, and later mounts use it again"),
            foreign("metadata-ttl", "", "the default is 60 s, also without --cache"),
            foreign("negative-metadata-ttl", "", "the default is 1 s"),
            foreign("max-cache-size", "", UNITS),
            foreign("cache-block-size", "", "blocks have the size of parts"),
            foreign("cache-xz", "--shared-cache", "s3://BUCKET"),
            foreign("user-agent-prefix", "", "the User-Agent is s3mount/VERSION"),
            same("sse"),
            same("sse-kms-key-id"),
            foreign("upload-checksums", "", "the values are crc64nvme and none"),
            foreign("infer-content-type", "--content-type auto", "the default"),
            same("bind"),
        ],
    },
    Tool {
        name: "goofys",
        flags: &[
            foreign("cache", "", "catfs is not needed; give --cache DIR and --max-cache-size SIZE"),
            same("dir-mode"),
            same("file-mode"),
            same("uid"),
            same("gid"),
            foreign("endpoint", "--endpoint-url", ""),
            same("region"),
            same("requester-pays"),
            same("storage-class"),
            same("profile"),
            foreign("use-content-type", "--content-type auto", "the default"),
            foreign("sse", "", "takes the method here: AES256"),
            foreign("sse-kms", "--sse aws:kms --sse-kms-key-id", ""),
            foreign("sse-c", "", "keys of the caller can't be used; the store's can, by --sse"),
            foreign("acl", "", "the bucket's owner owns new objects (S3's default since 2023)"),
            foreign("subdomain", "--addressing virtual", "at AWS the bucket is in the host name anyway"),
            foreign("cheap", "--metadata-ttl", "longer times list less; --no-hedging sends no second GETs"),
            foreign("no-implicit-dir", "", FOLDERS),
            foreign("stat-cache-ttl", "--metadata-ttl", SECONDS),
            foreign("type-cache-ttl", "--metadata-ttl", SECONDS),
            foreign("http-timeout", "--read-timeout", "in seconds"),
            foreign("debug_fuse", "--debug", "S3MOUNT_LOG=s3mount_fuse=trace has more"),
            foreign("debug_s3", "--debug", "S3MOUNT_LOG=s3mount_crt=trace has more"),
        ],
    },
    Tool {
        name: "gcsfuse",
        flags: &[
            foreign("anonymous-access", "--no-sign-request", ""),
            foreign("app-name", "", "the User-Agent is s3mount/VERSION"),
            foreign("billing-project", "--requester-pays", "the account of the credentials pays"),
            foreign("cache-dir", "--cache", ""),
            foreign("client-protocol", "", "S3 is spoken over HTTP/1.1"),
            foreign(
                "cloud-metrics-export-interval-secs",
                "",
                "a collector reads DIR/.s3mount/metrics (Prometheus)",
            ),
            foreign("config-file", "--config", "TOML, with the names of the flags"),
            foreign("custom-endpoint", "--endpoint-url", ""),
            foreign("debug_fuse", "--debug", "S3MOUNT_LOG=s3mount_fuse=trace has more"),
            foreign("debug_gcs", "--debug", "S3MOUNT_LOG=s3mount_crt=trace has more"),
            same("dir-mode"),
            foreign("enable-buffered-read", "", AS_NEEDED),
            foreign("enable-nonexistent-type-cache", "--negative-metadata-ttl", SECONDS),
            foreign("enable-streaming-writes", "", "files written from front to back are always streamed"),
            foreign("experimental-o-direct", "--direct-io '*'", ""),
            foreign("file-cache-cache-file-for-range-read", "", "what is read is kept, block by block"),
            foreign("file-cache-download-chunk-size-mb", "--part-size", UNIT_SIZE),
            foreign("file-cache-enable-parallel-downloads", "", AS_NEEDED),
            foreign(
                "file-cache-exclude-regex",
                "--cache-exclude",
                "a glob, such as '*.tar', and not an expression",
            ),
            foreign(
                "file-cache-include-regex",
                "--cache-include",
                "a glob, such as '*.tar', and not an expression",
            ),
            foreign("file-cache-max-parallel-downloads", "--max-connections", ""),
            foreign("file-cache-max-size-mb", "--max-cache-size", UNIT_SIZE),
            foreign("file-cache-parallel-downloads-per-file", "", AS_NEEDED),
            same("file-mode"),
            same("foreground"),
            same("gid"),
            foreign("http-client-timeout", "--read-timeout", "in seconds"),
            foreign("ignore-interrupts", "", "Ctrl-C always ends a read that waits"),
            foreign("implicit-dirs", "", FOLDERS),
            foreign("kernel-list-cache-ttl-secs", "--metadata-ttl", ""),
            foreign("key-file", "--profile", "credentials come from where the AWS CLI takes them"),
            foreign(
                "limit-bytes-per-sec",
                "",
                "nothing limits the rate; --max-connections bounds the requests at once",
            ),
            foreign("limit-ops-per-sec", "", "the store sets the pace, by 503 SlowDown"),
            foreign("log-file", "--log-directory", "a folder; each run writes a file of its own"),
            foreign("log-format", "", "logs are text"),
            foreign(
                "log-rotate-backup-file-count",
                "",
                "each run writes a file of its own into --log-directory",
            ),
            foreign("log-rotate-compress", "", "each run writes a file of its own into --log-directory"),
            foreign(
                "log-rotate-max-file-size-mb",
                "",
                "each run writes a file of its own into --log-directory",
            ),
            foreign("log-severity", "--debug", "S3MOUNT_LOG=warn, error or trace for other levels"),
            foreign("max-conns-per-host", "--max-connections", ""),
            foreign("max-idle-conns-per-host", "--max-connections", ""),
            foreign("max-read-ahead-kb", "-o read_ahead=SIZE", UNIT_SIZE),
            foreign("max-retry-attempts", "--read-timeout", BOUNDED),
            foreign("max-retry-sleep", "--read-timeout", BOUNDED),
            foreign("metadata-cache-negative-ttl-secs", "--negative-metadata-ttl", ""),
            foreign("metadata-cache-ttl-secs", "--metadata-ttl", "indefinite is -1 there"),
            foreign("o", "", "the same: -o takes the names of the flags"),
            foreign("only-dir", "BUCKET/PREFIX", ""),
            foreign(
                "profile",
                "",
                "names a profile of ~/.aws here; jobs have --preset, such as --preset training",
            ),
            foreign("prometheus-port", "", "a collector reads DIR/.s3mount/metrics"),
            foreign("read-global-max-blocks", "--memory-limit", UNIT_SIZE),
            foreign("rename-dir-limit", "--allow rename --dir-rename-limit", ""),
            foreign("retry-multiplier", "--read-timeout", BOUNDED),
            foreign("sequential-read-size-mb", "--prefetch-window", UNIT_SIZE),
            foreign("stat-cache-capacity", "--metadata-limit", UNIT_SIZE),
            foreign("stat-cache-max-size-mb", "--metadata-limit", UNIT_SIZE),
            foreign("stat-cache-ttl", "--metadata-ttl", SECONDS),
            foreign("temp-dir", "--write-spool", ""),
            foreign("token-url", "--profile", "credentials come from where the AWS CLI takes them"),
            foreign("type-cache-max-size-mb", "--metadata-limit", UNIT_SIZE),
            foreign("type-cache-ttl", "--metadata-ttl", SECONDS),
            same("uid"),
            foreign(
                "write-global-max-blocks",
                "--memory-limit",
                "files that are written take up to half of it",
            ),
        ],
    },
];

impl Foreign {
    /// What there is here instead of the flag, as the end of a sentence.
    pub(crate) fn instead(&self) -> String {
        match (self.ours, self.note) {
            ("", note) => format!("there is no such flag here: {note}"),
            (ours, "") => format!("here it is {ours}"),
            (ours, note) => format!("here it is {ours} ({note})"),
        }
    }
}

/// Says what a flag of another program is here. `name` has no hyphens before it. To be asked for names only that are
/// no flags here.
pub(crate) fn explain(name: &str) -> Option<String> {
    let named = |tool: &Tool| tool.flags.iter().find(|flag| flag.name == name).copied();
    let found: Vec<_> = TOOLS.iter().filter_map(|tool| Some((tool.name, named(tool)?))).collect();
    let (_, flag) = found.iter().find(|(_, flag)| !(flag.ours.is_empty() && flag.note.is_empty()))?;
    let tools: Vec<_> = found.iter().map(|(tool, _)| *tool).collect();
    Some(format!("--{name} is a flag of {}; {}", tools.join(" and "), flag.instead()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{TOOLS, explain};
    use crate::for_tests::Args;

    #[test]
    fn what_the_table_names_is_there() {
        let command = Args::command();
        let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
        for tool in TOOLS {
            for flag in tool.flags {
                let named = flag.ours.split(' ').filter_map(|word| word.strip_prefix("--"));
                let missing: Vec<_> = named.filter(|name| !has(name)).collect();
                assert!(missing.is_empty(), "{} --{}: {missing:?}", tool.name, flag.name);
                let says_something = !flag.ours.is_empty() || !flag.note.is_empty();
                assert!(says_something || has(flag.name), "{} --{} is not the same", tool.name, flag.name);
            }
        }
    }

    #[test]
    fn a_message_names_ours() {
        assert_eq!(
            explain("memory-target").as_deref(),
            Some(
                "--memory-target is a flag of mount-s3; here it is --memory-limit (a hard limit, with a unit, such as \
                 2GiB)"
            )
        );
        let said = explain("stat-cache-ttl").expect("a row");
        assert!(
            said.starts_with("--stat-cache-ttl is a flag of goofys and gcsfuse; here it is --metadata-ttl"),
            "{said}"
        );
        assert!(
            explain("implicit-dirs").is_some_and(|said| said.contains("there is no such flag here: folders"))
        );
        assert_eq!(explain("banana"), None);
    }
}
