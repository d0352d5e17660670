//! The flags of other programs that mount buckets, and their equivalents here. Messages about unknown flags, and the
//! page of the configuration, come from this table.
//!
//! The names are those of the public sources: mount-s3 (see [`mount_s3`](super::mount_s3)), goofys (`internal/flags.go`) and
//! gcsfuse (`cfg/params.yaml`, without the flags that it hides).

use super::mount_s3::ROWS;
use super::row::{Foreign, foreign, same};

/// A program, and its flags.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// What the page says before the flags.
    pub(crate) about: &'static str,
    pub(crate) flags: &'static [Foreign],
}

const UNIT_SIZE: &str = "with a unit, such as 10GiB";
const SECONDS: &str = "in seconds, minimal or indefinite";
const BOUNDED: &str = "reads are retried until --read-timeout";
const FOLDERS: &str = "folders are always shown, with and without an object of their name";
const AS_NEEDED: &str = "reads become parallel GETs by themselves, inside --memory-limit";

/// What the page says of the program under the name of mount-s3.
const AS_MOUNT_S3: &str = "\
Called as `mount-s3`, s3mount takes the command line of mount-s3 as it is:

```sh not-run: it needs root, and a bucket at AWS
ln -s /usr/bin/s3mount /usr/local/bin/mount-s3
mount-s3 my-bucket /mnt/data --cache /nvme --max-cache-size 100000
```

All flags of version 1.24 are read, with its units and its defaults: new files may be written, names are believed for a moment \
unless there is a cache, `--max-cache-size` and `--memory-target` are MiB and part sizes bytes, and the line about the mount \
is its own. So are its form for /etc/fstab (by a second link, `mount.mount-s3`), `/dev/fd/N`, and `MOUNTPOINT_LOG`. The exit \
code is 1 for a failure and 2 for a command line that makes no sense; mount-s3 finds some of these later, and ends with 1. \
What has no effect, or another one, is told once, by its name. What the command line does not say, the settings of s3mount's \
own environment and file may; below them are the defaults of mount-s3. Messages name the flags of s3mount: under this name, \
give those that the command line refuses as `S3MOUNT_...` (`S3MOUNT_KEEP_ATTRIBUTES=true` for `--keep-attributes`) or in \
the file of `S3MOUNT_CONFIG`.

These differ:

- **Rights**: a file that this mount has written may be renamed, and removed while it is written, and opened again to be \
changed while a program has it open, or has closed it a moment ago; `--allow-delete` lets programs rename files and folders by \
copies (`mv`), and remove folders with a marker object; on a directory bucket folders can be renamed, too; \
`--incremental-upload` also lets programs change existing files. An existing file can be opened to read and write only with \
`--allow-overwrite`. A rename that is not allowed is EPERM.
- **Writing**: files can be written in any order, read while they are written, allocated, and changed in place with \
`--allow-overwrite`. What is written is seen by others after `fsync` and `close`, also with `--incremental-upload`. `chown` and \
`touch` of a file that is there return 0 and change nothing; so does `chmod`, but for the right to run the file, which this \
mount shows. `mknod` makes files. Uploads have a CRC-64/NVME. \
`--storage-class` and `--sse aws:kms` are refused for a directory bucket.
- **Reading**: `O_DIRECT` does not look for a newer version of a file.
- **Cache**: it is the folder `s3mount-cache` in that of `--cache`, and is kept when the mount ends.
- **Memory and threads**: `--memory-target` is a hard limit, and without it a mount takes an eighth of the memory; a size of \
parts is rounded to whole MiB, up to 64; `--max-threads` is at most 16.
- **Names**: a prefix need not end with `/`. Access points have ARNs; those of several regions, Object Lambda and Outposts do \
not.
- **The rest**: a line of /etc/fstab can't have `x-systemd.automount`; the mount of a killed daemon stays until the next one, \
also with `--auto-unmount`; log files have names of s3mount, and `-f` logs to standard error; /proc/mounts names the bucket; \
SIGUSR2 does not change the log; `--version` is s3mount's.

As `s3mount`, the flags of mount-s3 are these:";

/// All programs of the table.
pub(crate) const TOOLS: &[Tool] = &[
    Tool { name: "mount-s3", about: AS_MOUNT_S3, flags: &ROWS },
    Tool {
        name: "goofys",
        about: "",
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
        about: "",
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
            foreign("limit-bytes-per-sec", "--max-read-rate", UNIT_SIZE),
            foreign("limit-ops-per-sec", "--max-request-rate", ""),
            foreign("log-file", "--log-directory", "a folder; each run writes a file of its own"),
            same("log-format"),
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
