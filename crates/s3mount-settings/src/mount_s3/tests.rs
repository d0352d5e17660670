//! What command lines of mount-s3 become.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::{Translated, command, translate};
use crate::flags::mount_s3::{Becomes, FLAGS};
use crate::flags::writing::Allow;
use crate::for_tests::Args;
use crate::layers::parse_above;

fn line(text: &str, environment: &[(&str, &str)]) -> Result<Translated, String> {
    let args = format!("mount-s3 {text}").split(' ').map(OsString::from).collect();
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    translate(args, &environment).map_err(|error| error.render().to_string())
}

/// The flags that a command line becomes, besides those that all of them become.
fn flags(text: &str) -> String {
    let Translated { args, defaults, .. } = line(text, &[]).expect("a command line");
    // What results is a command line of s3mount's.
    parse_above::<Args>(&defaults, args.clone(), &Vec::new(), None).expect("flags of s3mount");
    let usual = ["s3mount", "--nonempty"];
    let words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    let words: Vec<_> = words.filter(|word| !usual.contains(&word.as_str())).collect();
    words.join(" ").replace(" -- b1b /mnt", "").replace("-- b1b /mnt", "")
}

#[test]
fn each_flag_has_its_meaning() {
    let cases = [
        ("", ""),
        ("--prefix a/", "--prefix=a/"),
        ("--memory-target 1024", "--memory-limit=1024MiB"),
        ("--part-size 16777216", "--part-size=16MiB --write-part-size=16MiB"),
        ("--read-part-size 1048576", "--part-size=1MiB"),
        ("--write-part-size 8388608", "--write-part-size=8MiB"),
        ("--max-threads 200", "--max-threads=16"),
        ("--force-path-style --region r", "--region=r --force-path-style"),
        ("-f -d -l /log", "--foreground --log-directory=/log --debug"),
        ("--allow-other --uid 5 --dir-mode 0750", "--uid=5 --dir-mode=0750 --allow-other"),
        ("--user-agent-prefix team", "--user-agent-prefix=team"),
        (
            "--sse aws:kms --sse-kms-key-id arn:aws:kms:r:1:key/2",
            "--sse=aws:kms --sse-kms-key-id=arn:aws:kms:r:1:key/2",
        ),
        ("--upload-checksums off", "--upload-checksums=none"),
        ("--bind lo --bind lo", "--bind=lo --bind=lo"),
        ("--auto-unmount --bucket-type general-purpose", ""),
        ("--bucket-type directory --user-agent-prefix= --infer-content-type", "--content-type=auto"),
        ("--no-sign-request --profile p", "--no-sign-request"),
        ("--negative-metadata-ttl 5", "--negative-metadata-ttl=5"),
        ("--metadata-ttl 0", "--metadata-ttl=minimal --negative-metadata-ttl=minimal"),
        ("--metadata-ttl 7", "--metadata-ttl=7 --negative-metadata-ttl=7"),
    ];
    for (theirs, ours) in cases {
        assert_eq!(flags(format!("b1b /mnt {theirs}").trim()), ours, "{theirs}");
    }
}

#[test]
fn rights_caches_and_types_are_those_of_mount_s3() {
    let has = |text: &str, flag: &str| {
        let Translated { mut args, defaults, .. } =
            line(format!("b1b /mnt {text}").trim(), &[]).expect("a command line");
        args.extend(defaults.iter().map(|(name, value)| format!("--{name}={}", value.display()).into()));
        assert!(args.iter().any(|arg| arg == flag), "{text}: {args:?}");
    };
    has("", "--allow=write");
    has("", "--metadata-ttl=minimal");
    has("", "--negative-metadata-ttl=minimal");
    has("", "--content-type=binary/octet-stream");
    has("--allow-delete", "--allow=write,delete");
    has("--allow-overwrite --allow-delete", "--allow=write,delete,overwrite");
    has("--incremental-upload", "--allow=write,overwrite");
    has("--bucket-type directory", "--allow=write");
    has("--read-only --allow-delete", "--read-only");
    has("--cache /c", "--cache=/c/s3mount-cache");
    has("--cache /c", "--metadata-ttl=60");
    has("--cache /c", "--negative-metadata-ttl=60");
    has("--cache /c --max-cache-size 10", "--max-cache-size=10MiB");
    has("--cache-xz x--use1-az1--x-s3", "--shared-cache=s3://x--use1-az1--x-s3");
    let lacks = |text: &str, flag: &str| {
        let args = line(format!("b1b /mnt {text}").trim(), &[]).expect("a command line").args;
        assert!(!args.iter().any(|arg| arg.to_string_lossy().starts_with(flag)), "{text}: {args:?}");
    };
    lacks("--read-only --allow-delete", "--allow");
    lacks("--cache /c --max-cache-size 0", "--cache");
    let of_device = line("b1b /dev/fd/3", &[]).expect("a command line").args;
    assert!(of_device.iter().any(|arg| arg == "--allow-root"), "{of_device:?}");
}

#[test]
fn what_has_no_effect_is_told_once_by_its_name() {
    let told = |text: &str| line(format!("b1b /mnt {text}").trim(), &[]).expect("a command line").told;
    assert_eq!(told("--region r --allow-delete --max-threads 16"), Vec::<String>::new());
    let told = told(
        "--maximum-throughput-gbps 100 --log-metrics --read-part-size 1000000 --incremental-upload --auto-unmount --bucket-type directory --max-threads 64",
    );
    let begins = ["--maximum-throughput-gbps has no", "--read-part-size 1000000 becomes --part-size 1MiB"];
    let begins = begins.into_iter().chain(["--log-metrics has no", "--incremental-upload also lets"]);
    let begins =
        begins.chain(["--auto-unmount has no", "--bucket-type directory has no", "--max-threads 64 becomes"]);
    assert_eq!(told.len(), 7, "{told:?}");
    for begin in begins {
        assert_eq!(told.iter().filter(|line| line.starts_with(begin)).count(), 1, "{begin}: {told:?}");
    }
}

