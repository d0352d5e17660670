//! Each command of the pages for users works. A block of commands is run as it stands, on a machine where
//! `my-bucket` is in the store; a block that can't be run says why in its first line:
//!
//! - ` ```sh` runs it, with nothing mounted;
//! - ` ```sh mounted` runs it with `s3://my-bucket/train/` at `/mnt/data`;
//! - ` ```sh not-run: REASON` does not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{TestS3, run_with_timeout};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(100);

/// The machine on which a block runs, as root. `$1` is a folder, `$2` the program, `$3` the page's line of
/// /etc/fstab, `$4` the block, and `$5` says whether the bucket is mounted.
const MACHINE: &str = r#"
set -eu
cd "$1"
mkdir -p bin home/.aws
printf '[default]\naws_access_key_id = test\naws_secret_access_key = secret\n[train]\naws_access_key_id = test\naws_secret_access_key = secret\n' > home/.aws/credentials
ln -sf "$2" bin/s3mount
ln -sf "$2" bin/mount.s3mount
printf '%s\n' "$3" > fstab
mount --bind fstab /etc/fstab
sed "s|^root:.*|root:x:0:0:root:$1/home:/bin/sh|" /etc/passwd > passwd
mount --bind passwd /etc/passwd
mount --bind bin /usr/sbin
mount -t tmpfs tmpfs /mnt
mkdir /mnt/data /mnt/nvme
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log
[ "$5" = alone ] || s3mount s3://my-bucket/train/ /mnt/data
exec sh -euc "$4"
"#;

/// What a user's job may be: it reads all files.
const TRAIN: &str = "\
import os, sys
read = sum(len(open(os.path.join(folder, name), 'rb').read())
           for folder, _, names in os.walk(sys.argv[2]) if '.s3mount' not in folder for name in names)
assert read > 0, sys.argv
";

/// The blocks of commands of a page: the words behind `sh`, and the commands.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(how) = line.strip_prefix("```sh") {
            let commands: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((how.trim().to_owned(), commands.join("\n")));
        }
    }
    blocks
}

fn pages() -> Vec<String> {
    let folder = fs::read_dir("docs").expect("the pages");
    let mut pages: Vec<_> = folder.map(|entry| entry.expect("a page").path().display().to_string()).collect();
    pages.retain(|page| page.ends_with(".md"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    pages.sort();
    pages
}

fn server() -> TestS3 {
    let server = TestS3::builder().bucket("my-models").bucket("my-archive");
    let server =
        server.object("my-bucket", "train/images/a.jpg", "a").object("my-bucket", "train/shard-0.tar", "t");
    server.object("my-bucket", "run-7/model.safetensors", "weights").start().expect("a server")
}

/// Runs a block of a page, which may show files, and returns why it failed.
fn run(page: &str, commands: &str, is_mounted: bool) -> Result<(), String> {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    fs::write(folder.path().join("train.py"), TRAIN).expect("a file");
    fs::write(folder.path().join("order-of-the-epoch.txt"), "images/a.jpg\n").expect("a file");
    let settings = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(folder.path().join("train.toml"), settings.unwrap_or_default()).expect("a file");
    let fstab = page.lines().find(|line| line.contains(" s3mount  _netdev")).unwrap_or_default();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", MACHINE, "sh"]);
    command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_s3mount")).args([fstab, commands]);
    command.arg(if is_mounted { "mounted" } else { "alone" }).env_clear();
    let path = folder.path().join("bin");
    command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    command.env("AWS_ENDPOINT_URL", server.endpoint()).env("HOME", folder.path().join("home"));
    let output = run_with_timeout(&mut command, LIMIT).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{commands}\n{}: {said}", output.status))
}

#[test]
fn each_command_of_the_pages_works() {
    let mut counted = (0, 0);
    for name in pages() {
        let page = fs::read_to_string(Path::new(&name)).expect("a page");
        for (how, commands) in blocks(&page) {
            let is_mounted = match how.as_str() {
                "" => false,
                "mounted" => true,
                _ => {
                    let reason = how.strip_prefix("not-run: ").unwrap_or_default();
                    assert!(reason.len() > 10, "{name} does not say why this is not run: {commands}");
                    counted.1 += 1;
                    continue;
                }
            };
            run(&page, &commands, is_mounted).unwrap_or_else(|why| panic!("{name}: {why}"));
            counted.0 += 1;
        }
    }
    assert!(counted.0 >= 8 && counted.0 > counted.1 / 2, "blocks that run, and that do not: {counted:?}");
}
