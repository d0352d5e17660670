//! System calls that would write fail with EROFS.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, World};

#[test]
fn writing_fails_with_erofs() {
    check_erofs(&[]);
    check_erofs(&["--read-only"]);
}

fn check_erofs(flags: &[&str]) {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), flags);
    let (file, new, dir) = (world.path("d/f"), world.path("d/new"), world.path("d"));
    let open = |path: &Path, how: &mut fs::OpenOptions| how.open(path).map(drop);
    let attempts: [(&str, io::Result<()>); 12] = [
        ("create", File::create(&new).map(drop)),
        ("open for writing", open(&file, File::options().write(true))),
        ("append", open(&file, File::options().append(true))),
        ("truncate", open(&file, File::options().write(true).truncate(true))),
        ("unlink", fs::remove_file(&file)),
        ("mkdir", fs::create_dir(&new)),
        ("rmdir", fs::remove_dir(&dir)),
        ("rename", fs::rename(&file, &new)),
        ("link", fs::hard_link(&file, &new)),
        ("symlink", symlink(&file, &new)),
        ("chmod", fs::set_permissions(&file, Permissions::from_mode(0o777))),
        ("chown", chown(&file, Some(1), Some(1))),
    ];
    for (what, result) in attempts {
        let error = result.expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{what}: {error}");
    }
    let times = FileTimes::new().set_modified(SystemTime::now());
    let error = File::open(&file).and_then(|file| file.set_times(times)).expect_err("utimens");
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(&file).expect("still there"), b"text");
    let stats = world.server.stats();
    assert_eq!(stats.put_object.requests + stats.delete_object.requests, 0);
}

#[test]
fn owner_and_modes_are_the_flags() {
    use std::os::unix::fs::MetadataExt;
    let flags = ["--uid", "1234", "--gid", "2345", "--dir-mode", "0751", "--file-mode", "640"];
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &flags);
    for (name, mode) in [("d", 0o40751), ("d/f", 0o100_640)] {
        let metadata = world.path(name).metadata().expect("attributes");
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode()), (1234, 2345, mode), "{name}");
    }
}

#[test]
fn a_folder_is_as_old_as_the_mount() {
    use std::os::unix::fs::MetadataExt;
    let before = SystemTime::now();
    let world = World::new(TestS3::builder().object(BUCKET, "d/e/f", "text"), &[]);
    let mounted = before..=SystemTime::now();
    for name in ["", "d", "d/e"] {
        let metadata = world.path(name).metadata().expect("attributes");
        assert!(mounted.contains(&metadata.modified().expect("a time")), "{name}: {metadata:?}");
        assert_eq!(metadata.nlink(), 2, "{name}");
    }
}

#[test]
fn programs_run_unless_that_is_forbidden() {
    let script = "#!/bin/sh\necho ran \"$1\"\n";
    for flags in [&["--file-mode", "0755"][..], &["--file-mode", "0755", "-o", "noexec"]] {
        let world = World::new(TestS3::builder().object(BUCKET, "run", script), flags);
        let output = Command::new(world.path("run")).arg("it").output();
        match (flags.len(), output) {
            (2, Ok(output)) => assert_eq!(output.stdout, b"ran it\n"),
            (4, Err(error)) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
            (_, other) => panic!("{flags:?}: {other:?}"),
        }
    }
}