#[test]
fn some_flags_are_variables_here() {
    let variables = |text: &str, environment: &[(&str, &str)]| {
        let line = line(&format!("b1b /mnt{text}"), environment).expect("a command line");
        let shown = |(name, value): &(&str, OsString)| format!("{name}={}", value.display());
        line.variables.iter().map(shown).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(variables("", &[]), "");
    assert_eq!(variables(" --no-log", &[]), "S3MOUNT_LOG=off");
    assert_eq!(variables(" --no-log", &[("S3MOUNT_LOG", "info")]), "");
    assert_eq!(
        variables("", &[("MOUNTPOINT_LOG", "warn,mountpoint_s3_fs=trace")]),
        "S3MOUNT_LOG=warn,s3mount_fs=trace"
    );
    assert!(variables(" --debug-crt", &[]).ends_with("awscrt=debug"));
    assert_eq!(
        variables(" --otlp-endpoint http://h:4318 --otlp-export-interval 5", &[]),
        "OTEL_METRIC_EXPORT_INTERVAL=5000"
    );
}

#[test]
fn the_mount_is_announced_as_mount_s3_does() {
    let mounted = |text: &str| line(text, &[]).expect("a command line").mounted;
    assert_eq!(mounted("b1b /mnt"), "bucket b1b is mounted at /mnt");
    assert_eq!(mounted("s3://b1b/p/ mnt"), "prefix p/ of bucket b1b is mounted at mnt");
    assert_eq!(mounted("b1b /mnt --prefix p/"), "prefix p/ of bucket b1b is mounted at /mnt");
    let fstab = line("s3://b1b/p/ /mnt -o ro,_netdev,region=r", &[]).expect("a command line");
    assert_eq!(fstab.fstab.as_deref(), Some("s3://b1b/p/"));
    assert!(fstab.args.iter().any(|arg| arg == "--read-only"), "{fstab:?}");
}

#[test]
fn what_mount_s3_refuses_is_refused() {
    let cases = [
        "b1b",
        "b1b /mnt --banana",
        "b1b /mnt --allow-root --allow-other",
        "b1b /mnt --part-size 8388608 --read-part-size 8388608",
        "b1b /mnt --max-cache-size 5",
        "b1b /mnt --no-log --debug",
        "b1b /mnt --sse rot13",
        "b1b /mnt --memory-target much",
        "b1b /mnt --memory-target 511",
        "b1b /mnt --part-size 0",
        "b1b /mnt --sse AES256 --sse-kms-key-id arn:aws:kms:r:1:key/2",
        "b1b /mnt --sse aws:kms --sse-kms-key-id alias/x",
        "s3://b1b/p/ /mnt --prefix q/",
        "b1b /mnt --cache-xz s3://x--use1-az1--x-s3/prefix/",
        "b1b /mnt -o --read-only",
    ];
    for text in cases {
        assert!(line(text, &[]).is_err(), "{text}");
    }
}

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
    let ours = Args::command();
    // What becomes the flag of the same name has one.
    for flag in FLAGS.iter().filter(|flag| matches!(flag.becomes, Becomes::Same)) {
        let name = flag.row.name;
        assert!(ours.get_arguments().any(|arg| arg.get_long() == Some(name)), "{name}");
    }
}

#[test]
fn what_the_environment_says_goes_before_the_defaults() {
    let read = |text: &str, variables: &[(&str, &str)]| {
        let line = line(&format!("b1b /mnt{text}"), variables).expect("a command line");
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        parse_above::<Args>(&line.defaults, line.args, &variables, None).expect("settings")
    };
    let parsed = read("", &[("S3MOUNT_READ_ONLY", "true"), ("S3MOUNT_METADATA_TTL", "600")]);
    assert!(parsed.args.mount.read_only && !parsed.args.mount.writing.allows_writes());
    assert_eq!(parsed.warnings, Vec::<String>::new());
    assert_eq!(parsed.origins.of("metadata-ttl").to_string(), "S3MOUNT_METADATA_TTL");
    assert_eq!(parsed.origins.of("negative-metadata-ttl").to_string(), "the defaults of mount-s3");
    assert!(read("", &[("S3MOUNT_ALLOW", "all")]).args.mount.writing.allows(Allow::Delete));
    let fsync = |variables: &[(&str, &str)]| read("", variables).args.mount.writing.fsync_publish;
    assert!(fsync(&[]) && !fsync(&[("S3MOUNT_FSYNC_PUBLISH", "false")]));
    let parsed = read(" --allow-delete", &[("S3MOUNT_ALLOW", "write")]);
    assert!(parsed.args.mount.writing.allows(Allow::Delete));
}

#[test]
fn variables_without_an_effect_are_told() {
    let variables = [("AWS_MAX_ATTEMPTS", "3"), ("UNSTABLE_MOUNTPOINT_PID_FILE", "/p"), ("AWS_REGION", "r")];
    let told = line("b1b /mnt", &variables).expect("a command line").told;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("UNSTABLE_MOUNTPOINT_PID_FILE has no effect"), "{told:?}");
}
