//! Programs write files, and the bucket holds what they were told.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::thread;

use s3mount_testkit::{FirstByte, Shape, TestS3, content};

use crate::world::{BUCKET, GIB, KIB, MIB, World, run, run_command, wait_for};

const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

fn world(flags: &[&str]) -> World {
    World::counting(
        TestS3::builder().object(BUCKET, "old", "old text").object(BUCKET, "d/kept", "kept"),
        flags,
    )
}

/// The server's answer to a GET, by no client of ours: the body, unless the answer is 404.
fn get(world: &World, path: &str) -> Option<Vec<u8>> {
    let endpoint = world.server.endpoint();
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("http://")).expect("a connection");
    write!(stream, "GET /{BUCKET}{path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    match head.split(' ').nth(1) {
        Some("200") => Some(answer.split_off(end)),
        Some("404") => None,
        _ => panic!("{head}"),
    }
}

/// What the bucket holds under a key.
fn stored(world: &World, key: &str) -> Option<Vec<u8>> {
    get(world, &format!("/{key}"))
}

/// Asserts that no upload is left behind.
fn check_uploads(world: &World) {
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
    let listed = String::from_utf8(get(world, "?uploads").expect("a list")).expect("text");
    assert!(listed.contains("ListMultipartUploadsResult") && !listed.contains("<Upload>"), "{listed}");
}

/// Some bytes that differ from file to file.
fn bytes(key: &str, len: u64) -> Vec<u8> {
    content(key, 0, len as usize)
}

fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_new_file_is_an_object_once_it_is_closed() {
    let world = world(&["--allow=write"]);
    let path = world.path("new/a.txt");
    fs::create_dir(world.path("new")).expect("a folder");
    let mut file = File::create(&path).expect("a file");
    file.write_all(b"hello ").expect("a write");
    assert_eq!(stored(&world, "new/a.txt"), None, "nobody sees half a file");
    assert_eq!(fs::read(&path).expect("a reader in the mount"), b"hello ");
    assert_eq!(path.metadata().expect("attributes").len(), 6);
    file.write_all(b"world").expect("a write");
    drop(file);
    assert_eq!(stored(&world, "new/a.txt").expect("an object"), b"hello world");
    assert_eq!(world.server.stats().put_object.requests, 1);
    let written = path.metadata().and_then(|file| file.modified()).expect("a time");
    wait_for("the file is released", || world.gauge("open_files") <= 1);
    let at_rest = path.metadata().and_then(|file| file.modified()).expect("a time");
    assert_eq!(written, at_rest, "editors compare the two");
    assert_eq!(fs::read(&path).expect("the same"), b"hello world");
    assert_eq!(run("ls", &[world.path("new")]), "a.txt\n");
    // A file without bytes is an object, too, after a moment.
    File::create(world.path("new/empty")).expect("a file");
    wait_for("the empty object", || stored(&world, "new/empty").is_some());
}

#[test]
fn large_files_are_uploaded_in_parts() {
    let world = world(&["--allow=write"]);
    let content = bytes("large", 37 * MIB + 5);
    let mut file = File::create(world.path("large")).expect("a file");
    for piece in content.chunks(300 * KIB as usize) {
        file.write_all(piece).expect("a write");
    }
    file.sync_all().expect("safe");
    drop(file);
    assert!(stored(&world, "large").expect("an object") == content);
    assert!(world.read("large") == content);
    check_uploads(&world);
}

#[test]
fn what_is_there_is_safe_without_a_flag() {
    let world = world(&["--allow=write"]);
    for result in [
        File::create(world.path("old")).map(drop),
        OpenOptions::new().append(true).open(world.path("old")).map(drop),
        fs::remove_file(world.path("old")),
        fs::rename(world.path("d/kept"), world.path("old")),
    ] {
        assert_eq!(errno(result), Some(libc::EPERM));
    }
    assert_eq!(
        errno(OpenOptions::new().write(true).create_new(true).open(world.path("old"))),
        Some(libc::EEXIST)
    );
    assert_eq!(stored(&world, "old").expect("an object"), b"old text");
    assert_eq!(world.read("old"), b"old text");
}

