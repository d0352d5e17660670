//! What each system call returns that objects have no answer for, or that is at a limit.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, MIB, World, run_command, wait_for};

pub(crate) const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

/// What the calls of `calls.py` return in a folder.
pub(crate) fn calls(dir: &Path) -> BTreeMap<String, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/calls.py");
    let said = run_command(Command::new("/usr/bin/python3").arg(script).arg(dir));
    let said = said.lines().map(|line| line.split_once(' ').expect("a name and what it returns"));
    said.map(|(name, said)| (name.to_owned(), said.to_owned())).collect()
}

fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// The table in `docs/SEMANTICS.md`.
const RETURNS: [(&str, &str); 62] = [
    ("chmod", "ok"),
    ("fchmod", "ok"),
    ("chown", "ok"),
    ("utimens", "ok"),
    ("chmod-folder", "ok"),
    ("mode", "0o100644"),
    ("fsync", "ok"),
    ("fsync-folder", "ok"),
    ("syncfs", "ok"),
    ("link", "EPERM"),
    ("symlink", "EPERM"),
    ("fifo", "EPERM"),
    ("device", "EPERM"),
    ("socket", "EPERM"),
    ("mknod-file", "EPERM"),
    ("tmpfile", "ENOTSUP"),
    ("reflink", "ENOTSUP"),
    ("setxattr", "ENOTSUP"),
    ("getxattr", "ENOTSUP"),
    ("removexattr", "ENOTSUP"),
    ("listxattr", "ENOTSUP"),
    ("rename-exchange", "EINVAL"),
    ("rename-whiteout", "EINVAL"),
    ("rename-noreplace", "EEXIST"),
    ("rename-itself", "ok"),
    ("rename-to-folder", "EISDIR"),
    ("rename-folder-to-file", "ENOTDIR"),
    ("rename-folder-to-full", "ENOTEMPTY"),
    ("rename-missing", "ENOENT"),
    ("fallocate", "100"),
    ("fallocate-less", "100"),
    ("fallocate-keep-size", "100"),
    ("fallocate-punch-hole", "ENOTSUP"),
    ("fallocate-zero-range", "ENOTSUP"),
    ("fallocate-collapse", "ENOTSUP"),
    ("fallocate-insert", "ENOTSUP"),
    ("flock", "ok"),
    ("lockf", "ok"),
    ("statvfs", "room"),
    ("access", "ok"),
    ("access-run", "may not run"),
    ("name-255", "ok"),
    ("name-256", "ENAMETOOLONG"),
    ("stat-256", "ENAMETOOLONG"),
    ("mkdir-256", "ENAMETOOLONG"),
    ("name-no-text", "EILSEQ"),
    ("mkdir-no-text", "EILSEQ"),
    ("key-1024", "ENAMETOOLONG"),
    ("mkdir-dot", "EEXIST"),
    ("mkdir-dots", "EEXIST"),
    ("rmdir-dot", "EINVAL"),
    ("rmdir-dots", "ENOTEMPTY"),
    ("rmdir-full", "ENOTEMPTY"),
    ("rmdir-file", "ENOTDIR"),
    ("rmdir-missing", "ENOENT"),
    ("unlink-folder", "EISDIR"),
    ("mkdir-file", "EEXIST"),
    ("mkdir-folder", "EEXIST"),
    ("mkdir-p", "ok"),
    ("rmdir-p", "ok"),
    ("create-folder", "EISDIR"),
    ("create-in-file", "ENOTDIR"),
];

#[test]
fn each_call_returns_what_the_table_says() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &ALL);
    let said = calls(&world.path(""));
    let rest =
        [("create-in-missing", "ENOENT"), ("create-exclusive", "EEXIST"), ("direct", "ok"), ("sync", "ok")];
    let expected: BTreeMap<_, _> =
        RETURNS.into_iter().chain(rest).map(|(name, said)| (name.to_owned(), said.to_owned())).collect();
    assert_eq!(said, expected);
    wait_for("the log", || world.mount.stderr().contains("hard links can't be made"));
    let stored = |key: &str| world.server.stored(BUCKET, key).map(|object| object.bytes());
    assert_eq!(stored("direct").expect("an object"), [b'p'; 4096]);
    assert_eq!(stored("sync").expect("an object"), b"sync");
    assert_eq!(stored(&"n".repeat(255)).expect("an object"), b"text");
    let metadata = world.server.stored(BUCKET, "file").expect("an object").beside.metadata;
    assert!(metadata.keys().eq(["s3mount-write"]), "{metadata:?}");
}

