//! Folders are renamed, with files that are open, and with a store that fails.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;

use s3mount_testkit::{Builder, Fault, FaultKind, Operation, TestS3, check, content};

use crate::world::{BUCKET, GIB, MIB, World, run_command, wait_for};

const ALL: [&str; 3] = ["--allow=rename", "--allow=delete", "--allow=overwrite"];

/// A bucket with a folder of five files, two of them in a folder below it.
fn server() -> Builder {
    let server = TestS3::builder().object(BUCKET, "other", "other");
    ["old/a", "old/b", "old/c", "old/sub/d", "old/sub/e"]
        .into_iter()
        .fold(server, |server, key| server.object(BUCKET, key, &key.as_bytes()[4..]))
}

fn world(flags: &[&str]) -> World {
    World::counting(server(), flags)
}

/// What `server` holds in `old/`.
fn five() -> BTreeMap<String, Vec<u8>> {
    ["a", "b", "c", "sub/d", "sub/e"].map(|name| (name.to_owned(), name.as_bytes().to_vec())).into()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn rename(world: &World, from: &str, to: &str) -> Option<i32> {
    errno(fs::rename(world.path(from), world.path(to)))
}

fn names(world: &World, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(world.path(folder)).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("a name").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn a_trainer_renames_its_checkpoint() {
    let world = World::new(TestS3::builder().object(BUCKET, "run/config.json", "{}"), &ALL);
    let script = "import os, sys, shutil, threading\n\
        root = os.path.join(sys.argv[1], 'run')\n\
        for step in (500, 1000, 1500):\n\
        \x20   tmp, final = f'{root}/tmp-checkpoint-{step}', f'{root}/checkpoint-{step}'\n\
        \x20   os.makedirs(tmp + '/global_step')\n\
        \x20   for rank in range(4):\n\
        \x20       with open(f'{tmp}/global_step/rank{rank}.pt', 'wb') as f: f.write(bytes([step % 251]) * (rank * 3 << 20))\n\
        \x20   with open(tmp + '/trainer_state.json', 'w') as f: f.write(str(step))\n\
        \x20   os.rename(tmp, final)\n\
        \x20   fd = os.open(final, os.O_RDONLY); os.fsync(fd); os.close(fd)\n\
        \x20   assert not os.path.exists(tmp)\n\
        \x20   assert sorted(os.listdir(final)) == ['global_step', 'trainer_state.json'], os.listdir(final)\n\
        \x20   assert open(final + '/trainer_state.json').read() == str(step)\n\
        \x20   assert os.path.getsize(final + '/global_step/rank3.pt') == 9 << 20\n\
        \x20   if step == 1500: shutil.rmtree(f'{root}/checkpoint-500')\n\
        assert sorted(os.listdir(root)) == ['checkpoint-1000', 'checkpoint-1500', 'config.json'], os.listdir(root)\n";
    run_command(Command::new("/usr/bin/python3").args(["-c", script]).arg(world.path("")));
    for step in [1000_usize, 1500] {
        let mut expected: BTreeMap<String, Vec<u8>> = (0..4)
            .map(|rank| (format!("global_step/rank{rank}.pt"), vec![(step % 251) as u8; (rank * 3) << 20]))
            .collect();
        expected.insert("trainer_state.json".to_owned(), step.to_string().into_bytes());
        assert!(world.stored_below(&format!("run/checkpoint-{step}/")) == expected, "{step}");
    }
    assert_eq!(world.server.keys(BUCKET).len(), 11, "and nothing else");
    assert!(world.server.open_uploads(BUCKET).is_empty());
}

/// Linux lets nobody make a file in a folder that was removed, as long as anybody holds it.
#[test]
fn a_folder_that_is_made_again_takes_files_while_somebody_holds_the_old_one() {
    let world = world(&ALL);
    let (folder, empty) = (world.path("run"), world.path("empty"));
    for round in 0..3 {
        fs::create_dir_all(folder.join("sub")).expect("a folder");
        fs::write(folder.join("sub/log"), "old").expect("a file");
        let held = [folder.join("sub/log"), folder.join("sub"), folder.clone()]
            .map(|path| File::open(path).expect("it is there"));
        fs::remove_dir_all(&folder).expect("it goes");
        fs::create_dir_all(folder.join("sub")).expect("a folder");
        fs::write(folder.join("sub/log"), format!("new {round}")).expect("a file");
        drop(held);
        assert_eq!(fs::read_to_string(folder.join("sub/log")).expect("a file"), format!("new {round}"));
        // An empty folder that another one replaces is removed, too.
        fs::create_dir(&empty).expect("a folder");
        let held = File::open(&empty).expect("it is there");
        fs::rename(&folder, &empty).expect("a rename");
        fs::write(empty.join("more"), "more").expect("a file");
        fs::remove_dir_all(&empty).expect("it goes");
        drop(held);
    }
}

#[test]
fn without_the_flag_mv_copies() {
    let world = world(&["--allow=delete"]);
    assert_eq!(rename(&world, "old", "new"), Some(libc::EXDEV));
    assert_eq!(world.stored_below("old/"), five());
    run_command(Command::new("mv").arg(world.path("old")).arg(world.path("new")));
    assert_eq!((world.stored_below("new/"), world.stored_below("old/").len()), (five(), 0));
}

#[test]
fn names_and_bytes_are_at_the_new_place_at_once() {
    let world = world(&ALL);
    let mut reader = world.open("old/sub/d");
    assert_eq!(names(&world, "old"), ["a", "b", "c", "sub"]);
    assert_eq!(rename(&world, "old", "new"), None);
    assert_eq!((world.stored_below("new/"), world.stored_below("old/").len()), (five(), 0));
    assert_eq!(
        (names(&world, ""), names(&world, "new")),
        (vec!["new".to_owned(), "other".into()], vec!["a".to_owned(), "b".into(), "c".into(), "sub".into()])
    );
    assert_eq!(names(&world, "new/sub"), ["d", "e"]);
    assert_eq!(errno(fs::read(world.path("old/a"))), Some(libc::ENOENT));
    assert_eq!(world.read("new/sub/e"), b"sub/e");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("a file that was renamed while it was open");
    assert_eq!(text, "sub/d");
    // The old name is free, and what had it does not shine through.
    fs::create_dir_all(world.path("old/sub")).expect("folders");
    assert_eq!((names(&world, "old"), names(&world, "old/sub")), (vec!["sub".to_owned()], vec![]));
    assert_eq!(errno(fs::read(world.path("old/a"))), Some(libc::ENOENT));
    world.write("old/a", "another");
    assert_eq!(world.read("new/a"), b"a");
    // Back into a folder that is there, and that is empty but for a folder.
    fs::remove_file(world.path("old/a")).expect("gone");
    fs::remove_dir(world.path("old/sub")).expect("gone");
    assert_eq!(rename(&world, "new", "old"), None);
    assert_eq!(
        (world.stored_below("old/"), names(&world, "")),
        (five(), vec!["old".to_owned(), "other".into()])
    );
    assert_eq!(rename(&world, "old/sub", "sub"), None);
    assert_eq!(
        (names(&world, "old"), names(&world, "sub")),
        (vec!["a".to_owned(), "b".into(), "c".into()], vec!["d".to_owned(), "e".into()])
    );
}

/// The bytes of a large file that this mount has not read yet come from the new place, though it has another ETag
/// there: it was uploaded in parts, and is copied by one request.
#[test]
fn readers_with_open_files_go_on() {
    let world = world(&ALL);
    let content = content("large", 0, 40 * MIB as usize);
    world.write("old/large", &content);
    let reader = world.open("old/large");
    let mut head = vec![0; 4096];
    reader.read_exact_at(&mut head, 0).expect("its beginning");
    for (from, to) in [("old", "new"), ("new", "newer")] {
        assert_eq!(rename(&world, from, to), None);
        for at in [0, 13 * MIB, 40 * MIB - 4096] {
            reader.read_exact_at(&mut head, at).expect("bytes");
            assert!(head == content[at as usize..][..4096], "{at} after the way to {to}");
        }
    }
    assert!(world.read("newer/large") == content);
}

#[test]
fn files_that_are_being_written_move_too() {
    let world = world(&ALL);
    let (large, more) = (content("large", 0, 20 * MIB as usize), content("more", 0, 12 * MIB as usize));
    world.write("old/sub/edited", &large);
    // One that is new, one of which parts are uploaded, one that is short, one that is changed and of which parts are
    // uploaded, one that was synced, one that only stands open.
    let create = |name: &str| File::create(world.path(name)).expect("a file");
    let append = |name: &str| OpenOptions::new().append(true).open(world.path(name)).expect("a file");
    let (mut new, mut parts) = (create("old/new"), create("old/sub/parts"));
    let (mut short, mut edited) = (append("old/a"), append("old/sub/edited"));
    let (mut synced, idle) = (create("old/synced"), append("old/b"));
    new.write_all(b"one").expect("a write");
    parts.write_all(&large).expect("a write");
    short.write_all(b" and more").expect("a write");
    edited.write_all(&more).expect("a write");
    synced.write_all(b"safe").and_then(|()| synced.sync_all()).expect("a write");
    assert_eq!(rename(&world, "old", "new"), None);
    assert_eq!(fs::read(world.path("new/new")).expect("a draft"), b"one");
    assert_eq!(fs::read(world.path("new/a")).expect("a draft"), b"a and more");
    assert_eq!(world.stored_below("new/")["a"], b"a", "nothing is published before it is closed");
    new.write_all(b" two").expect("a write");
    parts.write_all(&more).expect("a write");
    synced.write_all(b" and sound").expect("a write");
    for file in [new, parts, short, edited, synced, idle] {
        nix::unistd::close(file).expect("what was written");
    }
    let mut expected = five();
    let long = [&*large, &more].concat();
    for (name, bytes) in [("new", &b"one two"[..]), ("a", b"a and more"), ("synced", b"safe and sound")] {
        expected.insert(name.to_owned(), bytes.to_vec());
    }
    expected.insert("sub/parts".to_owned(), long.clone());
    expected.insert("sub/edited".to_owned(), long);
    assert!(world.stored_below("new/") == expected, "{:?}", world.stored_below("new/").keys());
    wait_for("the old folder is empty", || world.stored_below("old/").is_empty());
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}

#[test]
fn what_has_the_new_name_is_only_replaced_if_it_is_empty() {
    let world = World::new(server().object(BUCKET, "full/x", "x").object(BUCKET, "marked/", ""), &ALL);
    fs::create_dir(world.path("empty")).expect("a folder");
    fs::create_dir_all(world.path("local/sub")).expect("folders");
    let mut draft = File::create(world.path("empty/draft")).expect("a file");
    for (to, expected) in [
        ("full", libc::ENOTEMPTY),
        ("empty", libc::ENOTEMPTY),
        ("local", libc::ENOTEMPTY),
        ("other", libc::ENOTDIR),
    ] {
        assert_eq!(rename(&world, "old", to), Some(expected), "{to}");
    }
    assert_eq!((world.stored_below("old/"), world.stored_below("full/").len()), (five(), 1));
    draft.write_all(b"text").expect("a write");
    drop(draft);
    fs::remove_file(world.path("empty/draft")).expect("gone");
    assert_eq!(rename(&world, "old", "empty"), None);
    assert_eq!(world.stored_below("empty/"), five());
    assert_eq!(rename(&world, "empty", "marked"), None);
    assert_eq!(world.read("marked/sub/d"), b"sub/d");
    // The folder's marker goes with it.
    assert_eq!(rename(&world, "marked", "old"), None);
    assert_eq!(world.server.keys(BUCKET).iter().filter(|key| key.starts_with("marked")).count(), 0);
    assert!(world.server.keys(BUCKET).contains(&"old/".to_owned()));
}

#[test]
fn a_folder_with_too_many_objects_stays() {
    let world = world(&[&ALL[..], &["--dir-rename-limit", "4"]].concat());
    assert_eq!(rename(&world, "old", "new"), Some(libc::EXDEV));
    assert_eq!(rename(&world, "old/sub", "sub"), None);
    assert_eq!((world.stored_below("sub/").len(), world.stored_below("old/").len()), (2, 3));
}

/// S3 copies up to 5 GiB by one request.
#[test]
fn a_large_object_moves_with_its_folder() {
    let size = 6 * GIB;
    let world = World::new(server().synthetic(BUCKET, "old/large", size), &ALL);
    assert_eq!(rename(&world, "old", "new"), None);
    assert_eq!((world.server.keys(BUCKET).len(), names(&world, "new").len()), (7, 5));
    let file = world.open("new/large");
    assert_eq!(file.metadata().expect("attributes").len(), size);
    let mut buffer = vec![0; MIB as usize];
    for offset in [0, 256 * MIB - 1000, 5 * GIB + 17, size - MIB] {
        file.read_exact_at(&mut buffer, offset).expect("bytes");
        check("old/large", offset, &buffer).expect("right bytes");
    }
}

#[test]
fn a_store_that_fails_for_a_while_loses_nothing() {
    let world = world(&ALL);
    let busy = FaultKind::Status(503, "SlowDown".to_owned());
    for operation in [Operation::CopyObject, Operation::DeleteObject] {
        for kind in
            [busy.clone(), FaultKind::LostAnswer, FaultKind::Reset, FaultKind::error_body("InternalError")]
        {
            if operation == Operation::CopyObject || kind != FaultKind::error_body("InternalError") {
                world.server.fault(Fault::new(kind).on(operation).times(3));
            }
        }
    }
    assert_eq!(rename(&world, "old", "new"), None);
    assert_eq!((world.stored_below("new/"), world.stored_below("old/").len()), (five(), 0));
    assert_eq!(names(&world, "new"), ["a", "b", "c", "sub"]);
}

#[test]
fn a_rename_that_fails_has_changed_nothing() {
    let world = world(&ALL);
    let denied = || Fault::new(FaultKind::Status(403, "AccessDenied".to_owned()));
    // The third copy, and the third deletion, are refused. Then all deletions are.
    world
        .server
        .fault(Fault { key_contains: "new/c".to_owned(), ..denied().on(Operation::CopyObject).times(1) });
    assert_eq!(rename(&world, "old", "new"), Some(libc::EACCES));
    assert_eq!((world.stored_below("old/"), world.stored_below("new/").len()), (five(), 0));
    assert_eq!(
        (names(&world, ""), names(&world, "old")),
        (vec!["old".to_owned(), "other".into()], vec!["a".to_owned(), "b".into(), "c".into(), "sub".into()])
    );
    world.server.fault(Fault { key_contains: "old/".to_owned(), ..denied().on(Operation::DeleteObject) });
    let mut draft = OpenOptions::new().append(true).open(world.path("old/a")).expect("a file");
    draft.write_all(b"!").expect("a write");
    assert_eq!(rename(&world, "old", "new"), Some(libc::EACCES));
    assert_eq!((world.stored_below("old/"), world.stored_below("new/").len()), (five(), 0));
    nix::unistd::close(draft).expect("what was written");
    assert_eq!(
        (world.read("old/a"), names(&world, "old/sub")),
        (b"a!".to_vec(), vec!["d".to_owned(), "e".into()])
    );
    world.server.clear_faults();
    assert_eq!(rename(&world, "old", "new"), None);
    assert_eq!(world.stored_below("new/")["a"], b"a!");
}

/// Somebody else writes an object to where a copy is to be: it stays, and so does the folder.
#[test]
fn nothing_is_overwritten() {
    let world = world(&ALL);
    world.server.fault(Fault::new(FaultKind::Stall(1000)).on(Operation::CopyObject));
    let renamed = std::thread::scope(|scope| {
        let renamed = scope.spawn(|| rename(&world, "old", "new"));
        wait_for("copies under way", || world.server.stats().copy_object.requests > 0);
        world.server.put(BUCKET, "new/b", "theirs");
        renamed.join().expect("no panic")
    });
    assert!([None, Some(libc::ENOTEMPTY)].contains(&renamed), "{renamed:?}");
    if renamed.is_some() {
        assert_eq!(world.stored_below("old/"), five());
        assert_eq!(world.stored_below("new/"), BTreeMap::from([("b".to_owned(), b"theirs".to_vec())]));
    }
}

/// A file that is made in the folder while its objects move waits, and is in the new folder.
#[test]
fn nothing_slips_in_while_objects_move() {
    let world = world(&ALL);
    fs::metadata(world.path("old/sub")).expect("a folder");
    world.server.fault(Fault::new(FaultKind::Stall(1000)).on(Operation::CopyObject));
    std::thread::scope(|scope| {
        let renamed = scope.spawn(|| rename(&world, "old", "new"));
        wait_for("copies under way", || world.server.stats().copy_object.requests > 0);
        let written = fs::write(world.path("old/sub/late"), "late");
        assert_eq!(renamed.join().expect("no panic"), None);
        if written.is_ok() {
            assert_eq!(fs::read(world.path("new/sub/late")).expect("it moved, too"), b"late");
        }
    });
    assert!(world.stored_below("old/").is_empty(), "{:?}", world.stored_below("old/").keys());
}

/// A walk lists its next folder ahead. Until the walk comes, other folders may get that name.
#[test]
fn a_listing_ahead_is_not_shown_of_another_folder_of_its_name() {
    let world = World::new(TestS3::builder(), &["--allow=all"]);
    let script = "mkdir c; printf 12345 >c/c; mkdir a; mkdir b; ls a; printf y >b/f; mv -T c z; ls; ls b; \
        mv -T z x; mkdir c; mv -T c z; mv -T z b/y; mkdir c; mkdir c/a; mv -T c/a z";
    run_command(Command::new("sh").args(["-ec", script]).current_dir(world.mount.path()));
    assert_eq!(names(&world, "z"), Vec::<String>::new());
    assert_eq!(world.stored_below("").keys().collect::<Vec<_>>(), ["b/f", "x/c"]);
}
