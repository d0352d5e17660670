//! Two published test suites of file systems run on a mount. They are tools that have to be installed, so these tests
//! run on demand: `cargo install pjdfstest fsx`, then `cargo test --test mount posix -- --ignored`.

use std::process::Command;

use s3mount_testkit::TestS3;
use tempfile::TempDir;

use crate::world::{MIB, World, run_command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A program that cargo has installed.
fn tool(name: &str) -> Command {
    let home = std::env::var("HOME").expect("a home");
    let root = std::env::var("CARGO_INSTALL_ROOT").unwrap_or_else(|_| format!("{home}/.cargo"));
    Command::new(format!("{root}/bin/{name}"))
}

/// Random operations on one file, with and without a spool. `S3MOUNT_FSX` sets how many.
#[test]
#[ignore = "needs the program fsx"]
fn posix_fsx() {
    let operations = std::env::var("S3MOUNT_FSX").unwrap_or_else(|_| "20000".to_owned());
    let spool = TempDir::new().expect("a folder");
    let spool = ["--write-spool", spool.path().to_str().expect("a plain path")];
    for flags in [&[][..], &spool] {
        let all = [&["--allow=overwrite", "--allow=delete", "--memory-limit", "64MiB"], flags].concat();
        let world = World::new(TestS3::builder(), &all);
        for seed in 1..=4 {
            let mut fsx = tool("fsx");
            fsx.args([
                "-q",
                "-f",
                &format!("{ROOT}/tests/fsx.toml"),
                "-N",
                &operations,
                "-S",
                &seed.to_string(),
            ]);
            fsx.arg("-P").arg(world.folder()).arg(world.path(&format!("file-{seed}")));
            run_command(&mut fsx);
        }
        world.check_memory(64 * MIB);
    }
}

/// What POSIX says of names, attributes and permissions. `tests/pjdfstest.toml` lists what objects can't have, with
/// the reason. This needs root, and the users nobody and tests.
#[test]
#[ignore = "needs the program pjdfstest, root and two users"]
fn posix_pjdfstest() {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().to_str().expect("a plain path");
    let flags = [
        "--allow=overwrite",
        "--allow=delete",
        "--allow=rename",
        "--allow-other",
        "--keep-attributes",
        "--write-spool",
        spool,
    ];
    let world = World::new(TestS3::builder(), &flags);
    let mut pjdfstest = tool("pjdfstest");
    pjdfstest.arg("-c").arg(format!("{ROOT}/tests/pjdfstest.toml")).arg("-p").arg(world.path(""));
    let said = run_command(&mut pjdfstest);
    assert!(said.contains("0 failed"), "{said}");
}
