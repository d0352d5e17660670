//! Sequential reads of large objects.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use s3mount_testkit::{TestS3, check, mix};

use crate::world::{BUCKET, GIB, KIB, MIB, OVERHEAD, World, check_file, check_stream, run};

/// A running `dd`, whose output the test reads.
struct Dd(Child);

impl Dd {
    fn new(world: &World, name: &str, args: &[&str]) -> Self {
        let mut command = Command::new("dd");
        command.arg(format!("if={}", world.path(name).display())).args(args).arg("status=none");
        Self(command.stdout(Stdio::piped()).spawn().expect("dd"))
    }

    /// Compares the output with the object `key` from `offset` on. Returns how many bytes were read.
    fn check(mut self, key: &str, offset: u64) -> u64 {
        let read = check_stream(self.0.stdout.take().expect("a pipe"), key, offset, MIB as usize);
        assert!(self.0.wait().expect("its end").success());
        read
    }
}

#[test]
fn eight_gib_are_read_by_dd_within_the_memory_limit() {
    let size = 8 * GIB;
    let server = TestS3::builder().synthetic(BUCKET, "big.bin", size);
    // This is by far the longest test. On a busy machine it takes minutes.
    let world =
        World::start(server, &["--memory-limit", "256MiB", "--no-hedging"], Duration::from_secs(900), |_| {});
    assert_eq!(Dd::new(&world, "big.bin", &["bs=1M"]).check("big.bin", 0), size);
    assert!(world.fetched() as f64 <= 1.02 * size as f64, "{} bytes fetched", world.fetched());
    // Parts have 8 MiB in a full prefetch window. They are smaller in the short window of a slow reader.
    let gets = world.server.stats().get_object.requests;
    assert!(gets <= size / (4 * MIB), "{gets} GETs");
    world.check_memory(256 * MIB);
}

#[test]
fn four_objects_that_are_read_at_once_are_fetched_once() {
    let keys = ["a.bin", "b.bin", "c.bin", "d.bin"];
    let server = keys.iter().fold(TestS3::builder(), |server, key| server.synthetic(BUCKET, key, GIB));
    let world = World::counting(server, &["--memory-limit", "256MiB"]);
    thread::scope(|scope| {
        for key in keys {
            let world = &world;
            scope.spawn(move || assert_eq!(Dd::new(world, key, &["bs=128k"]).check(key, 0), GIB));
        }
    });
    assert!(world.fetched() as f64 <= 1.02 * 4.0 * GIB as f64, "{} bytes fetched", world.fetched());
    world.check_memory(256 * MIB);
}

#[test]
fn four_processes_in_one_object_fetch_it_little_more_than_once() {
    let world =
        World::counting(TestS3::builder().synthetic(BUCKET, "one.bin", GIB), &["--memory-limit", "256MiB"]);
    thread::scope(|scope| {
        for quarter in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let skip = format!("skip={}", quarter * 256);
                let dd = Dd::new(world, "one.bin", &["bs=1M", "count=256", &skip]);
                assert_eq!(dd.check("one.bin", quarter * 256 * MIB), 256 * MIB);
            });
        }
    });
    // The first three readers stop before the end of the object. Each of them leaves a prefetch window
    // behind, which is data of the next reader. On a busy machine, the next reader is far ahead by then, and
    // these bytes of it are dropped already.
    assert!(world.fetched() as f64 <= 1.2 * GIB as f64, "{} bytes fetched", world.fetched());
    world.check_memory(256 * MIB);
}

#[test]
fn sixty_four_threads_that_share_an_object_fetch_it_in_parts() {
    let (threads, share) = (64, 48 * MIB);
    let server = TestS3::builder().synthetic(BUCKET, "one.bin", threads * share);
    let world = World::counting(server, &["--memory-limit", "1GiB"]);
    thread::scope(|scope| {
        for offset in (0..threads).map(|thread| thread * share) {
            let world = &world;
            scope.spawn(move || {
                let mut file = world.open("one.bin");
                file.seek(SeekFrom::Start(offset)).expect("a seek");
                assert_eq!(check_stream(file.take(share), "one.bin", offset, MIB as usize), share);
            });
        }
    });
    // On a busy machine, readers fall behind. Some of the memory of their prefetch windows is then given to
    // others.
    assert!(world.fetched() as f64 <= 1.2 * (threads * share) as f64, "{} bytes fetched", world.fetched());
    // Two parts of 4 MiB fit into the share of each stream. A stream begins with smaller parts.
    let gets = world.server.stats().get_object.requests;
    assert!(gets <= threads * (share / (4 * MIB) + 16), "{gets} GETs");
    world.check_memory(GIB);
}

