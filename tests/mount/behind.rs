//! `--write-behind`: files that are closed before the store has them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, content, run_with_timeout};
use tempfile::TempDir;

use crate::world::{BUCKET, World, run, s3mount, said, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

/// A mount that keeps what is closed in a folder, and that folder.
struct Behind {
    world: World,
    outbox: TempDir,
}

impl Behind {
    fn new(flags: &[&str]) -> Self {
        let outbox = TempDir::new().expect("a folder");
        let world = World::counting(TestS3::builder(), &[&Self::flags(&outbox), flags].concat());
        Self { world, outbox }
    }

    fn flags(outbox: &TempDir) -> [&str; 3] {
        ["--allow=all", "--write-behind", outbox.path().to_str().expect("a path")]
    }

    /// The store takes no uploads until [`thaw`](Self::thaw).
    fn freeze(&self) {
        self.world.server.fault(Fault::new(FaultKind::Freeze).on(Operation::PutObject));
    }

    fn thaw(&self) {
        self.world.server.clear_faults();
        self.world.server.thaw();
    }

    fn stored(&self, key: &str) -> Option<Vec<u8>> {
        self.world.server.stored(BUCKET, key).map(|stored| stored.bytes())
    }

    fn waiting(&self) -> u64 {
        self.world.gauge("outbox_files")
    }

    fn flush(&self) -> Output {
        command(&["flush", self.world.mount.path().to_str().expect("a path")])
    }

    fn list(&self) -> String {
        let listed = command(&["pending", "list", self.outbox.path().to_str().expect("a path")]);
        assert!(listed.status.success(), "{}", said(&listed));
        String::from_utf8(listed.stdout).expect("text")
    }
}

fn command(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    run_with_timeout(command.args(args), LIMIT).expect("it ends")
}

fn bytes(number: usize) -> Vec<u8> {
    content(&format!("behind {number}"), 0, number * 997 % 50_000)
}

#[test]
fn a_close_does_not_wait_for_the_store() {
    let behind = Behind::new(&[]);
    behind.freeze();
    fs::create_dir(behind.world.path("d")).expect("a folder");
    for number in 0..50 {
        behind.world.write(&format!("d/f{number:02}"), bytes(number));
    }
    let synced = File::create(behind.world.path("synced")).expect("a file");
    std::io::Write::write_all(&mut &synced, b"on the disk").expect("a write");
    synced.sync_all().expect("fsync waits for the disk alone");
    assert_eq!((behind.waiting(), behind.stored("d/f07")), (51, None));
    // Programs see the files as any others.
    let names = run("ls", &[behind.world.path("d")]);
    assert_eq!(names.lines().count(), 50);
    for number in 0..50 {
        assert_eq!(behind.world.read(&format!("d/f{number:02}")), bytes(number), "{number}");
    }
    assert_eq!(behind.world.server.stats().get_object.requests, 0);
    assert_eq!(behind.list().lines().count(), 51);
    behind.thaw();
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    assert_eq!((behind.waiting(), behind.list().as_str()), (0, ""));
    for number in 0..50 {
        assert_eq!(behind.stored(&format!("d/f{number:02}")), Some(bytes(number)), "{number}");
    }
    assert_eq!(behind.stored("synced").as_deref(), Some(&b"on the disk"[..]));
    assert_eq!(behind.world.server.stats().put_object.requests, 51, "one request for each file");
}

#[test]
fn what_waits_is_renamed_changed_and_removed_before_it_is_uploaded() {
    let behind = Behind::new(&[]);
    let world = &behind.world;
    world.server.put(BUCKET, "replaced", "old");
    world.server.put(BUCKET, "kept", "old and ");
    behind.freeze();
    for name in ["renamed", "removed", "appended", "emptied", "over", "d.tmp/a", "d.tmp/b"] {
        fs::create_dir_all(world.path(name).parent().expect("a folder")).expect("a folder");
        world.write(name, name);
    }
    fs::rename(world.path("renamed"), world.path("new")).expect("a rename");
    fs::rename(world.path("over"), world.path("replaced")).expect("a rename over an object");
    fs::rename(world.path("d.tmp"), world.path("d")).expect("a rename of a folder");
    fs::remove_file(world.path("removed")).expect("a removal");
    for name in ["appended", "kept"] {
        let mut file = OpenOptions::new().append(true).open(world.path(name)).expect("a file");
        std::io::Write::write_all(&mut file, b" more").expect("an append");
    }
    world.write("emptied", "");
    assert_eq!(world.read("appended"), b"appended more");
    behind.thaw();
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    let expected = [
        ("appended", "appended more"),
        ("d/a", "d.tmp/a"),
        ("d/b", "d.tmp/b"),
        ("emptied", ""),
        ("kept", "old and  more"),
        ("new", "renamed"),
        ("replaced", "over"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(world.stored_below(""), expected.into());
}

#[test]
fn what_a_killed_daemon_has_left_is_uploaded_by_the_next() {
    let mut behind = Behind::new(&[]);
    behind.freeze();
    for number in 0..30 {
        behind.world.write(&format!("f{number:02}"), bytes(number));
    }
    fs::create_dir(behind.world.path("d")).expect("a folder");
    fs::rename(behind.world.path("f00"), behind.world.path("d/renamed")).expect("a rename");
    fs::remove_file(behind.world.path("f01")).expect("a removal");
    // Some uploads are under way, and the store carries them out after the daemon is dead.
    wait_for("uploads", || behind.world.server.stats().put_object.requests >= 5);
    behind.world.crash();
    behind.thaw();
    let flags = Behind::flags(&behind.outbox);
    behind.world.remount(&flags);
    let names = run("find", &[behind.world.mount.path(), Path::new("-type"), Path::new("f")]);
    assert_eq!(names.lines().count(), 29, "{names}");
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    for number in 2..30 {
        assert_eq!(behind.stored(&format!("f{number:02}")), Some(bytes(number)), "{number}");
    }
    assert_eq!(behind.stored("d/renamed"), Some(bytes(0)));
    assert_eq!((behind.stored("f01"), behind.list().as_str()), (None, ""));
}

/// A daemon is killed while the store removes a file, or has another one take its place, and while a newer state of that
/// file waits. The next mount shows what the store has made of it, from its beginning on.
#[test]
fn what_was_being_removed_does_not_come_back_and_vanish() {
    let mut behind = Behind::new(&[]);
    for name in ["a/removed", "b/replaced", "c/kept", "b/source"] {
        behind.world.server.put(BUCKET, name, name);
    }
    let server = &behind.world.server;
    let keys = [
        ("c/kept", FaultKind::Reset),
        ("a/removed", FaultKind::LostAnswer),
        ("b/source", FaultKind::LostAnswer),
    ];
    for (key, kind) in keys {
        server.fault(Fault { key_contains: key.to_owned(), ..Fault::new(kind).on(Operation::DeleteObject) });
    }
    // The removals come before the uploads begin.
    for name in ["a/removed", "b/replaced", "c/kept"] {
        let mut file = OpenOptions::new().append(true).open(behind.world.path(name)).expect("a file");
        std::io::Write::write_all(&mut file, b" and more").expect("an append");
    }
    let path = |name: &str| behind.world.path(name);
    let (removed, kept, renamed) =
        (path("a/removed"), path("c/kept"), (path("b/source"), path("b/replaced")));
    let calls = [
        std::thread::spawn(move || fs::remove_file(removed)),
        std::thread::spawn(move || fs::remove_file(kept)),
        std::thread::spawn(move || fs::rename(renamed.0, renamed.1)),
    ];
    wait_for("the store", || behind.stored("a/removed").is_none() && behind.stored("b/source").is_none());
    behind.world.crash();
    for call in calls {
        call.join().expect("a thread").expect_err("no answer");
    }
    behind.world.server.fault(Fault::new(FaultKind::Stall(1500)).on(Operation::CreateMultipartUpload));
    let flags = Behind::flags(&behind.outbox);
    behind.world.remount(&flags);
    let names = run("find", &[behind.world.mount.path(), Path::new("-type"), Path::new("f")]);
    assert_eq!((names.lines().count(), behind.waiting()), (2, 1), "{names}");
    assert_eq!(behind.world.read("b/replaced"), b"b/source");
    for name in ["c/kept", "b/replaced"] {
        let mut file = OpenOptions::new().append(true).open(behind.world.path(name)).expect("a file");
        std::io::Write::write_all(&mut file, b", and again").expect("an append");
    }
    behind.thaw();
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    let expected = [("b/replaced", "b/source, and again"), ("c/kept", "c/kept and more, and again")];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(behind.world.stored_below(""), expected.into());
}

/// The first daemon dies when the store has the file, but before it hears so. The second one dies when the file has a newer
/// state, which the store does not have.
#[test]
fn what_an_earlier_daemon_has_uploaded_is_no_conflict_two_daemons_later() {
    let mut behind = Behind::new(&[]);
    behind.world.server.fault(Fault::new(FaultKind::LostAnswer).on(Operation::PutObject));
    behind.world.write("f", "one");
    wait_for("the object", || behind.stored("f").is_some());
    behind.world.crash();
    behind.thaw();
    for operation in [Operation::PutObject, Operation::CreateMultipartUpload] {
        behind.world.server.fault(Fault::new(FaultKind::Reset).on(operation));
    }
    let flags = Behind::flags(&behind.outbox);
    behind.world.remount(&[&flags[..], &["--read-timeout", "2"]].concat());
    let mut file = OpenOptions::new().append(true).open(behind.world.path("f")).expect("a file");
    std::io::Write::write_all(&mut file, b", two").expect("an append");
    drop(file);
    behind.world.crash();
    behind.thaw();
    behind.world.remount(&flags);
    assert_eq!(behind.world.read("f"), b"one, two");
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    assert_eq!(behind.stored("f").as_deref(), Some(&b"one, two"[..]));
}

#[test]
fn a_folder_belongs_to_one_mount_and_one_source() {
    let behind = Behind::new(&[]);
    let dir = behind.world.folder().join("other");
    fs::create_dir(&dir).expect("a folder");
    let mount = |source: &str| {
        let flags = [&["--foreground"], &Behind::flags(&behind.outbox)[..]].concat();
        let mut command = s3mount(&behind.world.server.endpoint(), source, &dir, &flags);
        said(&run_with_timeout(&mut command, LIMIT).expect("it ends"))
    };
    let text = mount(BUCKET);
    assert!(text.contains("is another mount's; name a folder for this one alone"), "{text}");
    behind.freeze();
    behind.world.write("f", "bytes");
    behind.world.crash();
    behind.thaw();
    let text = mount("data/prefix");
    assert!(text.contains("1 files wait for s3://data/ at "), "{text}");
    let inside = dir.join("inside").display().to_string();
    let flags = ["--foreground", "--allow=write", "--write-behind", &inside];
    let mut command = s3mount(&behind.world.server.endpoint(), BUCKET, &dir, &flags);
    let text = said(&run_with_timeout(&mut command, LIMIT).expect("it ends"));
    assert!(text.contains("is not a folder"), "{text}");
}

#[test]
fn what_the_store_refuses_stays_until_somebody_decides() {
    let behind = Behind::new(&[]);
    let (world, dir) = (&behind.world, behind.outbox.path().to_str().expect("a path"));
    let mount = world.mount.path().to_str().expect("a path");
    for name in ["a", "b"] {
        // A program looks the name up, and then somebody else makes the object.
        let file = File::create_new(world.path(name)).expect("a file");
        world.server.put(BUCKET, name, "theirs");
        std::io::Write::write_all(&mut &file, b"mine").expect("a write");
        nix::unistd::close(file).expect("it is on the disk");
    }
    let flushed = behind.flush();
    assert!(!flushed.status.success(), "{}", said(&flushed));
    assert!(said(&flushed).contains("the store has refused 2 files"), "{}", said(&flushed));
    assert_eq!(world.gauge("outbox_failed_files"), 2);
    let listed = behind.list();
    assert!(listed.lines().all(|line| line.contains("refused: ")), "{listed}");
    let number = |key: &str| {
        let line = listed.lines().find(|line| line.contains(&format!("  {key}  "))).expect("a line");
        line.split_whitespace().next().expect("a number").to_owned()
    };
    assert_eq!(behind.stored("a").as_deref(), Some(&b"theirs"[..]));
    // Whoever writes the name next is told once.
    wait_for("their version", || fs::read(world.path("a")).is_ok_and(|bytes| bytes == b"theirs"));
    let open = || OpenOptions::new().append(true).open(world.path("a")).map(drop);
    assert_eq!(open().map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    open().expect("it is told once");
    let saved = world.folder().join("saved");
    let output = command(&["pending", "save", dir, &number("a"), saved.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(&saved).expect("a file"), b"mine");
    let output = command(&["pending", "drop", mount, &number("a")]);
    assert!(output.status.success(), "{}", said(&output));
    world.server.delete(BUCKET, "b");
    let output = command(&["pending", "retry", mount, &number("b")]);
    assert!(output.status.success(), "{}", said(&output));
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    assert_eq!(behind.stored("b").as_deref(), Some(&b"mine"[..]));
    assert_eq!(behind.list(), "");
    // Nobody has to be told of what somebody has decided.
    OpenOptions::new().append(true).open(world.path("b")).expect("nothing has failed in the end");
}

/// A daemon is killed after a file was renamed and another one has got its name.
#[test]
fn the_next_file_of_a_name_shows_after_a_kill() {
    let mut behind = Behind::new(&[]);
    behind.world.write("x", "first");
    assert!(behind.flush().status.success());
    behind.freeze();
    behind.world.write("x", "second");
    fs::rename(behind.world.path("x"), behind.world.path("z")).expect("a rename");
    behind.world.write("x", "third");
    behind.world.crash();
    let flags = Behind::flags(&behind.outbox);
    behind.world.remount(&flags);
    let shown = |name: &str| fs::read_to_string(behind.world.path(name)).expect("a file");
    assert_eq!((shown("z"), shown("x")), ("second".to_owned(), "third".to_owned()));
    behind.thaw();
    wait_for("the uploads", || behind.stored("x").as_deref() == Some(b"third"));
    assert_eq!((shown("z"), shown("x")), ("second".to_owned(), "third".to_owned()));
    assert!(behind.flush().status.success());
    behind.world.write("x", "fourth");
    assert!(behind.flush().status.success(), "it replaces what its writer has seen");
    assert_eq!(behind.stored("x").as_deref(), Some(&b"fourth"[..]));
}

#[test]
fn a_refused_file_does_not_take_its_name_from_a_newer_one() {
    let behind = Behind::new(&[]);
    let world = &behind.world;
    let mount = world.mount.path().to_str().expect("a path");
    let file = File::create_new(world.path("a")).expect("a file");
    world.server.put(BUCKET, "a", "theirs");
    std::io::Write::write_all(&mut &file, b"mine").expect("a write");
    nix::unistd::close(file).expect("it is on the disk");
    assert!(!behind.flush().status.success(), "it is refused");
    let listed = behind.list();
    let number = listed.split_whitespace().next().expect("a number");
    wait_for("their version", || fs::read(world.path("a")).is_ok_and(|bytes| bytes == b"theirs"));
    assert!(fs::write(world.path("a"), "newer").is_err(), "it is told once");
    behind.freeze();
    world.write("a", "newer");
    for which in [number, "--all"] {
        let output = command(&["pending", "retry", mount, which]);
        assert!(said(&output).contains("have one name (a)"), "{}", said(&output));
    }
    let told = fs::write(world.path(".s3mount/pending"), format!("retry {number}"));
    assert_eq!(told.map_err(|error| error.raw_os_error()), Err(Some(libc::EEXIST)));
    behind.thaw();
    assert!(!behind.flush().status.success(), "the refused one waits on");
    assert_eq!(behind.stored("a").as_deref(), Some(&b"newer"[..]));
    assert_eq!(behind.list(), listed);
}

/// Changes the first byte of a text that waits.
fn damage(outbox: &Path, text: &str) {
    for file in outbox.read_dir().expect("a folder") {
        let path = file.expect("a file").path();
        let bytes = fs::read(&path).expect("a file");
        if let Some(at) = bytes.windows(text.len()).position(|place| place == text.as_bytes()) {
            let file = OpenOptions::new().write(true).open(&path).expect("a file");
            file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("a write");
            return;
        }
    }
    panic!("{text} does not wait");
}

#[test]
fn damage_of_the_disk_is_told_and_costs_one_file() {
    let mut behind = Behind::new(&[]);
    behind.freeze();
    for name in ["before", "damaged", "behind"] {
        behind.world.write(name, name);
    }
    behind.world.crash();
    behind.thaw();
    damage(behind.outbox.path(), "\"key\":\"damaged\"");
    let dir = behind.outbox.path().to_str().expect("a path").to_owned();
    let list = || {
        let listed = command(&["pending", "list", &dir]);
        assert_eq!(listed.status.code(), Some(1), "{}", said(&listed));
        said(&listed)
    };
    let listed = list();
    assert!(listed.contains(".outbox is damaged"), "{listed}");
    let flags = Behind::flags(&behind.outbox);
    behind.world.remount(&flags);
    assert!(behind.world.mount.stderr().contains("the disk of the outbox is damaged"));
    assert!(!behind.flush().status.success(), "a file waits for a decision");
    let stored = |key: &str| behind.stored(key).map(|bytes| String::from_utf8(bytes).expect("text"));
    assert_eq!(["before", "damaged", "behind"].map(stored), [None, None, Some("behind".to_owned())]);
    let open = || OpenOptions::new().create(true).append(true).open(behind.world.path("before")).map(drop);
    assert_eq!(open().map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    let mount = behind.world.mount.path().to_str().expect("a path");
    let output = command(&["pending", "retry", "--all", mount]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(behind.flush().status.success());
    assert_eq!(behind.stored("before").as_deref(), Some(&b"before"[..]));
    let output = command(&["umount", mount]);
    assert!(output.status.success(), "{}", said(&output));
    let listed = list();
    assert!(listed.contains(".damaged was damaged and is kept"), "{listed}");
}

#[test]
fn a_store_that_is_down_is_waited_for() {
    let behind = Behind::new(&["--read-timeout", "5"]);
    behind.world.write("before", "before");
    behind.world.server.fault(Fault::new(FaultKind::Reset).on(Operation::PutObject));
    for number in 0..5 {
        behind.world.write(&format!("f{number}"), bytes(number));
    }
    // Uploads are given up, and begun anew.
    wait_for("failed uploads", || {
        behind.world.mount.stderr().contains("files can't be uploaded now, and wait on")
    });
    for number in 0..5 {
        assert_eq!(behind.world.read(&format!("f{number}")), bytes(number), "{number}");
    }
    behind.thaw();
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    for number in 0..5 {
        assert_eq!(behind.stored(&format!("f{number}")), Some(bytes(number)), "{number}");
    }
    assert!(behind.world.mount.stderr().contains("files are uploaded again"));
}

#[test]
fn umount_and_flush_wait_for_the_uploads() {
    let behind = Behind::new(&[]);
    for number in 0..200 {
        behind.world.write(&format!("f{number:03}"), bytes(number));
    }
    let output = command(&["umount", behind.world.mount.path().to_str().expect("a path")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(behind.world.server.keys(BUCKET).len(), 200, "{}", said(&output));
}

#[test]
fn a_full_folder_has_closes_wait() {
    let flags = ["--write-part-size", "5MiB", "--max-write-behind-size", "40MiB"];
    let behind = Behind::new(&flags);
    let long = content("long", 0, 4 << 20);
    for number in 0..20 {
        behind.world.write(&format!("f{number:02}"), &long);
        assert!(behind.world.gauge("outbox_disk_bytes") <= 40 << 20);
    }
    let flushed = behind.flush();
    assert!(flushed.status.success(), "{}", said(&flushed));
    for number in 0..20 {
        assert!(behind.stored(&format!("f{number:02}")).is_some_and(|bytes| bytes == long), "{number}");
    }
}
