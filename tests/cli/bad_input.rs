//! Command lines that cannot work. Each message says what is wrong, with which value, and what to do.

use std::os::unix::fs::symlink;

use nix::net::if_::if_nameindex;
use tempfile::TempDir;

use crate::run::{check_fails, check_usage, run, s3mount};

/// An empty folder and its real path.
fn folder() -> (TempDir, String) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().canonicalize().expect("its path").display().to_string();
    (folder, path)
}

/// Whether the flags of a mount at an empty folder fail by `message`.
fn check_flags(flags: &[&str], message: &str) {
    let (_folder, dir) = folder();
    check_fails(&[&["bucket", &dir], flags].concat(), message);
}

#[test]
fn values_that_cannot_be_read() {
    let check = |flags: &[&str], line: &str| check_usage(&[&["bucket", "/mnt"], flags].concat(), line);
    check(
        &["--part-size", "banana"],
        "error: invalid value 'banana' for '--part-size <SIZE>': not a size; write a number with a unit, such \
         as 8MiB or 2G",
    );
    check(
        &["--metadata-ttl", "soon"],
        "error: invalid value 'soon' for '--metadata-ttl <TTL>': neither seconds, such as 60, nor minimal, nor \
         indefinite",
    );
    check(
        &["--file-mode", "999"],
        "error: invalid value '999' for '--file-mode <MODE>': not permission bits; write three octal digits, \
         such as 755",
    );
    check(
        &["--max-connections", "0"],
        "error: invalid value '0' for '--max-connections <N>': 0 is not in 1..=1024",
    );
    check(
        &["--otlp-endpoint", "localhost:4318"],
        "error: invalid value 'localhost:4318' for '--otlp-endpoint <URL>': not a URL with http or https; write it \
         like http://localhost:4318",
    );
    check(
        &["--metrics-listen", "9105"],
        "error: invalid value '9105' for '--metrics-listen <ADDRESS:PORT>': not an address and a port; write it \
         like 127.0.0.1:9105 or [::1]:9105",
    );
    check(&["--banana"], "error: unexpected argument '--banana' found");
    check(
        &["--profile", "p", "--no-sign-request"],
        "error: the argument '--profile <PROFILE>' cannot be used with '--no-sign-request'",
    );
}

#[test]
fn missing_arguments() {
    check_usage(&[], "error: the following required arguments were not provided:");
    check_usage(&["bucket"], "error: the following required arguments were not provided:");
    check_usage(&["umount"], "error: the following required arguments were not provided:");
}

#[test]
fn several_buckets() {
    let check = |args: &[&str], message: &str| {
        let (_folder, dir) = folder();
        check_fails(&[args, &[&dir]].concat(), message);
    };
    check(
        &["--buckets", "a"],
        "--buckets: \"a\" names no folder and bucket; write NAME=[s3://]BUCKET[/PREFIX], such as \
         train=s3://data/train/",
    );
    check(
        &["--buckets", "a=data", "--buckets", "a=other"],
        "--buckets: the name \"a\" is given twice; each folder has its own",
    );
    check(
        &["--buckets", "x/y=data"],
        "--buckets: \"x/y\" can't be the name of a folder of the mount; choose another name",
    );
    check(
        &["--buckets", "a=data--use1-az4--x-s3"],
        "--buckets: \"data--use1-az4--x-s3\" is a directory bucket (S3 Express One Zone), which lists its keys in \
         no order; mount it by itself",
    );
    check(
        &["--buckets", "a=data", "bucket"],
        "both the bucket \"bucket\" and --buckets were given; give one of them",
    );
    check(
        &["--buckets", "a=data", "--allow=write"],
        "--allow does not go with --buckets: it is for a mount of one bucket; leave one of them out",
    );
    check(
        &["--buckets", "a=data", "--names-from", "list.csv"],
        "--names-from does not go with --buckets: it is for a mount of one bucket; leave one of them out",
    );
    check_fails(&["--buckets", "a=data"], "no folder was given; see s3mount --help");
}

#[test]
fn mount_options() {
    let check = |options: &str, line: &str| check_usage(&["bucket", "/mnt", "-o", options], line);
    check("ro,_netdev,banana", "error: unknown mount option 'banana'");
    check("alow_other", "error: unknown mount option 'alow_other'; did you mean allow-other?");
    check(
        "ro,remount",
        "error: the mount option 'remount' is refused: a mount keeps its options until it is unmounted; unmount it, \
         and mount it anew with others",
    );
    check("part_size", "error: the mount option 'part_size' needs a value: part_size=...");
    check(
        "part_size=banana",
        "error: invalid value 'banana' for '--part-size <SIZE>': not a size; write a number with a unit, such \
         as 8MiB or 2G",
    );
    check_flags(
        &["-o", "rw,defaults,noauto,user,nofail,memory_limit=1MiB"],
        "--memory-limit 1MiB is too small: s3mount needs at least 64MiB; try --memory-limit 256MiB",
    );
}

