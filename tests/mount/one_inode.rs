//! Programs that notice when a file gets another inode, side by side with a local folder.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, World, run_command};

const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

/// What each program prints in a folder: it makes its own files there.
const PROGRAMS: [(&str, &str); 7] = [
    (
        "files keep their numbers, whoever had the name before",
        "
import os
changed = 0
for turn in range(600):
    file = os.open('f', os.O_WRONLY | os.O_CREAT)
    os.write(file, b'%d' % turn)
    number = os.fstat(file).st_ino
    os.close(file)
    changed += number != os.lstat('f').st_ino
    if turn % 3 == 0:
        os.rename('f', 'g')
        changed += number != os.lstat('g').st_ino
    else:
        os.unlink('f')
print(changed)
",
    ),
    (
        "locks of a reader and of a later writer exclude each other",
        "
import fcntl
open('data.h5', 'wb').write(b'x' * 100)
for lock in (fcntl.flock, fcntl.lockf):
    reader = open('data.h5', 'rb')
    lock(reader, fcntl.LOCK_SH)
    import subprocess, sys
    print(subprocess.run([sys.executable, '-c', '''
import fcntl, sys
writer = open('data.h5', 'r+b')
try:
    getattr(fcntl, sys.argv[1])(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('got in')
except OSError as error:
    print('refused', error.errno)
''', lock.__name__], capture_output=True, text=True).stdout)
    reader.close()
",
    ),
    (
        "a connection of sqlite that only reads sees what another process commits",
        "
import sqlite3, subprocess, sys
db = sqlite3.connect('base.db')
db.execute('create table rows (n)')
db.commit()
db.close()
reader = sqlite3.connect('file:base.db?mode=ro', uri=True)
for count in range(5):
    print(reader.execute('select count(*) from rows').fetchone())
    subprocess.run([sys.executable, '-c', '''
import sqlite3
db = sqlite3.connect('base.db')
db.executemany('insert into rows values (?)', [(n,) for n in range(200)])
db.commit()
db.close()
'''], check=True)
print(reader.execute('select count(*), sum(n) from rows').fetchone())
",
    ),
    (
        "an editor that compares inodes saves",
        "
open('text', 'w').write('before')
before = os.stat('text')
reader = open('text').read()
with open('text', 'w') as file:
    now = os.fstat(file.fileno())
    print((before.st_ino, before.st_dev) == (now.st_ino, now.st_dev))
    file.write('after')
print(os.stat('text').st_ino == before.st_ino, open('text').read())
",
    ),
    (
        "a map that is read shows what is appended and changed",
        "
import mmap
open('map', 'wb').write(b'a' * 5000)
reader = open('map', 'rb')
view = mmap.mmap(reader.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
print(view[:4], view[4990:])
with open('map', 'r+b') as writer:
    writer.seek(4096)
    writer.write(b'bcd')
    writer.flush()
    print(view[4095:4100])
print(view[4095:4100], reader.read()[4095:4100])
",
    ),
    (
        "a reader sees a file that is cut and made longer",
        "
open('cut', 'wb').write(b'0123456789')
reader = open('cut', 'rb', buffering=0)
print(reader.read(4))
os.truncate('cut', 6)
print(os.fstat(reader.fileno()).st_size, reader.read(10), reader.read(10))
with open('cut', 'ab') as writer:
    writer.write(b'more')
print(os.fstat(reader.fileno()).st_size, reader.read(10))
",
    ),
    (
        "tail follows a log that is opened for each line",
        "
import subprocess, time
open('log', 'w').write('line 0\\n')
tail = subprocess.Popen(['tail', '-n', '+1', '-s', '0.05', '-f', 'log'], stdout=subprocess.PIPE, text=True)
for line in range(1, 30):
    with open('log', 'a') as log:
        log.write(f'line {line}\\n')
    time.sleep(0.02)
print(''.join(tail.stdout.readline() for _ in range(30)))
tail.kill()
",
    ),
];

fn run_in(dir: &Path, program: &str) -> String {
    run_command(Command::new("python3").args(["-c", &format!("import os\n{program}")]).current_dir(dir))
}

#[test]
fn programs_see_what_they_see_in_a_local_folder() {
    let world = World::new(TestS3::builder(), &ALL);
    let local = world.folder().join("local");
    fs::create_dir(&local).expect("a folder");
    for (what, program) in PROGRAMS {
        assert_eq!(run_in(world.mount.path(), program), run_in(&local, program), "{what}");
    }
}

/// A reader asks for the end of a log again and again while another program appends to it.
#[test]
fn who_reads_the_end_of_a_growing_log_sees_no_byte_that_nobody_wrote() {
    const LINES: usize = 3000;
    let world = World::new(TestS3::builder().object(BUCKET, "log", "line 00000\n"), &ALL);
    let path = world.path("log");
    let reader = File::open(&path).expect("a file");
    let mut first = [0; 11];
    reader.read_exact_at(&mut first, 0).expect("a line");
    let line = |index: usize| format!("line {index:05}\n");
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).open(&path).expect("a file");
            for index in 1..LINES {
                if index % 1000 == 0 {
                    log = OpenOptions::new().append(true).open(&path).expect("a file");
                }
                log.write_all(line(index).as_bytes()).expect("a line");
            }
        });
        let (mut at, mut seen) = (0, Vec::new());
        while seen.len() < LINES * 11 {
            let is_over = writer.is_finished();
            let mut piece = [0; 7];
            let len = reader.read_at(&mut piece, at).expect("bytes");
            assert!(len > 0 || !is_over, "the end is not seen after {} bytes", seen.len());
            assert!(!piece[..len].contains(&0), "zeros at {at}");
            seen.extend_from_slice(&piece[..len]);
            at += len as u64;
        }
        assert!(seen == (0..LINES).map(line).collect::<String>().into_bytes());
    });
    drop(reader);
    assert_eq!(fs::metadata(&path).expect("a file").len(), LINES as u64 * 11);
}