#[test]
fn random_reads_in_between_take_no_stream_away() {
    let (size, steps) = (8 * GIB, 128);
    let server = TestS3::builder().synthetic(BUCKET, "one.bin", size);
    let world = World::counting(server, &["--memory-limit", "1GiB", "--random-read-size", "128KiB"]);
    let file = world.open("one.bin");
    let (sequential, mut buffer) = (world.open("one.bin"), vec![0; MIB as usize]);
    let random = |turn: u64| {
        let (offset, mut page) = (GIB + mix(turn) % (6 * GIB / 4096) * 4096, vec![0; 4 * KIB as usize]);
        file.read_exact_at(&mut page, offset).expect("a read");
        check("one.bin", offset, &page).expect("the object's bytes");
    };
    for step in 0..steps {
        sequential.read_exact_at(&mut buffer, step * MIB).expect("a read");
        check("one.bin", step * MIB, &buffer).expect("the object's bytes");
        (40 * step..40 * (step + 1)).for_each(random);
    }
    // Each of the 5,120 random reads takes a GET of its own, which is one block long. The stream has a
    // prefetch window ahead.
    let stats = world.server.stats().get_object;
    assert!(stats.requests <= 40 * steps + steps / 2, "{} GETs", stats.requests);
    let most = 40 * steps * 132 * KIB + (steps + 96) * MIB;
    assert!(stats.bytes <= most, "{} bytes fetched, {most} are allowed", stats.bytes);
}

#[test]
fn eight_processes_that_read_the_same_object_share_its_bytes() {
    let size = 512 * MIB;
    let world =
        World::counting(TestS3::builder().synthetic(BUCKET, "one.bin", size), &["--memory-limit", "256MiB"]);
    thread::scope(|scope| {
        for _ in 0..8 {
            let world = &world;
            scope.spawn(move || assert_eq!(Dd::new(world, "one.bin", &["bs=1M"]).check("one.bin", 0), size));
        }
    });
    assert!(world.fetched() as f64 <= 1.1 * size as f64, "{} bytes fetched", world.fetched());
}

#[test]
fn many_streams_keep_to_little_memory() {
    let keys: Vec<String> = (0..32).map(|index| format!("{index}.bin")).collect();
    let server = keys.iter().fold(TestS3::builder(), |server, key| server.synthetic(BUCKET, key, 32 * MIB));
    let world = World::new(server, &["--memory-limit", "64MiB"]);
    thread::scope(|scope| {
        for key in &keys {
            let world = &world;
            scope.spawn(move || assert_eq!(check_file(&world.path(key), key), 32 * MIB));
        }
    });
    world.check_memory(64 * MIB);
}

#[test]
fn memory_is_given_back_when_nobody_reads() {
    let keys = ["a.bin", "b.bin", "c.bin", "d.bin"];
    let server = keys.iter().fold(TestS3::builder(), |server, key| server.synthetic(BUCKET, key, GIB));
    let server = server.synthetic(BUCKET, "small.bin", MIB);
    let world = World::new(server, &["--memory-limit", "512MiB"]);
    thread::scope(|scope| {
        for key in keys {
            let world = &world;
            scope.spawn(move || check_file(&world.path(key), key));
        }
    });
    // Memory that nobody has used for a minute is given back, although another file is read each second.
    let small = world.open("small.bin");
    let rss = (0..100)
        .map(|turn| {
            thread::sleep(Duration::from_secs(1));
            small.read_exact_at(&mut [0; 4096], turn * 4096).expect("some bytes");
            world.mount.rss_bytes()
        })
        .find(|rss| *rss <= OVERHEAD);
    let rss = rss.unwrap_or_else(|| world.mount.rss_bytes());
    assert!(rss <= OVERHEAD, "{} MiB are resident", rss / MIB);
}

#[test]
fn direct_reads_fetch_an_object_once() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "one.bin", GIB + 5), &[]);
    let dd = Dd::new(&world, "one.bin", &["bs=8M", "iflag=direct"]);
    assert_eq!(dd.check("one.bin", 0), GIB + 5);
    assert!(world.fetched() as f64 <= 1.02 * GIB as f64, "{} bytes fetched", world.fetched());
}

#[test]
fn files_that_match_go_around_the_page_cache() {
    let size = 64 * MIB;
    let server = TestS3::builder().synthetic(BUCKET, "d/one.big", size).synthetic(BUCKET, "two.bin", size);
    let world = World::counting(server, &["--direct-io", "*.big"]);
    for key in ["d/one.big", "two.bin"] {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    let fetched_again = |key| {
        world.server.reset_stats();
        check_file(&world.path(key), key);
        world.fetched()
    };
    // Where memory is short the kernel may have dropped a page.
    assert!((0..3).any(|_| fetched_again("two.bin") == 0));
    assert!(fetched_again("d/one.big") >= size, "nothing was kept");
    // A map of a file that goes around the page cache works, too.
    let script = "import mmap,sys,zlib; f=open(sys.argv[1],'rb'); print(zlib.crc32(mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)))";
    let mapped = run("/usr/bin/python3", &["-c", script, &world.path("d/one.big").display().to_string()]);
    let read = "import sys,zlib; print(zlib.crc32(open(sys.argv[1],'rb').read()))";
    assert_eq!(
        mapped,
        run("/usr/bin/python3", &["-c", read, &world.path("d/one.big").display().to_string()])
    );
}

#[test]
fn a_second_read_comes_from_the_page_cache() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "one.bin", 64 * MIB), &[]);
    check_file(&world.path("one.bin"), "one.bin");
    let read_again = || {
        world.server.reset_stats();
        check_file(&world.path("one.bin"), "one.bin");
        world.server.stats().requests()
    };
    // Where memory is short the kernel may have dropped a page.
    assert!((0..3).any(|_| read_again() == 0));
}