#[test]
fn files_are_changed_replaced_and_cut() {
    let world = world(&ALL);
    let path = world.path("old");
    let reader = File::open(&path).expect("a file");
    let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
    file.write_all(b", and more").expect("a write");
    drop(file);
    assert_eq!(stored(&world, "old").expect("an object"), b"old text, and more");
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.write_all_at(b"OLD", 0).expect("a write");
    file.set_len(8).expect("a size");
    drop(file);
    assert_eq!(stored(&world, "old").expect("an object"), b"OLD text");
    fs::write(&path, "another").expect("a file");
    assert_eq!(stored(&world, "old").expect("an object"), b"another");
    assert_eq!(fs::read(&path).expect("a file"), b"another");
    let mut cut = OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    cut.seek(SeekFrom::End(0)).and_then(|_| cut.write_all(b"!")).expect("a write");
    cut.seek(SeekFrom::Start(3)).expect("a place");
    let mut rest = String::new();
    cut.read_to_string(&mut rest).expect("its own bytes");
    assert_eq!(rest, "ther!");
    drop(cut);
    nix::unistd::truncate(&path, 2).expect("a size");
    assert_eq!(stored(&world, "old").expect("an object"), b"an");
    drop(reader);
}

#[test]
fn names_change_at_once() {
    let world = world(&ALL);
    let names = |folder: &str| {
        let mut names: Vec<String> = fs::read_dir(world.path(folder))
            .expect("a folder")
            .map(|entry| entry.expect("a name").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["d", "old"]);
    world.write("new", "new");
    assert_eq!(names(""), ["d", "new", "old"]);
    fs::rename(world.path("new"), world.path("d/newer")).expect("another name");
    assert_eq!(
        (names(""), names("d")),
        (vec!["d".to_owned(), "old".into()], vec!["kept".into(), "newer".into()])
    );
    assert_eq!(stored(&world, "d/newer").expect("an object"), b"new");
    assert_eq!(stored(&world, "new"), None);
    assert_eq!(world.read("d/newer"), b"new");
    assert_eq!(errno(fs::remove_dir(world.path("d"))), Some(libc::ENOTEMPTY));
    fs::remove_file(world.path("d/newer")).expect("gone");
    assert_eq!(errno(fs::read(world.path("d/newer"))), Some(libc::ENOENT));
    fs::remove_file(world.path("d/kept")).expect("gone");
    assert!(names("d").is_empty() && world.path("d").is_dir(), "a folder outlives its last file");
    fs::remove_dir(world.path("d")).expect("gone");
    assert_eq!(names(""), ["old"]);
    fs::create_dir_all(world.path("x/y")).expect("folders");
    assert_eq!((names(""), names("x")), (vec!["old".to_owned(), "x".into()], vec!["y".into()]));
    assert_eq!(errno(fs::create_dir(world.path("x"))), Some(libc::EEXIST));
    fs::rename(world.path("x"), world.path("z")).expect("another name");
    world.write("z/y/f", "f");
    assert_eq!(stored(&world, "z/y/f").expect("an object"), b"f");
}

#[test]
fn a_file_of_more_than_five_gib_is_renamed() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "large", 6 * GIB), &ALL);
    fs::rename(world.path("large"), world.path("renamed")).expect("another name");
    assert_eq!(world.server.keys(BUCKET), ["renamed"]);
    let file = File::open(world.path("renamed")).expect("the file");
    assert_eq!(file.metadata().expect("attributes").len(), 6 * GIB);
    for offset in [0, 3 * GIB - 1, 5 * GIB + 12_345, 6 * GIB - MIB] {
        let mut piece = vec![0; MIB as usize];
        file.read_exact_at(&mut piece, offset).expect("bytes");
        s3mount_testkit::check("large", offset, &piece).expect("the bytes of the old name");
    }
    let stats = world.server.stats();
    assert_eq!(
        (stats.copy_object.requests, stats.upload_part.requests, stats.put_object.requests),
        (0, 0, 0)
    );
    assert!(stats.upload_part_copy.requests >= 24, "{stats:?}");
    check_uploads(&world);
}

