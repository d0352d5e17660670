//! Programs that write, close, rename and delete at the same moment, in one mount and in two.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use s3mount_testkit::{Fault, FaultKind, FirstByte, Operation, Shape, TestS3, content};

use crate::world::{BUCKET, MIB, World, wait_for};

const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

fn stored(world: &World, key: &str) -> Option<Vec<u8>> {
    world.server.stored(BUCKET, key).map(|stored| stored.bytes())
}

fn close(file: File) -> io::Result<()> {
    nix::unistd::close(file).map_err(io::Error::from)
}

fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// A journal as sqlite writes it: its name is there from its creation to its end.
#[test]
fn a_file_can_be_deleted_as_soon_as_it_is_closed() {
    let world = World::new(TestS3::builder(), &ALL);
    thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..100 {
                    let path = world.path(&format!("journal-{thread}"));
                    let mut file =
                        OpenOptions::new().write(true).create_new(true).open(&path).expect("a file");
                    if round % 3 > 0 {
                        file.write_all(b"journal").expect("a write");
                    }
                    if round % 3 > 1 {
                        file.sync_data().expect("safe");
                    }
                    close(file).expect("a close");
                    fs::remove_file(&path).expect("gone");
                    assert!(!path.exists());
                }
            });
        }
    });
    wait_for("nothing is left", || {
        (0..4).all(|thread| stored(&world, &format!("journal-{thread}")).is_none())
    });
    // What is published late is there late.
    thread::sleep(Duration::from_millis(300));
    for thread in 0..4 {
        assert_eq!(stored(&world, &format!("journal-{thread}")), None);
    }
}

/// A lock file as git writes it: what was meant is under the final name, and nowhere else.
#[test]
fn a_file_can_be_renamed_as_soon_as_it_is_closed() {
    let slow = Shape { first_byte: FirstByte::Fixed(5.0), ..Shape::default() };
    for shape in [Shape::default(), slow] {
        let world = World::new(TestS3::builder().shape(shape), &ALL);
        thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..40 {
                        let [lock, path] =
                            ["lock", "config"].map(|name| world.path(&format!("{name}-{thread}")));
                        let text = if round % 2 > 0 { format!("{thread} {round}") } else { String::new() };
                        let mut file =
                            OpenOptions::new().write(true).create_new(true).open(&lock).expect("a file");
                        file.write_all(text.as_bytes()).expect("a write");
                        close(file).expect("a close");
                        fs::rename(&lock, &path).expect("another name");
                        assert_eq!(fs::read_to_string(&path).expect("a file"), text);
                        let key = format!("config-{thread}");
                        wait_for("it is there", || stored(world, &key) == Some(text.clone().into_bytes()));
                    }
                });
            }
        });
        for thread in 0..4 {
            assert_eq!(stored(&world, &format!("lock-{thread}")), None);
        }
    }
}

/// A log that is rotated while it is written loses nothing.
#[test]
fn a_file_that_is_renamed_while_it_is_written_loses_nothing() {
    let world = World::new(TestS3::builder(), &ALL);
    let mut log = File::create(world.path("log.0")).expect("a file");
    log.sync_all().expect("an object");
    let lines = thread::scope(|scope| {
        let world = &world;
        let writer = scope.spawn(move || {
            let mut lines = String::new();
            for line in 0..3000 {
                let line = format!("line {line}\n");
                log.write_all(line.as_bytes()).expect("a write");
                lines += &line;
            }
            close(log).expect("a close");
            lines
        });
        let mut name = 0;
        while !writer.is_finished() {
            fs::rename(world.path(&format!("log.{name}")), world.path(&format!("log.{}", name + 1)))
                .expect("another name");
            name += 1;
        }
        let lines = writer.join().expect("a writer");
        assert!(name > 1, "{name} renames");
        fs::rename(world.path(&format!("log.{name}")), world.path("log")).expect("another name");
        lines
    });
    assert!(stored(&world, "log") == Some(lines.clone().into_bytes()), "the bucket");
    assert!(fs::read_to_string(world.path("log")).expect("a file") == lines, "the mount");
}

/// As a log that is rotated, of which the first parts have left the memory: its old name is another file's at once.
#[test]
fn a_long_file_that_is_renamed_while_it_is_written_makes_way_for_another() {
    let world = World::new(TestS3::builder(), &["--allow=write", "--memory-limit", "64MiB"]);
    let piece = content("log", 0, MIB as usize);
    for round in 1..=2 {
        let (name, rotated) = (format!("log-{round}"), format!("old-{round}"));
        let path = world.path(&name);
        let mut log = File::create(&path).expect("a file");
        for _ in 0..60 {
            log.write_all(&piece).expect("a write");
        }
        fs::rename(&path, world.path(&rotated)).expect("another name");
        let mut newer = File::create(&path).expect("the name is free");
        assert_eq!(stored(&world, &rotated), None, "it is not closed");
        newer.write_all(b"newer").expect("a write");
        if round == 1 {
            close(newer).expect("its name is its own");
            log.write_all(b"end").expect("a write");
            close(log).expect("its name is its own");
        } else {
            log.write_all(b"end").expect("a write");
            close(log).expect("its name is its own");
            close(newer).expect("its name is its own");
        }
        assert!(stored(&world, &rotated) == Some([piece.repeat(60), b"end".to_vec()].concat()));
        assert_eq!(stored(&world, &name).as_deref(), Some(&b"newer"[..]));
    }
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}

