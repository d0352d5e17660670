//! Hints about what a program will read. They are written to `.s3mount/prefetch` or to the control socket, by
//! hand and by DataLoaders.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{Builder, Fault, FaultKind, Operation, Shape, TestS3};
use serde_json::Value;

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_file, check_stream, run_command, wait_for};

fn many(count: usize, size: u64) -> Builder {
    (0..count).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &key(index), size))
}

fn key(index: usize) -> String {
    format!("many/{index:05}.bin")
}

fn hint(world: &World, text: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(world.path(".s3mount/prefetch"))?.write_all(text)
}

/// Checks that each of `files` took one GET, whether a hint or a reader came first. The kernel keeps the
/// files' pages, but may drop pages at any time. So each READ beyond one for each file may have taken a GET,
/// too.
fn check_gets(world: &World, files: u64) {
    let (gets, reads) = (world.server.stats().get_object.requests, world.gauge("reads"));
    assert!((files..=reads.max(files)).contains(&gets), "{gets} GETs for {files} files and {reads} READs");
}

#[test]
fn what_was_told_is_there_when_it_is_read() {
    let world = World::counting(many(300, 100 * KIB), &[]);
    // The last of the 300 lines has no line end.
    let lines: Vec<_> = (0..300).map(key).collect();
    hint(&world, lines.join("\n").as_bytes()).expect("hints");
    wait_for("all are fetched", || world.gauge("get_requests") == 300);
    assert_eq!(world.gauge("hints_refused"), 0);
    for index in 0..300 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 100 * KIB);
    }
    assert_eq!(world.server.stats().get_object.requests, 300, "no byte was asked for twice");
    assert_eq!(world.gauge("waits"), 0, "and no reader waited");
    wait_for("what was read leaves the window", || world.gauge("hints_ahead") == 0);
}

#[test]
fn what_the_kernel_has_is_not_fetched_because_it_was_told() {
    let read_all = |world: &World| {
        // The mount can't guess this order.
        for key in (0..200).map(|index| key(index * 7 % 200)) {
            assert_eq!(check_file(&world.path(&key), &key), 100 * KIB);
        }
    };
    let world = World::counting(many(200, 100 * KIB), &[]);
    let lines: String = (0..200).rev().map(|index| key(index) + "\n").collect();
    for _ in 0..3 {
        hint(&world, lines.as_bytes()).expect("hints");
        read_all(&world);
        wait_for("no hint is left", || world.gauge("hints_queued") + world.gauge("hints_ahead") == 0);
    }
    check_gets(&world, 200);

    // With `--direct-io`, a file that is read again takes a GET again. So the hint for it is followed.
    let world =
        World::counting(TestS3::builder().synthetic(BUCKET, "again", 100 * KIB), &["--direct-io", "*"]);
    let read = || {
        assert_eq!(check_file(&world.path("again"), "again"), 100 * KIB);
        // The kernel tells the daemon of a close only after the program has gone on. Until the daemon has let go
        // of the bytes, neither a reader nor a hint fetches them again.
        wait_for("the file is closed", || world.gauge("open_files") + world.gauge("memory_used_bytes") == 0);
    };
    read();
    read();
    hint(&world, b"again").expect("a hint");
    wait_for("it is fetched", || world.server.stats().get_object.requests == 3);
    read();
    assert_eq!(world.server.stats().get_object.requests, 3, "no byte was asked for twice");
}

#[test]
fn files_that_are_opened_in_order_need_no_telling() {
    let world = World::counting(many(600, 100 * KIB), &[]);
    for index in 0..10 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 100 * KIB);
    }
    // As many files are fetched ahead as were opened in order.
    wait_for("the next ones are fetched", || world.server.stats().get_object.requests == 20);
    for index in 10..600 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 100 * KIB);
    }
    assert_eq!(world.server.stats().get_object.requests, 600, "no byte was asked for twice");
}

