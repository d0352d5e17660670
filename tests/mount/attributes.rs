//! Owner, mode and time of files, and links, as `--keep-attributes` keeps them.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use s3mount_object::ChecksumAlgorithm;
use s3mount_testkit::TestS3;

use crate::world::{BUCKET, MIB, World, check_file, run, run_command, wait_for};

const KEEP: [&str; 3] = ["--allow=delete", "--allow=overwrite", "--keep-attributes"];

/// A program of another kind writes an object with text beside it.
pub(crate) fn put(world: &World, key: &str, body: &str, metadata: &[(&str, &str)]) {
    let endpoint = world.server.endpoint();
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("http://")).expect("a connection");
    let mut request = format!("PUT /{BUCKET}/{key} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    for (name, value) in metadata {
        request += &format!("{name}: {value}\r\n");
    }
    write!(stream, "{request}Content-Length: {}\r\n\r\n{body}", body.len()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// What an object has beside its bytes.
fn kept(world: &World, key: &str) -> Vec<(String, String)> {
    let mut metadata = world.server.stored(BUCKET, key).expect("an object").beside.metadata;
    metadata.remove("s3mount-write");
    metadata.into_iter().collect()
}

fn text(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Mode, owner, group and time.
fn shown(path: &Path) -> (u32, u32, u32, i64) {
    let metadata = path.symlink_metadata().expect("attributes");
    (metadata.mode(), metadata.uid(), metadata.gid(), metadata.mtime())
}

/// The PutObjects, CopyObjects and HEADs since the last call.
fn take(world: &World) -> (u64, u64, u64) {
    let stats = world.server.stats();
    world.server.reset_stats();
    (stats.put_object.requests, stats.copy_object.requests, stats.head_object.requests)
}

#[test]
fn attributes_are_written_with_the_bytes() {
    let mut world = World::counting(TestS3::builder().bucket(BUCKET), &KEEP);
    let path = world.path("f");
    let mut file = File::create(&path).expect("a file");
    file.write_all(b"text").expect("a write");
    file.set_permissions(Permissions::from_mode(0o640)).expect("a mode");
    chown(&path, Some(12), Some(34)).expect("an owner");
    file.set_times(FileTimes::new().set_modified(time(1_000_000_007))).expect("a time");
    drop(file);
    let expected = (0o100_640, 12, 34, 1_000_000_007);
    assert_eq!(shown(&path), expected);
    let stored = [("gid", "34"), ("mode", "33184"), ("mtime", "1000000007"), ("uid", "12")];
    assert_eq!(kept(&world, "f"), text(&stored));
    assert_eq!(take(&world), (1, 0, 0), "one request has all");
    // Another mount asks once.
    world.remount(&KEEP);
    let path = world.path("f");
    assert_eq!(shown(&path), expected);
    assert_eq!(fs::read(&path).expect("a file"), b"text");
    assert_eq!(shown(&path), expected);
    assert_eq!(take(&world), (0, 0, 1));
    // Who does not ask sees what the flags say.
    world.remount(&[]);
    let (mode, ..) = shown(&world.path("f"));
    assert_eq!((mode, take(&world)), (0o100_644, (0, 0, 0)));
}

#[test]
fn attributes_of_an_object_are_changed_in_the_store() {
    let world =
        World::counting(TestS3::builder().bucket(BUCKET), &[&KEEP[..], &["--metadata-ttl", "1"]].concat());
    let others =
        [("Content-Type", "text/odd"), ("x-amz-meta-author", "me"), ("x-amz-meta-mtime", "1000000000.5")];
    put(&world, "f", "text", &others);
    put(&world, "g", "text", &[("x-amz-meta-mode", "33152"), ("x-amz-meta-author", "you")]);
    let path = world.path("f");
    assert_eq!(shown(&path).3, 1_000_000_000);
    let mut open = File::open(&path).expect("a file");
    take(&world);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("as it is");
    assert_eq!(take(&world), (0, 0, 0), "nothing has changed");
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("a mode");
    assert_eq!(take(&world), (0, 1, 1));
    assert_eq!((shown(&path).0, shown(&path).3), (0o100_400, 1_000_000_000));
    let stored = [("author", "me"), ("mode", "33024"), ("mtime", "1000000000")];
    assert_eq!(kept(&world, "f"), text(&stored));
    let object = world.server.stored(BUCKET, "f").expect("an object");
    assert_eq!(
        (object.beside.content_type.as_deref(), &object.bytes()[..]),
        (Some("text/odd"), &b"text"[..])
    );
    let mut read = String::new();
    open.read_to_string(&mut read).expect("who has it open reads on");
    assert_eq!(read, "text");
    // Others change it, and the bytes stay, and so the ETag.
    put(&world, "f", "text", &[("x-amz-meta-mode", "33188"), ("x-amz-meta-uid", "77")]);
    wait_for("the change of others", || (shown(&path).0, shown(&path).1) == (0o100_644, 77));
    // Appending keeps what is said of the file, and what others say of it.
    let mut file = File::options().append(true).open(world.path("g")).expect("a file");
    file.write_all(b" and more").expect("a write");
    drop(file);
    let said = kept(&world, "g");
    assert!(
        said.contains(&("author".into(), "you".into())) && said.contains(&("mode".into(), "33152".into()))
    );
    assert_eq!(shown(&world.path("g")).0, 0o100_600);
}

#[test]
fn tar_and_rsync_keep_attributes_and_links() {
    let world = World::counting(TestS3::builder().bucket(BUCKET), &KEEP);
    let local = tempfile::TempDir::new().expect("a folder");
    let tree = local.path().join("tree");
    fs::create_dir(&tree).expect("a folder");
    for index in 0..100u64 {
        let path = tree.join(format!("{index:03}"));
        fs::write(&path, format!("file {index}")).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600 + index as u32 % 64)).expect("a mode");
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_times(FileTimes::new().set_modified(time(1_500_000_000 + index))).expect("a time");
    }
    symlink("../tree/005", tree.join("link")).expect("a link");
    symlink("nowhere", tree.join("dangling")).expect("a link");
    // Of an old time: a link that is made in the second that its tar names needs no change.
    run(
        "touch",
        &["-hd@1500000000".as_ref(), tree.join("link").as_os_str(), tree.join("dangling").as_os_str()],
    );
    run(
        "tar",
        &[
            "cf".as_ref(),
            local.path().join("t.tar").as_os_str(),
            "-C".as_ref(),
            local.path().as_os_str(),
            "tree".as_ref(),
        ],
    );
    let same = |dir: &Path| {
        for entry in fs::read_dir(&tree).expect("a folder") {
            let entry = entry.expect("a name");
            let copy = dir.join(entry.file_name());
            if entry.file_type().expect("a type").is_symlink() {
                assert_eq!(
                    fs::read_link(&copy).expect("a link"),
                    fs::read_link(entry.path()).expect("a link")
                );
            } else {
                assert_eq!(shown(&copy), shown(&entry.path()), "{copy:?}");
                assert_eq!(fs::read(&copy).expect("a file"), fs::read(entry.path()).expect("a file"));
            }
        }
    };
    take(&world);
    run(
        "tar",
        &["xpf".as_ref(), local.path().join("t.tar").as_os_str(), "-C".as_ref(), world.path("").as_os_str()],
    );
    same(&world.path("tree"));
    // tar makes an empty file first in the place of a link that leads out of its folder, and gives a link
    // its time by its name. A HEAD follows where the answer to a PUT and the listing tell another second.
    let (puts, copies, heads) = take(&world);
    assert_eq!((puts, copies), (103, 2), "a request for each file and link, and for each link's time");
    assert!(heads <= puts, "{heads} HEADs");
    assert_eq!(fs::read(world.path("tree/link")).expect("through the link"), b"file 5");
    // rsync sets attributes after it has closed a file, and renames it then.
    let script = "set -e; rsync -a \"$1/\" \"$2/synced/\"; rsync -ai \"$1/\" \"$2/synced/\"";
    let mut sh = Command::new("sh");
    sh.args(["-c", script, "sh"]).args([tree.as_path(), &world.path("")]);
    let again: Vec<String> = run_command(&mut sh).lines().map(str::to_owned).collect();
    assert!(again.iter().all(|line| line.starts_with(".d")), "nothing is left to do: {again:?}");
    same(&world.path("synced"));
    let (puts, copies, heads) = take(&world);
    assert_eq!(puts, 102);
    // One for the name, and one for its attributes, or one for each of two calls that come far apart.
    assert!(copies <= 3 * puts && heads <= 4 * puts, "{copies} copies, {heads} HEADs");
    // Another machine sees the same, and which names are links.
    let dir = tempfile::TempDir::new().expect("a folder");
    let other = world.also(dir.path(), &["--keep-attributes"]);
    let list = "import os, sys; print(sorted(e.name for e in os.scandir(sys.argv[1]) if e.is_symlink()))";
    let path = other.path().join("tree");
    let links = run_command(Command::new("/usr/bin/python3").args(["-c", list]).arg(&path));
    assert_eq!(links, "['dangling', 'link']\n");
    same(&path);
    same(&other.path().join("synced"));
    assert_eq!(take(&world).2, 204, "a HEAD for each");
    same(&path);
    assert_eq!(take(&world), (0, 0, 0));
}

