//! The flags of mount-s3, and what each becomes here. The messages and the page of foreign flags take their rows from
//! this table, so what they say is what is done.

use crate::flags::row::{Foreign, foreign, same};

/// A flag of mount-s3.
#[derive(Clone, Copy)]
pub(crate) struct Flag {
    /// Its name, and what there is here in its place.
    pub(crate) row: Foreign,
    pub(crate) short: Option<char>,
    pub(crate) takes: Takes,
    pub(crate) becomes: Becomes,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// A text, named so in the help.
    Text(&'static str),
    /// Several texts, each with the flag before it.
    Texts(&'static str),
    /// A number, in this unit, and the least.
    Number(&'static str, u64),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// What a flag becomes here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes {
    /// The flag of the same name, with the same value.
    Same,
    /// This flag, whose value is the number in MiB.
    Mib(&'static str),
    /// These flags, whose values are the number of bytes, in whole MiB and within these limits (in MiB).
    Parts(&'static [Part]),
    /// The flag of the same name, whose value is at most this number.
    AtMost(u64),
    /// What it becomes depends on other flags, too.
    Together,
    /// Nothing, and the user is told so, in the words of the row.
    Told,
}

/// A flag for the size of parts, and the least and the most that it takes, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) flag: &'static str,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

const READS: Part = Part { flag: "part-size", least: 1, most: 64 };
const WRITES: Part = Part { flag: "write-part-size", least: 5, most: 64 };

/// The most threads that can be asked for without a thought of the memory: as many as a mount has by itself on a large
/// machine.
const MOST_THREADS: u64 = 16;

const fn flag(row: Foreign, takes: Takes, becomes: Becomes) -> Flag {
    Flag { row, short: None, takes, becomes }
}

const fn short(letter: char, flag: Flag) -> Flag {
    Flag { short: Some(letter), ..flag }
}

use Becomes::{AtMost, Mib, Parts, Same, Together, Told};
use Takes::{Nothing, Number, OneOf, Text, Texts};

/// All flags, in the order of mount-s3's source (`mountpoint-s3/src/cli.rs`, version 1.24).
pub(crate) const FLAGS: &[Flag] = &[
    flag(foreign("prefix", "BUCKET/PREFIX", "--prefix works, too"), Text("PREFIX"), Same),
    flag(same("region"), Text("REGION"), Same),
    flag(same("endpoint-url"), Text("URL"), Same),
    flag(foreign("force-path-style", "--addressing path", ""), Nothing, Same),
    flag(same("transfer-acceleration"), Nothing, Same),
    flag(same("dual-stack"), Nothing, Same),
    flag(same("requester-pays"), Nothing, Same),
    flag(
        foreign("bucket-type", "", "the type follows from the bucket's name"),
        OneOf(&["general-purpose", "directory"]),
        Together,
    ),
    flag(same("no-sign-request"), Nothing, Same),
    flag(same("profile"), Text("PROFILE"), Together),
    flag(same("read-only"), Nothing, Together),
    flag(same("storage-class"), Text("CLASS"), Same),
    flag(foreign("allow-delete", "--allow delete", "also lets programs write new files"), Nothing, Together),
    flag(
        foreign("allow-overwrite", "--allow overwrite", "without --allow nothing can be written"),
        Nothing,
        Together,
    ),
    flag(
        foreign("incremental-upload", "--allow overwrite", "existing files can be appended to, and changed"),
        Nothing,
        Together,
    ),
    flag(
        foreign(
            "auto-unmount",
            "",
            "the mount ends with the daemon, but that of a killed daemon stays until the next mount",
        ),
        Nothing,
        Told,
    ),
    flag(same("allow-root"), Nothing, Together),
    flag(same("allow-other"), Nothing, Together),
    flag(
        foreign(
            "maximum-throughput-gbps",
            "--max-connections",
            "windows grow as far as the store's latency requires",
        ),
        Number("Gbps", 1),
        Told,
    ),
    flag(same("max-threads"), Number("N", 1), AtMost(MOST_THREADS)),
    flag(
        foreign("memory-target", "--memory-limit", "a hard limit, with a unit, such as 2GiB"),
        Number("MiB", 512),
        Mib("memory-limit"),
    ),
    flag(same("part-size"), Number("BYTES", 1), Parts(&[READS, WRITES])),
    flag(foreign("read-part-size", "--part-size", ""), Number("BYTES", 1), Parts(&[READS])),
    flag(same("write-part-size"), Number("BYTES", 1), Parts(&[WRITES])),
    flag(same("ca-bundle"), Text("FILE"), Same),
    flag(same("uid"), Number("UID", 0), Same),
    flag(same("gid"), Number("GID", 0), Same),
    flag(same("dir-mode"), Text("MODE"), Same),
    flag(same("file-mode"), Text("MODE"), Same),
    short('f', flag(same("foreground"), Nothing, Same)),
    flag(same("expected-bucket-owner"), Text("ACCOUNT"), Same),
    short('l', flag(same("log-directory"), Text("DIR"), Same)),
    flag(
        foreign("log-metrics", "", "DIR/.s3mount/stats and DIR/.s3mount/metrics always have them"),
        Nothing,
        Told,
    ),
    flag(foreign("otlp-endpoint", "", "metrics go there each minute, by HTTP"), Text("URL"), Same),
    flag(
        foreign(
            "otlp-export-interval",
            "",
            "OTEL_METRIC_EXPORT_INTERVAL in the environment, in milliseconds",
        ),
        Number("SECONDS", 1),
        Together,
    ),
    short('d', flag(same("debug"), Nothing, Same)),
    flag(foreign("debug-crt", "--debug", "S3MOUNT_LOG=awscrt=trace has more"), Nothing, Together),
    flag(foreign("no-log", "", "S3MOUNT_LOG=off in the environment"), Nothing, Together),
    flag(foreign("cache", "", "the folder is kept, and later mounts use it again"), Text("DIR"), Together),
    flag(foreign("metadata-ttl", "", "the default is 60 s, also without --cache"), Text("TTL"), Together),
    flag(foreign("negative-metadata-ttl", "", "the default is 1 s"), Text("TTL"), Together),
    flag(
        foreign("max-cache-size", "", "sizes have units, such as 10GiB; a number alone is bytes"),
        Number("MiB", 0),
        Together,
    ),
    flag(foreign("cache-block-size", "", "blocks have the size of parts"), Number("KiB", 1), Told),
    flag(foreign("cache-xz", "--shared-cache", "s3://BUCKET"), Text("BUCKET"), Together),
    flag(same("user-agent-prefix"), Text("TEXT"), Together),
    flag(same("sse"), OneOf(&["aws:kms", "aws:kms:dsse", "AES256"]), Same),
    flag(same("sse-kms-key-id"), Text("ARN"), Same),
    flag(
        foreign("upload-checksums", "", "the values are crc64nvme and none"),
        OneOf(&["crc32c", "crc64nvme", "off"]),
        Together,
    ),
    flag(foreign("infer-content-type", "--content-type auto", "the default"), Nothing, Together),
    flag(same("bind"), Texts("INTERFACE"), Same),
];

/// The rows alone.
pub(crate) const ROWS: [Foreign; FLAGS.len()] = {
    let mut rows = [same(""); FLAGS.len()];
    let mut at = 0;
    while at < FLAGS.len() {
        rows[at] = FLAGS[at].row;
        at += 1;
    }
    rows
};