#[test]
fn large_files_that_are_told_are_read_as_one_stream() {
    let (size, told) = (32 * MIB, [5, 1, 7, 3, 6, 0]);
    let world = World::counting(many(8, size), &[]);
    // From these two files the mount learns that files of this kind are read whole.
    for index in [2, 4] {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), size);
    }
    let lines: String = told.map(|index| key(index) + "\n").concat();
    hint(&world, lines.as_bytes()).expect("hints");
    wait_for("their beginnings are fetched", || world.gauge("hints_ahead") == told.len() as u64);
    for index in &told[..2] {
        assert_eq!(check_file(&world.path(&key(*index)), &key(*index)), size);
    }
    let fetched = || world.server.stats().get_object.bytes;
    let mut file = world.open(&key(told[2]));
    let mut most = vec![0; (size - MIB) as usize];
    file.read_exact(&mut most).expect("most of it");
    // Four whole files are fetched, and the rest of the fifth one is on its way. Of the two files after the
    // next one, 1 MiB each is fetched.
    let rest = 2 * MIB;
    wait_for("more than a MiB of the next one is fetched", || fetched() >= 5 * size + 4 * MIB + rest);
    drop(file);
    for index in &told[3..] {
        assert_eq!(check_file(&world.path(&key(*index)), &key(*index)), size);
    }
    assert!(fetched() <= 8 * size, "no byte was asked for twice: {}", fetched());
}

#[test]
fn parts_of_a_file_are_told_by_offset_and_length() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "shard.bin", 4 * GIB), &[]);
    let offsets: Vec<u64> = (0..50).map(|turn| (turn * 37 % 50) * 80 * MIB + 5 * KIB).collect();
    let lines: Vec<_> = offsets.iter().map(|at| format!("shard.bin\t{at}\t{}\n", 150 * KIB)).collect();
    hint(&world, lines.concat().as_bytes()).expect("hints");
    wait_for("all are fetched", || world.gauge("get_requests") == 50);
    let file = world.open("shard.bin");
    for at in offsets {
        use std::os::unix::fs::FileExt;
        let mut record = vec![0; 100 * KIB as usize];
        file.read_exact_at(&mut record, at).expect("a record");
        check_stream(&record[..], "shard.bin", at, record.len());
    }
    // The kernel reads whole pages, so the ends of a record may cost another GET.
    assert!(world.server.stats().get_object.requests <= 150);
}

#[test]
fn the_window_is_bounded_and_moves_on() {
    let world = World::counting(many(1500, 100 * KIB), &["--memory-limit", "128MiB"]);
    let lines: Vec<_> = (0..1500).map(|index| key(index) + "\n").collect();
    hint(&world, lines.concat().as_bytes()).expect("hints");
    wait_for("a window full is fetched", || world.gauge("get_requests") >= 300);
    std::thread::sleep(Duration::from_millis(200));
    let fetched = world.gauge("get_requests");
    assert!(fetched <= 350, "{fetched} files of 100 KiB in a quarter of 128 MiB");
    // The reader does not begin with the first hint. It gets memory all the same, and the window moves on as
    // far as the reader has read.
    for index in 290..320 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 100 * KIB);
    }
    wait_for("the window has moved", || world.gauge("get_requests") >= fetched + 30);
    world.check_memory(128 * MIB);
}

#[test]
fn a_reader_waits_for_no_bytes_that_were_only_told() {
    let server = many(1000, 100 * KIB).synthetic(BUCKET, "read", MIB);
    let world = World::counting(server, &["--max-connections", "32"]);
    let told = Fault { key_contains: "many/".into(), ..Fault::new(FaultKind::Freeze) };
    world.server.fault(told.on(Operation::GetObject));
    let lines: String = (0..1000).map(|index| key(index) + "\n").collect();
    hint(&world, lines.as_bytes()).expect("hints");
    wait_for("GETs of the told files wait", || world.server.stats().most_concurrent_gets >= 8);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(check_file(&world.path("read"), "read"), MIB);
    world.server.thaw();
}

#[test]
fn no_writer_waits_for_another() {
    let server = (0..100).fold(many(2500, 100 * KIB), |server, index| {
        server.synthetic(BUCKET, &format!("next/{index}"), 100 * KIB).synthetic(
            BUCKET,
            &format!("slow/{index}"),
            7,
        )
    });
    let world = World::counting(server, &["--memory-limit", "128MiB"]);
    let slow: String = (0..100).map(|index| format!("slow/{index}\n")).collect();
    let next: String = (0..100).map(|index| format!("next/{index}\n")).collect();
    let epoch: String = (0..2500).map(|index| key(index) + "\n").collect();
    // The first writer's hints wait for listings that never come. The second writer's hints are a whole
    // epoch. They fill a window, and no program reads these files.
    let stall = Fault { key_contains: "slow/".into(), ..Fault::new(FaultKind::Freeze) };
    world.server.fault(stall.on(Operation::ListObjects));
    hint(&world, slow.as_bytes()).expect("hints");
    hint(&world, epoch.as_bytes()).expect("hints");
    wait_for("a window is full", || world.gauge("hints_ahead") >= 80);
    std::thread::sleep(Duration::from_millis(200));
    let before = world.gauge("get_requests");
    hint(&world, next.as_bytes()).expect("hints");
    // A quarter of the memory is for hints, and the third writer has a third of it for its own hints.
    wait_for("those of the third are fetched", || world.gauge("get_requests") >= before + 80);
}

