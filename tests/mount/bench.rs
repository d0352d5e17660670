//! `s3mount bench` and `s3mount tune`. The tests do not judge what they measure. They check that both count
//! right, and leave nothing behind.

use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{TestS3, run_with_timeout};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, MIB};

const KEY: &str = "models/weights.bin";

fn server() -> TestS3 {
    TestS3::builder().synthetic(BUCKET, KEY, 64 * MIB).start().expect("a server")
}

/// Runs a subcommand, and returns what it printed, and whether it succeeded.
fn run(server: &TestS3, args: &[&str], temporary: &TempDir) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.args(args).args(["--endpoint-url", &server.endpoint(), "--no-sign-request"]);
    // The subcommand mounts in folders of its own below TMPDIR.
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("TMPDIR", temporary.path());
    let output = run_with_timeout(&mut command, Duration::from_secs(120)).expect("a program that ends");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?} is left");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

#[test]
fn bench_counts_what_it_fetches() {
    let (server, temporary, results) = (server(), TempDir::new().expect("one"), TempDir::new().expect("two"));
    let object = format!("s3://{BUCKET}/{KEY}");
    let folder = results.path().display().to_string();
    let args = ["bench", &object, "--part-sizes", "512KiB,4MiB,64MiB", "--connections", "2,8"];
    let limited = ["--memory-limit", "256MiB", "--output", &folder];
    let (is_good, said) = run(&server, &[&args[..], &limited].concat(), &temporary);
    assert!(is_good && said.contains("best through a mount: "), "{said}");

    let json = std::fs::read(results.path().join("s3mount-bench.json")).expect("the results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let part = row["part_bytes"].as_u64().expect("a size");
        let in_flight = part * row["connections"].as_u64().expect("a number");
        let client = &row["client"];
        assert_eq!(client.is_null(), in_flight > 256 * MIB, "{row}");
        assert_eq!(row["mount"].is_null(), in_flight > 256 * MIB || part < MIB, "{row}");
        if !client.is_null() {
            assert_eq!(client["requests"].as_u64(), Some(64 * MIB / part));
            assert_eq!(client["bytes"].as_u64(), Some(64 * MIB));
            let parts = client["parts"].as_array().expect("a timeline");
            let second = |part: &Value, name: &str| part[name].as_f64().expect("seconds");
            let is_in_order = |part: &Value| {
                second(part, "start") <= second(part, "first_byte")
                    && second(part, "first_byte") <= second(part, "end")
            };
            assert!(!parts.is_empty() && parts.iter().all(is_in_order));
        }
        if !row["mount"].is_null() {
            assert_eq!(row["mount"]["bytes"].as_u64(), Some(64 * MIB));
            assert!(row["mount"]["requests"].as_u64().expect("GETs") >= 64 * MIB / part, "{row}");
        }
    }
    let page = std::fs::read_to_string(results.path().join("s3mount-bench.html")).expect("the page");
    assert_eq!(page.matches("<svg").count(), 3, "two plots and a timeline");
}

#[test]
fn bench_and_tune_ask_for_nothing_outside_of_a_policy_s_prefix() {
    let server = TestS3::builder().synthetic(BUCKET, KEY, 64 * MIB).object(BUCKET, "other", "text");
    let server = server.allow_only("models/").start().expect("a server");
    let (temporary, results) = (TempDir::new().expect("one"), TempDir::new().expect("two"));
    let (object, folder) = (format!("s3://{BUCKET}/{KEY}"), results.path().display().to_string());
    let args = ["bench", &object, "--part-sizes", "8MiB", "--connections", "4", "--output", &folder];
    let (is_good, said) = run(&server, &args, &temporary);
    assert!(is_good && said.contains("best through a mount: "), "{said}");
    let args = ["tune", "data/models/", "--seconds", "1", "--memory-limit", "256MiB"];
    let (is_good, said) = run(&server, &args, &temporary);
    assert!(is_good && said.contains("1 objects: "), "{said}");
    let (is_good, said) = run(&server, &["bench", "data/other"], &temporary);
    assert!(!is_good && said.contains("refuses access"), "{said}");
}

#[test]
fn bench_says_why_it_cannot() {
    let (server, temporary) = (server(), TempDir::new().expect("a folder"));
    let check = |args: &[&str], message: &str| {
        let (is_good, said) = run(&server, args, &temporary);
        assert!(!is_good && said.starts_with(message), "{said}");
    };
    check(&["bench", BUCKET], "s3mount: \"data\" does not name an object; write s3://BUCKET/KEY");
    check(
        &["bench", "data/no/such"],
        "s3mount: there is no key \"no/such\" in bucket \"data\"; check its name",
    );
    check(&["bench", "data/f", "--output", "/no/such"], "s3mount: the folder /no/such does not exist; ");
    check(
        &["bench", "data/f", "--part-sizes", "1k"],
        "s3mount: --part-sizes 1KiB is not from 64KiB to 64MiB",
    );
    check(
        &["tune", "data/none/"],
        "s3mount: there is nothing to measure below \"none/\" in bucket \"data\"; ",
    );
}

#[test]
fn tune_names_flags_or_says_that_none_are_needed() {
    let (server, temporary) = (server(), TempDir::new().expect("a folder"));
    let (is_good, said) =
        run(&server, &["tune", "data/models", "--seconds", "1", "--memory-limit", "256MiB"], &temporary);
    assert!(is_good && said.contains("1 objects: half of them up to 64 MiB"), "{said}");
    assert!(said.contains("\nUse --part-size ") || said.contains("no flags are needed"), "{said}");
    server.put(BUCKET, "small/a", "text");
    let (is_good, said) = run(&server, &["tune", "data/small"], &temporary);
    assert!(is_good && said.contains("All are small") && said.contains("--preset small-files"), "{said}");
}