#[test]
fn attributes_of_a_large_file_are_written_once_more() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &KEEP);
    let local = tempfile::TempDir::new().expect("a folder");
    let from = local.path().join("large");
    fs::write(&from, vec![7; 20 * MIB as usize]).expect("a file");
    File::open(&from)
        .and_then(|file| file.set_times(FileTimes::new().set_modified(time(1_234_567_890))))
        .expect("a time");
    fs::set_permissions(&from, Permissions::from_mode(0o751)).expect("a mode");
    run("cp", &["-p".as_ref(), from.as_os_str(), world.path("large").as_os_str()]);
    wait_for("the attributes", || kept(&world, "large").contains(&("mtime".into(), "1234567890".into())));
    assert_eq!(shown(&world.path("large")), shown(&from));
    let stats = world.server.stats();
    assert_eq!((stats.create_multipart_upload.requests, stats.copy_object.requests), (1, 1));
    assert_eq!(world.server.stored(BUCKET, "large").expect("an object").size, 20 * MIB);
    assert!(world.server.open_uploads(BUCKET).is_empty());
    // The version has another ETag now, and is the same file.
    assert!(world.read("large") == vec![7; 20 * MIB as usize]);
    std::thread::sleep(Duration::from_millis(1500));
    fs::set_permissions(world.path("large"), Permissions::from_mode(0o700)).expect("a mode");
    assert_eq!(shown(&world.path("large")).0, 0o100_700);
    assert!(world.read("large") == vec![7; 20 * MIB as usize]);
}