#[test]
fn sizes_out_of_bounds() {
    check_flags(
        &["--memory-limit", "1MiB"],
        "--memory-limit 1MiB is too small: s3mount needs at least 64MiB; try --memory-limit 256MiB",
    );
    check_flags(
        &["--part-size", "1.5MiB"],
        "--part-size 1536KiB is not a multiple of 1MiB from 1MiB to 64MiB",
    );
    check_flags(
        &["--random-read-size", "100KB"],
        "--random-read-size 100000B is not a power of two from 64KiB to 8MiB; try 128KiB",
    );
    check_flags(
        &["--prefetch-window", "1k"],
        "--prefetch-window 1KiB is too small: it needs at least 1MiB; leave it out for the default",
    );
    check_flags(
        &["--prefetch-initial", "1k"],
        "--prefetch-initial 1KiB is too small: it needs at least 64KiB; leave it out for the default",
    );
}

#[test]
fn buckets_and_prefixes() {
    let (_folder, dir) = folder();
    let check = |source: &str, message: &str| check_fails(&[source, &dir], message);
    check("s3://", "the name of the bucket is missing; write BUCKET, BUCKET/PREFIX or s3://BUCKET/PREFIX");
    check(
        "my bucket",
        "\"my bucket\" is not a bucket's name; write BUCKET, BUCKET/PREFIX or s3://BUCKET/PREFIX",
    );
    check(
        "My_Bucket/p",
        "\"My_Bucket\" is not the name of a bucket at AWS: those have 3 to 63 lower-case letters, digits, dots \
         and hyphens; check it, or name another store with --endpoint-url",
    );
    check_fails(
        &["s3://bucket/p", &dir, "--prefix", "q"],
        "two prefixes were given, \"p\" with the bucket and --prefix \"q\"; give one",
    );
}

#[test]
fn endpoints_and_certificates() {
    check_flags(
        &["--expected-bucket-owner", "my-account"],
        "--expected-bucket-owner \"my-account\" is not an AWS account; write its 12 digits, such as 111122223333",
    );
    check_flags(
        &["--allow", "write", "--dir-rename-limit", "5"],
        "--dir-rename-limit needs --allow rename: without it no folder with objects is renamed",
    );
    check_flags(
        &["--allow=write", "--content-type", "text"],
        "--content-type \"text\" is not a media type; write one such as application/octet-stream, or auto",
    );
    let interfaces = if_nameindex().expect("the interfaces");
    let names: Vec<_> = interfaces.iter().map(|interface| interface.name().to_string_lossy()).collect();
    check_usage(
        &["bucket", "/mnt", "--bind", "lo", "--bind", "none7"],
        &format!(
            "error: invalid value 'none7' for '--bind <INTERFACE>': this machine has no network interface of this \
             name; it has {}",
            names.join(", ")
        ),
    );
    check_usage(
        &["bucket", "/mnt", "--allow=write", "--append-delay", "soon"],
        "error: invalid value 'soon' for '--append-delay <TIME>': not a time; write a number with a unit, such as \
         7d, 12h, 30m or 45s",
    );
    check_usage(
        &["bucket", "/mnt", "--allow=write", "--upload-checksums", "md5"],
        "error: invalid value 'md5' for '--upload-checksums <KIND>'",
    );
    check_flags(
        &["--endpoint-url", "localhost:9000"],
        "--endpoint-url \"localhost:9000\" is not a URL; write it with http:// or https://, such as \
         http://127.0.0.1:9000",
    );
    let (_folder, dir) = folder();
    let mut command = s3mount(&["bucket", &dir]);
    command.env("AWS_ENDPOINT_URL", "localhost");
    let said = run(command).stderr;
    assert!(said.starts_with("s3mount: AWS_ENDPOINT_URL \"localhost\" is not a URL"), "{said}");
}