#[test]
fn who_saves_over_a_checkpoint_leaves_it_to_who_evaluates_it() {
    let world = World::new(TestS3::builder().object(BUCKET, "last.pt", "first"), &ALL);
    let path = world.path("last.pt");
    let mut evaluator = File::open(&path).expect("a file");
    let before = evaluator.metadata().expect("a file").ino();
    // What nobody has read is in no memory, and the store does not have it any more.
    let mut first = [0];
    evaluator.read_exact(&mut first).expect("it is read");
    fs::write(&path, "second, which is longer").expect("a checkpoint");
    let mut rest = String::new();
    evaluator.read_to_string(&mut rest).expect("it is read");
    assert_eq!((first, &*rest), (*b"f", "irst"));
    assert_ne!(fs::metadata(&path).expect("a file").ino(), before);
    assert_eq!(fs::read_to_string(&path).expect("a file"), "second, which is longer");
}

#[test]
fn what_is_open_and_has_lost_its_name_has_no_link() {
    let world =
        World::new(TestS3::builder().object(BUCKET, "deleted", "x").object(BUCKET, "replaced", "x"), &ALL);
    fs::create_dir(world.path("folder")).expect("a folder");
    fs::write(world.path("new"), "new").expect("the file new");
    let open = |name: &str| File::open(world.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let links = |file: &File| file.metadata().expect("attributes").nlink();
    let (deleted, replaced, folder) = (open("deleted"), open("replaced"), open("folder"));
    assert_eq!((links(&deleted), links(&replaced), links(&folder)), (1, 1, 2));
    fs::remove_file(world.path("deleted")).expect("it is deleted");
    fs::rename(world.path("new"), world.path("replaced")).expect("its name is given to another");
    fs::remove_dir(world.path("folder")).expect("it is removed");
    assert_eq!((links(&deleted), links(&replaced), links(&folder)), (0, 0, 0));
    assert_eq!(world.path("replaced").metadata().expect("attributes").nlink(), 1);
}

#[test]
fn an_empty_file_is_an_object_when_its_close_returns() {
    let world = World::new(TestS3::builder(), &ALL);
    let size = |key: &str| world.server.stored(BUCKET, key).map(|stored| stored.bytes().len());
    for round in 0..20 {
        let key = format!("_SUCCESS{round}");
        run_command(Command::new("touch").arg(world.path(&key)));
        assert_eq!(size(&key), Some(0), "{key}");
    }
    // So is one whose last descriptor is not the one that has made or emptied it.
    for (round, may_write) in [false, true, false, true].into_iter().enumerate() {
        let key = format!("claim{round}");
        if round > 1 {
            fs::write(world.path(&key), "text").expect("a file to be emptied");
        }
        let maker = File::create(world.path(&key)).expect("made, or emptied");
        let other = OpenOptions::new().read(true).write(may_write).open(world.path(&key)).expect("there");
        drop(maker);
        drop(other);
        assert_eq!(size(&key), Some(0), "{key}");
    }
    // A file of another mount is another file, whatever its number is.
    let other = World::new(TestS3::builder(), &ALL);
    let held = File::create(other.path("claim")).expect("a file");
    let apart = World::new(TestS3::builder(), &ALL);
    let maker = File::create(apart.path("claim")).expect("a file");
    let ino = |file: &File| file.metadata().expect("metadata").ino();
    assert_eq!(ino(&maker), ino(&held));
    drop(maker);
    assert!(apart.server.stored(BUCKET, "claim").is_some());
    // A redirection is an object once the program has ended, and not before.
    world.server.reset_stats();
    run_command(Command::new("sh").args(["-c", "echo text > f"]).current_dir(world.mount.path()));
    assert_eq!((size("f"), world.server.stats().put_object.requests), (Some(5), 1));
}