#[test]
fn an_upload_of_parts_whose_attributes_change_is_another_version_and_the_same_file() {
    let server = TestS3::builder().synthetic(BUCKET, "large", 20 * MIB);
    let server = server.uploaded_in_parts(8 * MIB, ChecksumAlgorithm::Crc32c);
    let world = World::new(server, &KEEP);
    let path = world.path("large");
    let version = || world.server.stored(BUCKET, "large").expect("an object").etag;
    let inode = || path.metadata().expect("attributes").ino();
    let before = (version(), inode());
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("a mode");
    assert_eq!((shown(&path).0, inode()), (0o100_700, before.1));
    assert_ne!(version(), before.0);
    assert_eq!(check_file(&path, "large"), 20 * MIB);
    // Pages of a listing show the former version. They must not make the kernel drop the name.
    for mode in 0o701..0o707 {
        assert_eq!(fs::read_dir(world.path("")).expect("the root").count(), 1);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        sleep(Duration::from_millis(50));
        assert_eq!((shown(&path).0, inode()), (0o100_000 | mode, before.1));
    }
}

#[test]
fn links_of_s3fs_are_links_and_git_uses_them() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &KEEP);
    put(&world, "d/s3fs", "f", &[("x-amz-meta-mode", "41471"), ("x-amz-meta-uid", "0")]);
    assert_eq!(fs::read_link(world.path("d/s3fs")).expect("a link"), Path::new("f"));
    assert_eq!(fs::read(world.path("d/s3fs")).expect("through the link"), b"text");
    symlink("s3fs", world.path("d/ours")).expect("a link");
    assert_eq!(fs::read(world.path("d/ours")).expect("through two links"), b"text");
    assert!(kept(&world, "d/ours").contains(&("mode".into(), "41471".into())));
    fs::rename(world.path("d/ours"), world.path("moved")).expect("another name");
    assert_eq!(fs::read_link(world.path("moved")).expect("a link"), Path::new("s3fs"));
    fs::remove_file(world.path("moved")).expect("gone");
    assert_eq!(fs::read(world.path("d/f")).expect("what it pointed to"), b"text");
    let script = "set -e; cd \"$1\"; export HOME=\"$1\" GIT_CONFIG_NOSYSTEM=1; git init -q repo; cd repo\n\
                  echo one > one; ln -s one two; chmod +x one; git add .\n\
                  git -c user.name=a -c user.email=a@b commit -qm first; git status --porcelain\n\
                  cd ..; git clone -q repo clone; cd clone; readlink two; test -x one; git status --porcelain\n";
    assert_eq!(run_command(Command::new("sh").args(["-c", script, "sh"]).arg(world.path(""))), "one\n");
}

#[test]
fn without_the_flag_links_are_refused_and_the_log_names_it() {
    let world = World::new(TestS3::builder().bucket(BUCKET), &["--allow=write"]);
    let error = symlink("a", world.path("b")).expect_err("no link");
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    wait_for("the log", || world.mount.stderr().contains("--keep-attributes"));
}

#[test]
fn empty_folders_are_seen_elsewhere_by_their_markers() {
    let flags = [&KEEP[..2], &["--folder-markers"]].concat();
    let world = World::new(TestS3::builder().bucket(BUCKET), &flags);
    fs::create_dir_all(world.path("a/b")).expect("folders");
    assert_eq!(world.server.keys(BUCKET), ["a/", "a/b/"]);
    let marker = world.server.stored(BUCKET, "a/b/").expect("an object");
    assert_eq!((marker.size, marker.beside.content_type.as_deref()), (0, Some("application/x-directory")));
    let dir = tempfile::TempDir::new().expect("a folder");
    let other = world.also(dir.path(), &[]);
    assert!(other.path().join("a/b").is_dir());
    assert_eq!(fs::read_dir(other.path().join("a/b")).expect("a folder").count(), 0);
    world.write("a/b/f", "text");
    assert!(fs::remove_dir(world.path("a/b")).is_err());
    fs::remove_file(world.path("a/b/f")).expect("gone");
    assert_eq!(world.server.keys(BUCKET), ["a/", "a/b/"]);
    fs::remove_dir(world.path("a/b")).expect("gone");
    assert_eq!(world.server.keys(BUCKET), ["a/"]);
    fs::remove_dir(world.path("a")).expect("gone");
    assert!(world.server.keys(BUCKET).is_empty() && !world.path("a").exists());
}