#[test]
fn folders_that_cannot_be_mounted_at() {
    let (folder, dir) = folder();
    let below = |name: &str| format!("{dir}/{name}");
    let missing = below("missing");
    check_fails(
        &["bucket", &missing],
        &format!("the folder {missing} does not exist; make it with: mkdir -p {missing}"),
    );
    let file = below("file");
    std::fs::write(&file, "").expect("a file");
    check_fails(&["bucket", &file], &format!("{file} is not a folder; give an empty folder to mount at"));
    let full = format!(
        "the folder {dir} is not empty; give an empty one, or mount with -o nonempty to hide what is in it"
    );
    check_fails(&["bucket", &dir], &full);
    check_fails(&["mount", "bucket", &dir], &full);
    // A link to the folder, and `.` in the folder, lead to the same message.
    let link = folder.path().join("link");
    symlink(&dir, &link).expect("a link");
    check_fails(&["bucket", &link.display().to_string()], &full);
    let mut command = s3mount(&["bucket", "."]);
    command.current_dir(&dir);
    assert_eq!(run(command).stderr, format!("s3mount: {full}\n"));
}

#[test]
fn a_folder_where_something_is_mounted() {
    check_fails(
        &["bucket", "/proc"],
        "proc is mounted at /proc already (proc); unmount it first, with: umount /proc",
    );
}

#[test]
fn certificates_that_cannot_be_read() {
    let remedy = "give a readable PEM file with --ca-bundle or $AWS_CA_BUNDLE";
    check_flags(
        &["--ca-bundle", "/no/such.pem"],
        &format!("cannot read the CA bundle /no/such.pem; {remedy}: No such file or directory (os error 2)"),
    );
    check_flags(&["--ca-bundle", "/usr"], &format!("the CA bundle /usr is a folder; {remedy}"));
}

#[test]
fn shared_caches_that_cannot_be_used() {
    check_flags(
        &["--shared-cache", "near"],
        "--shared-cache \"near\" is not a bucket; write s3://BUCKET or s3://BUCKET/PREFIX",
    );
    check_flags(
        &["--shared-cache", "s3://near?endpoint=localhost:9000"],
        "--shared-cache: endpoint \"localhost:9000\" is not a URL; write it with http:// or https://, such as \
         http://127.0.0.1:9000",
    );
    check_flags(
        &["--shared-cache", "s3://near?bucket=far"],
        "--shared-cache \"s3://near?bucket=far\": \"bucket\" is none of endpoint, region and profile; write, \
         for instance, s3://BUCKET?endpoint=http://HOST:9000",
    );
}

#[test]
fn what_cannot_be_warmed() {
    check_fails(
        &["warm", "/no/such"],
        "cannot look at /no/such; give a folder on a mount, or a list of paths: No such file or directory (os \
         error 2)",
    );
    let list = tempfile::NamedTempFile::new().expect("a list");
    std::fs::write(list.path(), "/no/such\n").expect("a list");
    let output = run(s3mount(&["warm", &list.path().display().to_string()]));
    assert_eq!(output.code, Some(1));
    assert_eq!(
        output.stderr,
        "s3mount: /no/such: No such file or directory (os error 2)\n\
         s3mount: 1 of these paths could not be read; the daemon's log may say why\n"
    );
}

#[test]
fn copies_that_cannot_be_meant() {
    let check = |args: &[&str], message: &str| check_fails(&[&["cp"], args].concat(), message);
    for local in ["k.bin", "/data/k.bin"] {
        check(
            &["s3://a/k", local],
            &format!(
                "{local:?} does not begin with s3://; cp copies from bucket to bucket, and files are copied by the \
                 system's own cp on a mount"
            ),
        );
    }
    check(&["s3:///k", "s3://b"], "\"s3:///k\" names no bucket; write s3://BUCKET/KEY");
    check(
        &["s3://a/d/", "s3://b"],
        "the source s3://a/d/ is a folder; add --recursive to copy all that is below it",
    );
    check(
        &["s3://a", "s3://b"],
        "the source s3://a/ is a folder; add --recursive to copy all that is below it",
    );
    for target in ["s3://a/d/k", "s3://a/d/"] {
        check(
            &["s3://a/d/k", target],
            "the source s3://a/d/k and the target are the same object; name another target",
        );
    }
    for target in ["s3://a/d", "s3://a/d/e/"] {
        check(
            &["s3://a/d", target, "-r"],
            &format!(
                "the target {target} lies inside of the source s3://a/d; name a target that does not, or the copies \
                 would be copied again"
            ),
        );
    }
    check(
        &["s3://a/k", "s3://b", "--part-size", "1MiB"],
        "--part-size 1MiB is not between 5MiB and 5GiB; leave it out, and it is chosen by the object's size",
    );
    check_usage(
        &["cp", "s3://a/k", "s3://b", "--concurrency", "0"],
        "error: invalid value '0' for '--concurrency <N>': 0 is not in 1..=1024",
    );
    check_usage(&["cp", "s3://a/k"], "error: the following required arguments were not provided:");
}