#[test]
fn a_hint_in_one_folder_stops_no_guess_in_another() {
    let server = many(100, 100 * KIB).synthetic(BUCKET, "other/a", 100 * KIB);
    let world = World::counting(server, &[]);
    hint(&world, b"other/a\n").expect("a hint");
    wait_for("it is fetched", || world.gauge("get_requests") == 1);
    for index in 0..10 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 100 * KIB);
    }
    // As many files are fetched ahead as were opened in order.
    wait_for("the next ones are fetched", || world.server.stats().get_object.requests == 21);
}

#[test]
fn bad_hints_do_no_harm() {
    let world = World::new(many(3, 100 * KIB).object(BUCKET, "empty", ""), &[]);
    let bad = "no/such\nmany\n../../etc/passwd\n/etc/passwd\nmany/\n\nmany/00000.bin\tx\t1\nempty\n";
    hint(&world, bad.as_bytes()).expect("hints");
    wait_for("they are refused", || world.gauge("hints_refused") >= 6);
    hint(&world, &vec![b'x'; 10 << 20]).expect("a line without end");
    hint(&world, "no/such\n".repeat(1_000_000).as_bytes()).expect("a million lines");
    hint(&world, b"many/00001.bin\n").expect("a hint");
    assert_eq!(check_file(&world.path(&key(2)), &key(2)), 100 * KIB);
    assert!(fs::read(world.path(".s3mount/prefetch")).expect("nothing to read").is_empty());
    world.check_memory(256 * MIB);
}

#[test]
fn only_hints_can_be_written() {
    let world = World::new(many(1, 7), &["--read-only"]);
    assert_eq!(hint(&world, b"x\n").expect_err("the kernel").kind(), io::ErrorKind::ReadOnlyFilesystem);
    let world = World::new(many(1, 7), &[]);
    let error = OpenOptions::new().write(true).open(world.path(".s3mount/stats")).expect_err("not this");
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    fs::write(world.path(".s3mount/prefetch"), "many/00000.bin\n").expect("also by cutting it first");
}

#[test]
fn the_control_socket_takes_hints_and_tells_the_counters() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let socket = folder.path().join("control");
    let flags = ["--control-socket", socket.to_str().expect("UTF-8"), "--read-only"];
    let world = World::counting(many(300, 100 * KIB), &flags);
    assert_eq!(socket.metadata().expect("a socket").permissions().mode() & 0o777, 0o600);
    let ask = |text: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(text.as_bytes()).expect("to be heard");
        stream.shutdown(Shutdown::Write).expect("an end");
        io::read_to_string(stream).expect("an answer")
    };
    let mut silent = UnixStream::connect(&socket).expect("it listens");
    silent.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    // Many connections that send nothing do not keep others out for long. The counters come as soon as the
    // line has ended, also when the connection stays open.
    let idle: Vec<_> = (0..80).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    stream.write_all(b"stats\n").expect("to be heard");
    assert!(io::read_to_string(stream).expect("an answer").contains("get_requests"));
    drop(idle);
    let lines: Vec<_> = (0..300).map(key).collect();
    assert_eq!(ask(&format!("prefetch\n{}", lines.join("\n"))), "");
    wait_for("all are fetched", || {
        let stats: Value = serde_json::from_str(&ask("stats\n")).expect("JSON");
        stats["get_requests"] == 300
    });
    for bad in ["", "\n", "banana\n", "../x\n", &"x".repeat(1 << 20)] {
        // The daemon may close the connection of a program that sends too much.
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let _ = stream.write_all(bad.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut said = String::new();
        if stream.read_to_string(&mut said).is_ok() {
            assert!(
                said.starts_with("s3mount: ") && said.contains("write stats, metrics, streams or events, or"),
                "{said}"
            );
        }
    }
    // The daemon does not answer another user, even if the mode of the socket's file allows the connection.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("a mode");
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  s.send(b'stats\\n'); s.shutdown(1); print(len(s.recv(9999)))";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]).arg(&socket).uid(65534).gid(65534);
    let answer = python.output().expect("python").stdout;
    assert!(answer.is_empty() || answer == b"0\n", "{}", answer.escape_ascii());
    assert_eq!(silent.read(&mut [0]).expect("the mount closes it"), 0);
    drop(world);
    assert!(!socket.exists(), "it goes with the mount");
}