/// Two programs append lines to one file, each line with an open of its own or all through one.
#[test]
fn lines_of_two_appenders_are_whole() {
    let world = World::new(TestS3::builder().object(BUCKET, "log", "begin\n"), &ALL);
    let script = "import os, sys\n\
                  path, name, each = sys.argv[1], sys.argv[2], sys.argv[3] == 'each'\n\
                  file = open(path, 'ab', buffering=0)\n\
                  for index in range(300):\n\
                  \x20   if each: file.close(); file = open(path, 'ab', buffering=0)\n\
                  \x20   file.write(b'%s %d\\n' % (name.encode(), index))\n\
                  file.close()\n";
    let spawn = |name: &str, how: &str| {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]).arg(world.path("log")).args([name, how]);
        python.spawn().expect("python")
    };
    let mut expected = vec!["begin".to_owned()];
    for how in ["one", "each"] {
        let names = [format!("a-{how}"), format!("b-{how}")];
        let children = names.each_ref().map(|name| spawn(name, how));
        for mut child in children {
            assert!(child.wait().expect("its end").success());
        }
        expected.extend(names.iter().flat_map(|name| (0..300).map(move |index| format!("{name} {index}"))));
    }
    let complete = || {
        let stored = world.server.stored(BUCKET, "log").expect("an object").bytes();
        let mut lines: Vec<_> = String::from_utf8(stored).expect("text").lines().map(str::to_owned).collect();
        lines.sort();
        expected.sort();
        lines == expected
    };
    let mut complete = complete;
    wait_for("all lines", &mut complete);
}

#[test]
fn sizes_and_places_that_are_too_large_change_nothing() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &["--allow=write", "--memory-limit", "256MiB"]);
    let file = File::create(world.path("f")).expect("a file");
    file.write_all_at(b"text", 0).expect("a write");
    // No store has room for these. The kernel refuses the last by itself.
    for offset in [60 << 40, (1 << 62) - 1, i64::MAX as u64 - 1, i64::MAX as u64] {
        let error = errno(file.write_all_at(b"x", offset));
        let expected = if offset == i64::MAX as u64 { libc::EINVAL } else { libc::EFBIG };
        assert_eq!(error, Some(expected), "a byte at {offset}");
    }
    assert_eq!(errno(file.set_len(60 << 40)), Some(libc::EFBIG));
    // What fits is only a number until it is closed.
    file.set_len(200 << 30).expect("a size");
    assert_eq!(file.metadata().expect("attributes").len(), 200 << 30);
    file.set_len(2).expect("a size");
    file.write_all_at(b"xt", 2).expect("a write");
    nix::unistd::close(file).expect("the file is as it was");
    assert_eq!(world.server.stored(BUCKET, "f").expect("an object").bytes(), b"text");
}

#[test]
fn a_map_that_is_written_to_is_stored() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &ALL);
    let script = "import mmap, sys\n\
                  file = open(sys.argv[1], 'w+b'); file.truncate(3 << 20)\n\
                  map = mmap.mmap(file.fileno(), 3 << 20)\n\
                  map[:4] = b'head'; map[2 << 20:(2 << 20) + 4] = b'tail'\n\
                  map.flush(); map.close(); file.close()\n";
    run_command(Command::new("/usr/bin/python3").args(["-c", script]).arg(world.path("map")));
    wait_for("the object", || {
        let stored = world.server.stored(BUCKET, "map").map(|object| object.bytes());
        stored.is_some_and(|bytes| {
            bytes.len() as u64 == 3 * MIB && &bytes[..4] == b"head" && &bytes[2 << 20..][..4] == b"tail"
        })
    });
}

/// Pages of a map go where they are in the file, whatever the file was opened with. And `fcntl` changes what it was
/// opened with.
#[test]
fn bytes_are_appended_only_where_the_file_appends_by_then() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &ALL);
    let script = "import fcntl, mmap, os, sys\n\
                  path = sys.argv[1]\n\
                  fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)\n\
                  os.write(fd, b'a' * 8192)\n\
                  map = mmap.mmap(fd, 8192); map[:4] = b'head'; map.flush(); map.close()\n\
                  flags = fcntl.fcntl(fd, fcntl.F_GETFL)\n\
                  fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_APPEND)\n\
                  os.pwrite(fd, b'tail', 8188)\n\
                  fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)\n\
                  os.lseek(fd, 0, 0); os.write(fd, b'more')\n\
                  os.close(fd)\n";
    run_command(Command::new("/usr/bin/python3").args(["-c", script]).arg(world.path("both")));
    let expected = [b"head".as_slice(), &[b'a'; 8184], b"tail", b"more"].concat();
    wait_for("the object", || {
        world.server.stored(BUCKET, "both").is_some_and(|object| object.bytes() == expected)
    });
}

#[test]
fn a_file_without_a_name_is_read_and_written_until_it_is_closed() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &ALL);
    let path = world.path("gone");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
    file.write_all(b"text").expect("a write");
    fs::remove_file(&path).expect("gone");
    file.write_all(b" and more").expect("a write");
    let mut read = [0; 13];
    file.read_exact_at(&mut read, 0).expect("its bytes");
    assert_eq!(&read, b"text and more");
    file.sync_all().expect("nothing to do");
    nix::unistd::close(file).expect("nothing to do");
    assert!(world.server.keys(BUCKET).is_empty());
}
