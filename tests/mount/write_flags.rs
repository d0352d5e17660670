//! Flags that every request of a mount obeys, and flags that say how files are written.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use s3mount_testkit::{TestS3, run_with_timeout};

use crate::world::{BUCKET, MIB, World, run, run_command, s3mount};

const OWNER: &str = "111122223333";
const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

/// The server refuses each request that does not name the owner, or does not say who pays.
#[test]
fn all_requests_name_the_owner_and_who_pays() {
    let server = TestS3::builder().owner(OWNER).requester_pays();
    let server = server.object(BUCKET, "d/old", "old text").synthetic(BUCKET, "big", 40 * MIB);
    let flags = ["--expected-bucket-owner", OWNER, "--requester-pays", "--verify", "whole"];
    let world = World::counting(server, &[&flags[..], &ALL].concat());
    let dir = world.path("");
    let script = "set -e; cd \"$1\"; ls d; cat big > /dev/null; cp big copy; echo more >> copy; mv copy moved\n\
                  head -c 20M /dev/zero > parts; cp d/old d/new; mv d/new e; rm parts; echo put > put; cat e\n";
    let said = run_command(Command::new("sh").args(["-c", script, "sh"]).arg(&dir));
    assert_eq!(said, "old\nold text");
    let tuned = Command::new(env!("CARGO_BIN_EXE_s3mount"))
        .args(["tune", BUCKET, "--endpoint-url", &world.server.endpoint()])
        .args(&flags[..3])
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .output()
        .expect("a command");
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    let stats = world.server.stats();
    let operations = [
        stats.get_object,
        stats.list_objects,
        stats.put_object,
        stats.create_multipart_upload,
        stats.upload_part,
        stats.upload_part_copy,
        stats.complete_multipart_upload,
        stats.copy_object,
        stats.delete_object,
    ];
    assert!(operations.iter().all(|counts| counts.requests > 0 && counts.errors == 0), "{stats:?}");
    let errors = serde_json::to_value(stats).expect("JSON");
    let errors =
        errors.as_object().expect("counters").values().filter_map(|counts| counts["errors"].as_u64());
    assert_eq!(errors.sum::<u64>(), 0, "{stats:?}");
}

#[test]
fn a_bucket_of_another_account_is_not_mounted() {
    let server = TestS3::builder().owner(OWNER).requester_pays().bucket(BUCKET).start().expect("a server");
    let folder = tempfile::TempDir::new().expect("a folder");
    let mount = |flags: &[&str]| {
        let mut command = s3mount(&server.endpoint(), BUCKET, folder.path(), flags);
        let output = run_with_timeout(&mut command, std::time::Duration::from_secs(60)).expect("it ends");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let said = mount(&["--expected-bucket-owner", "444455556666", "--requester-pays"]);
    assert!(said.contains("either it does not belong to the account 444455556666 of"), "{said}");
    let said = mount(&["--expected-bucket-owner", OWNER]);
    assert!(said.contains("refuses access to bucket"), "{said}");
}

#[test]
fn uploads_are_as_the_flags_have_them() {
    let world = World::new(TestS3::builder(), &["--allow=write"]);
    world.write("a.json", "{}");
    let stored = |world: &World, name: &str| world.server.stored(BUCKET, name).expect("an object");
    let sent = stored(&world, "a.json");
    assert_eq!(sent.beside.content_type.as_deref(), Some("application/json"));
    assert!(sent.checksum.is_some(), "a CRC came along");
    let flags =
        ["--allow=write", "--upload-checksums", "none", "--content-type", "text/plain; charset=utf-8"];
    let world = World::new(TestS3::builder(), &flags);
    world.write("a.json", "{}");
    world.write("large.json", vec![7; 20 << 20]);
    let sent = stored(&world, "a.json");
    assert_eq!(sent.beside.content_type.as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(sent.checksum, None);
    assert_eq!(stored(&world, "large.json").bytes(), vec![7; 20 << 20]);
}

#[test]
fn fsync_shows_a_long_file_if_a_flag_says_so() {
    for flags in [&["--allow=write"][..], &["--allow=write", "--fsync-publish"]] {
        let world = World::new(TestS3::builder(), flags);
        let mut file = File::create(world.path("f")).expect("a file");
        file.write_all(&vec![1; 20 << 20]).expect("a write");
        file.sync_all().expect("safe");
        let shown = world.server.stored(BUCKET, "f").map(|object| object.bytes().len());
        assert_eq!(shown, (flags.len() > 1).then_some(20 << 20), "{flags:?}");
        file.write_all(b"more").expect("a write");
        drop(file);
        assert_eq!(world.server.stored(BUCKET, "f").map(|object| object.size), Some((20 << 20) + 4));
        assert_eq!(run("ls", &[world.path("")]), "f\n");
    }
}
