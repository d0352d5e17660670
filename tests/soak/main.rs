//! Runs readers of all kinds for a long time, while requests fail and the bucket changes. Each read returns the
//! right bytes or a clean errno, memory does not grow, and nothing is left at the end.
//!
//! The load takes 40 seconds by default, and twenty minutes under `make soak`. `S3MOUNT_SOAK_SECONDS` sets the seconds.
#![expect(
    clippy::disallowed_methods,
    reason = "the mount is another process, which lives by the machine's time"
)]

#[path = "../mount/world.rs"]
#[expect(dead_code, reason = "shared with the tests of mounts, each of which uses a part")]
mod world;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use s3mount_testkit::{Fault, FaultKind, Operation, Sequence, TestS3, check};

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_file, wait_for};

const LIMIT: u64 = 128 * MIB;

/// How long the load takes by default. A longer run also waits until connections without requests are closed.
const USUAL_SECONDS: u64 = 40;

/// How many bytes the resident size may grow from the second quarter of the time to the last.
const GROWTH: u64 = 16 * MIB;

/// What the readers have done so far.
#[derive(Default)]
struct Done {
    bytes: AtomicU64,
    errors: AtomicU64,
}

impl Done {
    /// Counts the bytes of a read. Panics at an error that no injected fault explains.
    fn note(&self, result: io::Result<u64>) {
        match result {
            Ok(bytes) => self.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
                let explained = [Errno::EIO, Errno::ETIMEDOUT, Errno::ESTALE, Errno::ENOENT];
                assert!(explained.contains(&errno), "{error}");
                self.errors.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

/// Reads `len` bytes of the object `key` at `at`, and compares them.
fn read_at(world: &World, key: &str, at: u64, len: usize) -> io::Result<u64> {
    let mut buffer = vec![0; len];
    File::open(world.path(key))?.read_exact_at(&mut buffer, at)?;
    check(key, at, &buffer).expect("right bytes");
    Ok(len as u64)
}

/// Reads the first `len` bytes in pieces, as a stream.
fn stream(world: &World, key: &str, len: u64) -> io::Result<u64> {
    let mut file = File::open(world.path(key))?.take(len);
    let (mut buffer, mut at) = (vec![0; MIB as usize], 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(at);
        }
        check(key, at, &buffer[..read]).expect("right bytes");
        at += read as u64;
    }
}

/// Maps a part of the object, and touches each page of that part.
fn mapped(world: &World, key: &str, at: u64, len: usize) -> io::Result<u64> {
    let file = File::open(world.path(key))?;
    let script = "import mmap,sys\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),int(sys.argv[3]),\
                  prot=mmap.PROT_READ,offset=int(sys.argv[2]))\nsys.stdout.buffer.write(m[:])";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(world.path(key))
        .args([at.to_string(), len.to_string()])
        .stderr(Stdio::null())
        .output()?;
    drop(file);
    // The kernel answers a page that cannot be fetched with SIGBUS.
    if output.status.success() {
        check(key, at, &output.stdout).expect("right bytes");
    }
    Ok(output.stdout.len() as u64)
}

/// How many descriptors the daemon has open: all, and those that are no sockets.
fn descriptors(world: &World) -> [usize; 2] {
    let all = fs::read_dir(format!("/proc/{}/fd", world.mount.pid())).expect("its descriptors");
    let links: Vec<_> = all.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let is_socket = |link: &&std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
    [links.len(), links.len() - links.iter().filter(is_socket).count()]
}

/// The injected faults: three of a hundred requests fail in a way that a retry mends, or stall.
fn add_faults(world: &World) {
    let stalls = [FaultKind::Stall(20_000), FaultKind::StallBody(20_000)];
    for kind in FaultKind::passing().into_iter().chain(stalls) {
        world.server.fault(Fault::new(kind.clone()).on(Operation::GetObject).share(0.002));
        world.server.fault(Fault::new(kind).on(Operation::ListObjects).share(0.001));
    }
}

#[test]
fn nothing_grows_and_nothing_is_left() {
    let seconds = std::env::var("S3MOUNT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or(USUAL_SECONDS);
    let span = Duration::from_secs(seconds);
    let mut server = TestS3::builder();
    for index in 0..8 {
        server = server.synthetic(BUCKET, &format!("big/{index}"), 2 * GIB);
    }
    for index in 0..2000 {
        server = server.synthetic(BUCKET, &format!("small/{}/{index:04}", index / 100), 60 * KIB);
    }
    let world = World::start(
        server,
        &["--memory-limit", "128MiB", "--metadata-ttl", "5"],
        span * 2 + Duration::from_secs(240),
        |_| {},
    );
    check_file(&world.path("small/0/0000"), "small/0/0000");
    let descriptors_before = descriptors(&world);
    add_faults(&world);
    let (done, end, random) = (Done::default(), Instant::now() + span, Sequence::new());
    let below = |most: u64| (random.uniform() * most as f64) as u64;
    let mut resident = Vec::new();
    std::thread::scope(|scope| {
        let go = |work: &(dyn Fn() -> io::Result<u64> + Sync)| {
            while Instant::now() < end {
                done.note(work());
            }
        };
        let (world, done, below) = (&world, &done, &below);
        let big = move || format!("big/{}", below(8));
        let small = move || {
            let index = below(2000);
            format!("small/{}/{index:04}", index / 100)
        };
        for _ in 0..3 {
            scope.spawn(move || go(&|| stream(world, &big(), below(300) * MIB)));
            scope
                .spawn(move || go(&|| read_at(world, &big(), below(2 * GIB - MIB), 1 + below(MIB) as usize)));
            scope.spawn(move || go(&|| read_at(world, &small(), 0, 60 << 10)));
        }
        scope.spawn(move || go(&|| mapped(world, &big(), below(2000) * MIB, 3 << 20)));
        scope.spawn(move || {
            go(&|| {
                let mut count = 0;
                for folder in fs::read_dir(world.path("small"))? {
                    count += fs::read_dir(folder?.path())?.count();
                }
                assert!(count >= 2000, "{count}");
                Ok(0)
            });
        });
        // Each turn sends hints, half of which name nothing, kills a reader, and changes the bucket.
        scope.spawn(move || {
            while Instant::now() < end {
                let hints = fs::OpenOptions::new().write(true).open(world.path(".s3mount/prefetch"));
                let lines = format!("{}\nsmall/none\n{}\t{}\t100000\n", small(), big(), below(GIB));
                hints.and_then(|mut hints| hints.write_all(lines.as_bytes())).expect("hints");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(move || {
            while Instant::now() < end {
                let cat = Command::new("cat").arg(world.path(&big())).stdout(Stdio::null()).spawn();
                let mut cat = cat.expect("cat");
                std::thread::sleep(Duration::from_millis(below(300)));
                let _ = cat.kill();
                cat.wait().expect("its end");
            }
        });
        scope.spawn(move || {
            for turn in 0_u64.. {
                let key = format!("small/new/{}", turn % 50);
                world.server.put(BUCKET, &key, format!("version {turn}"));
                // The mount may believe for a while that the file is absent, or has its former version.
                match fs::read_to_string(world.path(&key)) {
                    Ok(text) => assert!(text.starts_with("version "), "{text}"),
                    Err(error)
                        if [Errno::ENOENT as i32, Errno::ESTALE as i32]
                            .map(Some)
                            .contains(&error.raw_os_error()) => {}
                    Err(error) => done.note(Err(error)),
                }
                world.server.delete(BUCKET, &format!("small/new/{}", (turn + 25) % 50));
                std::thread::sleep(Duration::from_millis(20));
                if Instant::now() >= end {
                    break;
                }
            }
        });
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(500));
            resident.push(world.mount.rss_bytes());
        }
    });
    world.server.clear_faults();
    let (bytes, errors) = (done.bytes.into_inner(), done.errors.into_inner());
    assert!(bytes > seconds * 2 * MIB, "only {bytes} bytes were read");
    // Retries succeed within --read-timeout. The errors that are left come from versions that are gone.
    assert!(errors * 100 <= seconds * 1000, "{errors} errors");
    world.check_memory(LIMIT);
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let quarter = resident.len() / 4;
    let (early, late) = (median(&resident[quarter..2 * quarter]), median(&resident[3 * quarter..]));
    assert!(late <= early + GROWTH, "{} MiB, then {} MiB are resident", early / MIB, late / MIB);

    eprintln!(
        "{seconds} s: {} MiB read, {errors} errors, {} GETs and {} LISTs; resident {} and {} MiB, peak {} MiB; \
         {} inodes",
        bytes / MIB,
        world.server.stats().get_object.requests,
        world.server.stats().list_objects.requests,
        early / MIB,
        late / MIB,
        world.mount.peak_rss_bytes() / MIB,
        world.gauge("inodes")
    );

    // At the end only blocks of random reads are left. They may take a quarter of the memory.
    wait_for("all files are closed", || world.gauge("open_files") <= 1 && world.gauge("open_folders") == 0);
    // Hints that no read has followed leave their window after half a minute in which other files are read.
    let hints = || world.gauge("hints_queued") + world.gauge("hints_ahead");
    let deadline = Instant::now() + Duration::from_secs(150);
    while hints() > 0 && Instant::now() < deadline {
        check_file(&world.path("small/0/0000"), "small/0/0000");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(hints(), 0, "{}", world.stats());
    wait_for("memory is given back", || world.gauge("memory_used_bytes") <= LIMIT / 4 + MIB);
    let [before, before_without_sockets] = descriptors_before;
    let [now, now_without_sockets] = descriptors(&world);
    assert!(
        now_without_sockets <= before_without_sockets + 4,
        "{now_without_sockets} descriptors that are no sockets, {before_without_sockets} before"
    );
    if seconds <= USUAL_SECONDS {
        return;
    }
    // A connection without requests is kept for a minute, and closed some seconds later.
    let deadline = Instant::now() + Duration::from_secs(120);
    while descriptors(&world)[0] > before + 4 {
        assert!(Instant::now() < deadline, "{now} descriptors, {before} before");
        std::thread::sleep(Duration::from_millis(100));
    }
}