#[test]
fn a_file_is_renamed_before_it_is_closed() {
    let world = world(&ALL);
    for len in [10, 20 * MIB] {
        let content = bytes("renamed", len);
        let mut file = File::create(world.path(".tmp")).expect("a file");
        file.set_len(len).expect("a size");
        file.write_all(&content).expect("a write");
        fs::rename(world.path(".tmp"), world.path("final")).expect("another name");
        drop(file);
        assert!(stored(&world, "final").expect("an object") == content);
        assert_eq!(stored(&world, ".tmp"), None);
        assert_eq!(run("ls", &[world.path("")]), "d\nfinal\nold\n");
    }
}

#[test]
fn a_child_that_inherits_a_file_publishes_nothing() {
    let world = world(&ALL);
    let script = "import os,sys,time\n\
                  f = open(sys.argv[1], 'wb', buffering=0)\n\
                  f.write(b'half')\n\
                  pid = os.fork()\n\
                  if pid == 0: os._exit(0)\n\
                  os.waitpid(pid, 0)\n\
                  print('forked', flush=True); sys.stdin.readline()\n\
                  f.write(b' and half'); f.close()\n";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]).arg(world.path("f"));
    python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = python.spawn().expect("python");
    let mut said = [0; 7];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("a line");
    assert_eq!(stored(&world, "f"), None);
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    assert_eq!(stored(&world, "f").expect("an object"), b"half and half");
}

#[test]
fn a_file_is_an_object_once_its_maker_has_closed_it_though_he_only_reads() {
    let world = world(&ALL);
    let open =
        |name: &str, flags: i32| OpenOptions::new().read(true).custom_flags(flags).open(world.path(name));
    let close = |file: File| nix::unistd::close(file).map_err(io::Error::from);
    // The standard library makes no file that is only read.
    let make = "import os,sys; os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_RDONLY))";
    run("/usr/bin/python3", &["-c".as_ref(), make.as_ref(), world.path("claim").as_os_str()]);
    assert_eq!(stored(&world, "claim").expect("an object"), b"");
    // A program may write to the file that it holds a lock on.
    let lock = world.path("lock");
    let script = "echo held > \"$1\"; cp \"$1\" \"$2\"";
    let mut flock = Command::new("flock");
    flock.arg(&lock).args(["sh", "-ec", script, "sh"]).args([&lock, &world.path("copy")]);
    run_command(&mut flock);
    assert_eq!(stored(&world, "copy").expect("an object"), b"held\n");
    assert_eq!(stored(&world, "lock").expect("an object"), b"held\n");
    // So is one that he has emptied.
    close(open("old", libc::O_TRUNC).expect("a file")).expect("stored");
    assert_eq!(stored(&world, "old").expect("an object"), b"");
}

#[test]
fn who_empties_an_empty_file_replaces_its_object() {
    let world = world(&ALL);
    world.server.put(BUCKET, "stamp", "");
    let path = world.path("stamp");
    let modified = || fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
    let before = modified();
    thread::sleep(std::time::Duration::from_millis(1100));
    drop(File::create(&path).expect("a file"));
    assert!(modified() > before, "as for make");
    // Somebody else has written to it since this mount has seen it.
    world.server.put(BUCKET, "stamp", "theirs");
    let closed = nix::unistd::close(File::create(&path).expect("a file")).map_err(io::Error::from);
    assert_eq!(errno(closed), Some(libc::ESTALE));
    assert_eq!(stored(&world, "stamp").expect("an object"), b"theirs");
}

#[test]
fn the_loser_of_a_race_is_told() {
    let world = world(&ALL);
    let close = |file: File| nix::unistd::close(file).map_err(io::Error::from);
    let mut file = OpenOptions::new().append(true).open(world.path("old")).expect("a file");
    file.write_all(b"mine").expect("a write");
    world.server.put(BUCKET, "old", "theirs");
    assert_eq!(errno(close(file)), Some(libc::ESTALE));
    assert_eq!(stored(&world, "old").expect("an object"), b"theirs");
    let mut file = File::create(world.path("fresh")).expect("a file");
    file.write_all(b"mine").expect("a write");
    world.server.put(BUCKET, "fresh", "theirs");
    assert_eq!(errno(close(file)), Some(libc::ESTALE));
    assert_eq!(stored(&world, "fresh").expect("an object"), b"theirs");
}