/// The output of tests/mount/hinted_epoch.py for two epochs of the files in `root`.
fn epochs(kind: &str, root: &Path, socket: Option<&Path>) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("/usr/bin/python3");
    python.arg(folder.join("tests/mount/hinted_epoch.py")).arg(folder.join("python"));
    python.arg(kind).arg(root).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(socket) = socket {
        python.env("S3MOUNT_CONTROL_SOCKET", socket);
    }
    run_command(&mut python)
}

#[test]
fn a_sampler_and_loaders_of_each_kind_tell_ahead_of_their_workers() {
    for kind in ["sampler", "fork", "spawn", "rank"] {
        let world = World::counting(many(400, 110 * KIB).shape(Shape::aws()), &[]);
        let said = epochs(kind, &world.path("many"), None);
        let files = if kind == "rank" {
            // The loader has half of the files, and its rank reads half of these in each epoch. They are the
            // same files in both epochs, or others.
            assert!(said.starts_with("100 and 100 samples of "), "{said}");
            said.trim_end()
                .trim_end_matches(" files")
                .rsplit(' ')
                .next()
                .expect("a word")
                .parse()
                .expect("a number")
        } else {
            assert_eq!(said, "400 and 400 samples of 400 files\n");
            400
        };
        // A hint and its reader may come at the same moment, and the kernel may drop a page. Both may cost
        // another GET.
        let gets = world.server.stats().get_object.requests;
        let most = world.gauge("reads").max(files) + files / 10;
        assert!((files..=most).contains(&gets), "{kind}: {gets} GETs for {files} files");
        assert_eq!(world.gauge("hints_refused"), 0);
        // Without hints, each of these reads waits. How many wait with hints depends on the load of the machine.
        let waits = world.gauge("waits");
        assert!(waits <= files / 4 * 3, "{kind}: {waits} of {files} reads waited");
    }
}

#[test]
fn a_loader_tells_a_read_only_mount_through_its_socket() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let socket = folder.path().join("control");
    let flags = ["--control-socket", socket.to_str().expect("UTF-8"), "--read-only"];
    let world = World::counting(many(200, 110 * KIB).shape(Shape::aws()), &flags);
    assert_eq!(epochs("fork", &world.path("many"), Some(&socket)), "200 and 200 samples of 200 files\n");
    check_gets(&world, 200);
    let waits = world.gauge("waits");
    assert!(waits <= 150, "{waits} of 200 reads waited, and all of them wait without hints");
    // Without a control socket, the loader says so, and reads without hints.
    let said = epochs("fork", &world.path("many"), None);
    assert!(said.contains("takes no hints through") && said.contains("--control-socket PATH"), "{said}");
    assert!(said.ends_with("200 and 200 samples of 200 files\n"), "{said}");
    let said = epochs("fork", &world.path("many"), Some(&folder.path().join("none")));
    assert!(said.contains("none (No such file or directory)"), "{said}");
}

#[test]
fn a_loader_that_can_not_tell_says_why() {
    let local = tempfile::TempDir::new().expect("a folder");
    for index in 0..40 {
        fs::write(local.path().join(format!("{index:02}")), "text").expect("a file");
    }
    let said = epochs("fork", local.path(), None);
    let (warning, samples) = said.split_once('\n').expect("two lines");
    assert!(warning.ends_with("is not on an s3mount: reading goes on without hints"), "{said}");
    assert_eq!(samples, "40 and 40 samples of 40 files\n");
    let said = epochs("errors", local.path(), None);
    let reasons: Vec<_> = said.lines().collect();
    assert_eq!(reasons.len(), 3, "{said}");
    assert!(reasons[0].starts_with("Table does not say which file an index reads"), "{said}");
    assert!(reasons[1].starts_with("an IterableDataset has no indices"), "{said}");
    assert!(reasons[2].contains("before its first epoch"), "{said}");
}
