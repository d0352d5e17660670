//! Settings from the environment, from a file and from presets, as the command prints them.

use serde_json::Value;

use crate::run::{Output, check_fails, check_usage, run, s3mount};

/// Runs `s3mount config` with `flags` in an environment with `variables`.
fn config(flags: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = s3mount(&[&["config"], flags].concat());
    command.envs(variables.iter().copied());
    run(command)
}

/// The value and the origin of a setting, as JSON has them.
fn value(flags: &[&str], variables: &[(&str, &str)], name: &str) -> (Value, String) {
    let output = config(&[flags, &["--json"]].concat(), variables);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{flags:?}");
    let all: Value = serde_json::from_str(&output.stdout).expect("JSON");
    (all[name]["value"].clone(), all[name]["from"].as_str().expect("an origin").to_owned())
}

/// A file of settings, and its path.
fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    let path = file.path().display().to_string();
    (file, path)
}

#[test]
fn each_setting_says_where_it_is_from() {
    let (_file, path) = file("preset = 'low-memory'\nregion = 'eu-west-1'\ncache = ['/a', '/b']\n");
    let flags = ["--config", &path, "--uid", "7", "-o", "ro"];
    let variables = [("S3MOUNT_MAX_THREADS", "3"), ("AWS_ENDPOINT_URL", "http://h:1")];
    let check = |name: &str, expected: Value, from: &str| {
        assert_eq!(value(&flags, &variables, name), (expected, from.to_owned()), "{name}");
    };
    check("uid", "7".into(), "flag");
    check("read-only", true.into(), "flag");
    check("max-threads", "3".into(), "S3MOUNT_MAX_THREADS");
    check("region", "eu-west-1".into(), &format!("{path}:2"));
    check("cache", ["/a", "/b"].as_slice().into(), &format!("{path}:3"));
    check("memory-limit", "128MiB".into(), "preset low-memory");
    check("prefetch-window", "96MiB".into(), "default, of memory-limit");
    check("endpoint-url", "http://h:1".into(), "AWS_ENDPOINT_URL");
    check("small-file-size", "1MiB".into(), "default");
    check("sse", Value::Null, "default");
    check("debug", false.into(), "default");
}

#[test]
fn the_table_has_a_line_for_each() {
    let output = config(&["--immutable", "--preset", "small-files"], &[]);
    let line = |name: &str| {
        let line = output.stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.expect("a line").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("small-file-size"), "small-file-size 4MiB preset small-files");
    assert_eq!(line("metadata-ttl"), "metadata-ttl indefinite immutable");
    assert_eq!(line("sse"), "sse - default");
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
}

#[test]
fn files_that_cannot_be_read() {
    let check = |text: &str, expected: &str| {
        let (_file, path) = file(text);
        check_usage(&["b", "/mnt", "--config", &path], &format!("error: {path}:{expected}"));
    };
    check("\npart-szie = '1MiB'", "2: unknown setting \"part-szie\"; did you mean part-size?");
    check("uid = 1\nuid = 2", "2: duplicate key");
    check("uid = 'me'", "1: uid \"me\": invalid digit found in string");
    check("debug = 1", "1: debug is a switch: write true or false without quotes, not 1");
    check(
        "[memory]\nlimit = 1",
        "1: [memory] is a table, and settings have none; write the settings without headings",
    );
    check(
        "part-size = '8MB and more'",
        "1: part-size \"8MB and more\": not a size; write a number with a unit, such as 8MiB or 2G",
    );
    check_usage(
        &["b", "/mnt", "--config", "/no/such"],
        "error: cannot read --config /no/such: No such file or directory (os error 2)",
    );
    check_usage(
        &["b", "/mnt", "--config", "/"],
        "error: cannot read --config /: Is a directory (os error 21)",
    );
}

#[test]
fn an_error_of_a_value_is_followed_by_its_origin() {
    let (_file, path) = file("memory-limit = '1MiB'");
    let output = config(&["--config", &path], &[]);
    assert_eq!(
        (output.code, output.stderr),
        (
            Some(1),
            format!(
                "s3mount: --memory-limit 1MiB is too small: s3mount needs at least 64MiB; try --memory-limit 256MiB\n\
                 s3mount: note: --memory-limit comes from {path}:1\n"
            )
        )
    );
    check_fails(
        &["config", "bucket", "/no/such/dir", "--part-size", "3"],
        "--part-size 3B is not a multiple of 1MiB from 1MiB to 64MiB",
    );
}

#[test]
fn flags_of_other_programs_are_answered() {
    check_usage(
        &["b", "/mnt", "--endpoint", "http://h"],
        "error: --endpoint is a flag of goofys; here it is --endpoint-url",
    );
    check_usage(
        &["b", "/mnt", "--implicit-dirs"],
        "error: --implicit-dirs is a flag of gcsfuse; there is no such flag here: folders are always shown, with and \
         without an object of their name",
    );
    check_usage(
        &["b", "/mnt", "-o", "only_dir=x"],
        "error: unknown mount option 'only_dir': --only-dir is a flag of gcsfuse; here it is BUCKET/PREFIX",
    );
    check_usage(
        &["b", "/mnt", "--preset", "trainig"],
        "error: invalid value 'trainig' for '--preset <NAME>'",
    );
}

#[test]
fn a_variable_with_a_wrong_letter_is_warned_of() {
    let output = config(&[], &[("S3MOUNT_MEMORY_LIMTI", "1GiB")]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            Some(0),
            "s3mount: warning: S3MOUNT_MEMORY_LIMTI in the environment is no setting; did you mean \
             S3MOUNT_MEMORY_LIMIT?\n"
        )
    );
}