/// What was uploaded can't be had back from the store: without a spool, a late change of it is refused, and what
/// is lost by that is never told as written.
#[test]
fn late_changes_need_a_spool() {
    let spool = tempfile::TempDir::new().expect("a folder");
    let dir = spool.path().to_str().expect("a plain path");
    for flags in [&[][..], &["--write-spool", dir]] {
        let world = world(&[&["--allow=write", "--memory-limit", "64MiB"], flags].concat());
        let mut content = bytes("patched", 120 * MIB);
        let mut file = File::create(world.path("patched")).expect("a file");
        file.write_all(&content).expect("a write");
        let patched = file.write_all_at(b"head", 0);
        let closed = nix::unistd::close(file).map_err(io::Error::from);
        if flags.is_empty() {
            assert_eq!((errno(patched), errno(closed)), (Some(libc::EINVAL), Some(libc::EINVAL)));
            wait_for("it is given up", || !world.path("patched").exists());
            assert_eq!(stored(&world, "patched"), None);
        } else {
            patched.and(closed).expect("a write and a close");
            content[..4].copy_from_slice(b"head");
            assert!(stored(&world, "patched").expect("an object") == content);
        }
        check_uploads(&world);
        world.check_memory(64 * MIB);
    }
}

/// Each of them waits for the store by itself, not for its neighbours.
#[test]
fn many_writers_of_small_files_write_at_the_same_time() {
    let shape = Shape { first_byte: FirstByte::Fixed(500.0), ..Shape::fast() };
    let world =
        World::counting(TestS3::builder().object(BUCKET, "d/kept", "kept").shape(shape), &["--allow=write"]);
    thread::scope(|scope| {
        for index in 0..32 {
            let path = world.path(&format!("d/{index}"));
            scope.spawn(move || fs::write(path, "small").expect("a file"));
        }
    });
    let stats = world.server.stats();
    assert_eq!(stats.put_object.requests, 32);
    assert!(stats.connections >= 24, "{} connections", stats.connections);
}

#[test]
fn shells_and_tools_write() {
    let world = world(&ALL);
    let (dir, local) = (world.path(""), tempfile::TempDir::new().expect("a folder"));
    fs::write(local.path().join("big"), bytes("big", 9 * MIB)).expect("a file");
    let script = "set -e; cd \"$1\"\n\
                  echo one > sh; echo two >> sh; (echo three; /bin/echo four) >> sh\n\
                  cp \"$2/big\" big; cp big copy; mv copy moved; dd if=big of=dd bs=64k status=none\n\
                  mkdir -p a/b; touch a/b/t; tar cf t.tar a sh; mkdir out; tar xf t.tar -C out\n\
                  sed -i s/one/ONE/ sh; rm -r a\n";
    run_command(Command::new("sh").args(["-c", script, "sh"]).arg(&dir).arg(local.path()));
    let text = "one\ntwo\nthree\nfour\n";
    assert_eq!(fs::read_to_string(world.path("sh")).expect("a file"), text.replace("one", "ONE"));
    assert_eq!(stored(&world, "out/sh").expect("an object"), text.as_bytes());
    for name in ["big", "moved", "dd"] {
        assert!(stored(&world, name).expect("an object") == bytes("big", 9 * MIB), "{name}");
    }
    assert!(!world.path("a").exists() && world.path("out/a/b/t").exists());
}

#[test]
fn a_file_that_is_open_when_the_mount_ends_is_not_half_written() {
    let mut world = world(&["--allow=write"]);
    let mut file = File::create(world.path("open")).expect("a file");
    file.write_all(&bytes("open", 20 * MIB)).expect("a write");
    world.write("closed", "closed");
    world.remount(&["--allow=write"]);
    assert_eq!((stored(&world, "open"), stored(&world, "closed")), (None, Some(b"closed".to_vec())));
    check_uploads(&world);
    drop(file);
}
