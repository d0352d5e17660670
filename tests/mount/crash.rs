//! The daemon is killed while programs write. What `close` has promised is in the bucket, and no object is torn.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use s3mount_testkit::{FirstByte, Sequence, Shape, TestS3, content, mix};

use crate::world::{BUCKET, World, wait_for};

const FLAGS: [&str; 6] =
    ["--allow=overwrite", "--allow=delete", "--write-part-size", "5MiB", "--memory-limit", "128MiB"];

/// What is known of a key: the version that a `close` promised last, and those that were being written since
/// when the daemon was killed. The store may still carry out a request after the one who sent it is gone.
#[derive(Clone, Debug, Default)]
struct Known {
    promised: Option<u64>,
    tried: Vec<u64>,
}

/// The length of each version and its bytes follow from its number: some are of one part, and some of several.
fn bytes(key: &str, version: u64) -> Vec<u8> {
    let random = mix(version ^ key.len() as u64);
    let len = if random.is_multiple_of(3) { (6 << 20) + random % (9 << 20) } else { random % 300_000 };
    content(&format!("{key} {version}"), 0, len as usize)
}

fn write(world: &World, key: &str, version: u64) -> io::Result<()> {
    let bytes = bytes(key, version);
    // Every other file is written under another name, and renamed before or after it is closed.
    let temporary = if version.is_multiple_of(2) { key.to_owned() } else { format!("{key}.tmp") };
    let mut file = File::create(world.path(&temporary))?;
    for piece in bytes.chunks(700_000) {
        file.write_all(piece)?;
    }
    let renames_early = version % 4 == 1;
    let rename = || match temporary == key {
        true => Ok(()),
        false => std::fs::rename(world.path(&temporary), world.path(key)),
    };
    if renames_early {
        rename()?;
    }
    nix::unistd::close(file).map_err(io::Error::from)?;
    if renames_early { Ok(()) } else { rename() }
}

/// One life of a daemon: writers write until it is killed.
fn live(world: &World, known: &Mutex<BTreeMap<String, Known>>, life: u64, delay: Duration) {
    thread::scope(|scope| {
        for writer in 0..3_u64 {
            scope.spawn(move || {
                for number in 0.. {
                    let key = format!("w{writer}-{}", mix(life + number * 7) % 5);
                    let version = life * 10_000 + number * 3 + writer;
                    let note = |change: &dyn Fn(&mut Known)| {
                        change(known.lock().expect("a lock").entry(key.clone()).or_default());
                    };
                    note(&|known| known.tried.push(version));
                    if write(world, &key, version).is_err() {
                        return;
                    }
                    note(&|known| *known = Known { promised: Some(version), tried: Vec::new() });
                }
            });
        }
        thread::sleep(delay);
        world.crash();
    });
}

/// Compares each key with what was promised, and with what was tried since.
fn check(world: &World, known: &mut BTreeMap<String, Known>) {
    for (key, known) in known {
        let versions = || known.promised.into_iter().chain(known.tried.iter().copied());
        let is = |version: &u64, stored: &[u8]| bytes(key, *version) == stored;
        let stored = world.server.stored(BUCKET, key).map(|stored| stored.bytes());
        let found = stored.as_ref().and_then(|stored| versions().find(|version| is(version, stored)));
        assert!(
            found.is_some() || (stored.is_none() && known.promised.is_none()),
            "{key} is {:?} bytes: {known:?}",
            stored.map(|bytes| bytes.len())
        );
        // What a rename leaves behind is whole, too.
        let temporary = format!("{key}.tmp");
        if let Some(stored) = world.server.stored(BUCKET, &temporary) {
            assert!(versions().any(|version| is(&version, &stored.bytes())), "{temporary}: {known:?}");
            world.server.delete(BUCKET, &temporary);
        }
        known.promised = found;
    }
}

/// Makes, renames, removes and reads files of one folder until the daemon is gone.
const BUSY: &str = "
import os, random, sys
d = sys.argv[1]
while True:
    try:
        one, other = (f'{d}/f{random.randrange(6)}' for _ in range(2))
        match random.randrange(4):
            case 0: open(one, 'wb').write(b'x' * random.randrange(1000))
            case 1: os.unlink(one)
            case 2: os.rename(one, other)
            case 3: open(one, 'rb').read(); os.listdir(d)
    except OSError as error:
        if error.errno in (103, 107): sys.exit()
";

/// A thread of the daemon that waits in the kernel for a folder can't be killed, and a program that holds the folder
/// waits for the daemon. Without a warden, more than every other round hangs.
#[test]
fn who_waits_for_a_daemon_that_is_killed_is_let_go() {
    for round in 0..4 {
        let slow = Shape { first_byte: FirstByte::Fixed(30.0), ..Shape::fast() };
        let server = TestS3::builder().shape(slow).object(BUCKET, "d/f0", "text");
        let world = World::new(server, &FLAGS);
        let busy = || {
            let mut python = Command::new("/usr/bin/python3");
            python.args(["-c", BUSY]).arg(world.path("d")).spawn().expect("a program")
        };
        let mut programs: Vec<_> = (0..8).map(|_| busy()).collect();
        for number in 0..30 {
            thread::sleep(Duration::from_millis(50));
            let theirs = format!("theirs, {number} of {round}");
            world.server.put(BUCKET, &format!("d/f{}", number % 6), theirs);
        }
        world.crash();
        for program in &mut programs {
            wait_for("a program's end", || program.try_wait().expect("a program").is_some());
        }
    }
}

/// `S3MOUNT_CRASHES` sets how often the daemon is killed.
#[test]
fn a_killed_daemon_leaves_whole_files_and_keeps_its_promises() {
    let crashes = std::env::var("S3MOUNT_CRASHES").ok().and_then(|number| number.parse().ok()).unwrap_or(12);
    let slow = Shape { first_byte: FirstByte::Fixed(8.0), ..Shape::default() };
    let mut world = World::new(TestS3::builder().shape(slow), &FLAGS);
    let (known, delays) = (Mutex::default(), Sequence::default());
    let mut closed = 0;
    for life in 0..crashes {
        live(&world, &known, life, Duration::from_secs_f64(0.05 + delays.uniform()));
        let mut known = known.lock().expect("a lock");
        check(&world, &mut known);
        closed = known.values().filter(|known| known.promised.is_some()).count();
        drop(known);
        world.remount(&FLAGS);
    }
    assert!(closed > 3, "{closed} files were closed");
}
