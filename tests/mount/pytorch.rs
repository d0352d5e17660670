//! The examples of docs/PYTORCH.md run on a real mount: see `pytorch.py`.

use std::fs;
use std::path::Path;
use std::process::Command;

use s3mount_testkit::TestS3;
use tempfile::TempDir;

use crate::world::{BUCKET, MIB, World, run_command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs the script with the packages of the tests.
fn script(home: &Path, args: &[&Path]) -> String {
    let mut python = Command::new(format!("{ROOT}/target/venv/bin/python"));
    python.arg(format!("{ROOT}/tests/mount/pytorch.py")).args(args);
    // Python must write no file beside the helper, nor the libraries to the user's home or the network.
    python.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", format!("{ROOT}/python"));
    python.env("HOME", home).env("HF_HOME", home).env("HF_HUB_OFFLINE", "1").env("TMPDIR", home);
    run_command(&mut python)
}

#[test]
fn each_example_of_the_page_for_pytorch_works() {
    let folder = TempDir::new().expect("a folder");
    let [bucket, home] = ["bucket", "home"].map(|name| folder.path().join(name));
    for folder in [&bucket, &home] {
        fs::create_dir(folder).expect("a folder");
    }
    script(&home, &[Path::new("make"), &bucket]);
    let server = TestS3::builder().folder(BUCKET, &bucket).expect("a bucket");
    let world = World::new(server, &["--memory-limit", "256MiB"]);
    let page = format!("{ROOT}/docs/PYTORCH.md");
    let said = script(&home, &[Path::new("run"), Path::new(&page), world.mount.path(), &home]);
    assert!(said.lines().filter(|line| line.ends_with(": ok")).count() >= 9, "{said}");
    assert_eq!(world.gauge("hints_refused"), 0);
    world.check_memory(256 * MIB);
}