/// A file that can't be replaced stays as it is, also while somebody writes to it.
#[test]
fn a_rename_that_fails_leaves_both_files() {
    use s3mount_testkit::{Fault, FaultKind, Operation};
    let world = World::new(TestS3::builder().object(BUCKET, "from", "from"), &ALL);
    let mut open = File::create(world.path("to")).expect("a file");
    open.write_all(b"precious").expect("a write");
    world.server.fault(Fault::new(FaultKind::Status(403, "AccessDenied".into())).on(Operation::CopyObject));
    assert!(fs::rename(world.path("from"), world.path("to")).is_err());
    assert_eq!(world.read("to"), b"precious");
    close(open).expect("a close");
    assert_eq!(stored(&world, "to").expect("an object"), b"precious");
    assert_eq!(stored(&world, "from").expect("an object"), b"from");
}

/// Two mounts make the same file, or change the same object: one wins, and the other is told at `close`.
#[test]
fn of_two_mounts_that_write_one_key_one_wins_and_the_other_is_told() {
    let world = World::new(
        TestS3::builder(),
        &["--allow=overwrite", "--negative-metadata-ttl", "minimal", "--metadata-ttl", "minimal"],
    );
    let dir = world.folder().join("other");
    fs::create_dir(&dir).expect("a folder");
    let other = world.also(
        &dir,
        &["--allow=overwrite", "--negative-metadata-ttl", "minimal", "--metadata-ttl", "minimal"],
    );
    for round in 0..24 {
        let (key, len) = (format!("k{round}"), if round % 4 == 3 { 9 * MIB as usize } else { 1000 });
        let is_new = round % 2 == 0;
        if !is_new {
            world.server.put(BUCKET, &key, "old");
        }
        let contents = [vec![b'1'; len], vec![b'2'; len]];
        let open: Vec<_> = [world.path(&key), other.path().join(&key)]
            .iter()
            .map(|path| OpenOptions::new().write(true).create_new(is_new).truncate(!is_new).open(path))
            .collect();
        let results: Vec<_> = thread::scope(|scope| {
            let writers: Vec<_> = open
                .into_iter()
                .zip(&contents)
                .map(|(file, content)| {
                    scope.spawn(move || {
                        let mut file = file?;
                        file.write_all(content)?;
                        close(file)
                    })
                })
                .collect();
            writers.into_iter().map(|writer| errno(writer.join().expect("a writer"))).collect()
        });
        let bytes = stored(&world, &key).expect("an object");
        match &results[..] {
            [None, Some(libc::ESTALE)] => assert!(bytes == contents[0], "{key}"),
            [Some(libc::ESTALE), None] => assert!(bytes == contents[1], "{key}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}

/// Runs `dd`, which makes or empties the file `name`, and kills it when the server has got `requests` requests of the
/// kind that `count` counts. Then the server goes on.
fn kill_in_open(world: &World, name: &str, count: impl Fn() -> u64, requests: u64) {
    let requests = count() + requests;
    let mut dd = Command::new("dd");
    dd.arg(format!("of={}", world.path(name).display())).args(["if=/dev/zero", "bs=1", "count=1"]);
    let mut dd = dd.stderr(Stdio::null()).spawn().expect("dd");
    wait_for("the store is asked", || count() >= requests);
    dd.kill().expect("a signal");
    assert!(!dd.wait().expect("its end").success());
    world.server.thaw();
}

#[test]
fn a_file_that_was_opened_for_a_killed_program_is_closed() {
    let server = TestS3::builder().object(BUCKET, "old", "bytes");
    let ttl = ["--keep-attributes", "--negative-metadata-ttl", "minimal"];
    let world = World::counting(server, &[&ALL[..], &ttl].concat());
    fs::metadata(world.path("old")).expect("its attributes are known");
    let frozen = |operation| Fault::new(FaultKind::Freeze).on(operation).times(1);
    // An OPEN that empties a file asks what the file has beside its bytes.
    world.server.fault(frozen(Operation::HeadObject));
    kill_in_open(&world, "old", || world.server.stats().head_object.requests, 1);
    let write = |name: &str| {
        let mut file = File::create(world.path(name)).expect("a file");
        file.write_all(name.as_bytes()).expect("a write");
        close(file).expect("its name is its own");
        // Who else has it open for writing would have to close it first.
        wait_for("it is stored", || stored(&world, name).is_some_and(|bytes| bytes == name.as_bytes()));
    };
    write("old");
    // A CREATE asks whether there is one, as the look-up before it. The kernel lets the next CREATE of the name begin
    // before the one of the killed program is over.
    for round in 0..10 {
        let name = format!("new{round}");
        world.server.fault(Fault::new(FaultKind::Stall(1)).on(Operation::ListObjects).times(1));
        world.server.fault(frozen(Operation::ListObjects));
        kill_in_open(&world, &name, || world.server.stats().list_objects.requests, 2);
        write(&name);
    }
    wait_for("nothing is open", || world.gauge("open_files") == 0);
}
