//! Faults between the mount and S3. In spite of them, readers get the right bytes, or an errno.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::errno::Errno;
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, check, mix};

use crate::world::{BUCKET, KIB, MIB, World, check_file, check_stream};

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

fn status(status: u16, code: &str) -> FaultKind {
    FaultKind::Status(status, code.to_owned())
}

#[test]
fn each_fault_that_passes_costs_requests_and_no_byte() {
    for kind in FaultKind::passing() {
        let world = World::counting(TestS3::builder().synthetic(BUCKET, "d/f", 20 * MIB), &[]);
        world.server.fault(Fault::new(kind.clone()).on(Operation::GetObject).times(3));
        assert_eq!(check_file(&world.path("d/f"), "d/f"), 20 * MIB, "{kind:?}");
        // At worst, parts have half a MiB, which makes 40 GETs. The three GETs that were struck are sent
        // again, and the CRT retries by itself, too.
        let gets = world.server.stats().get_object.requests;
        assert!(gets <= 40 + 6, "{kind:?}: {gets} GETs");
    }
}

#[test]
fn each_fault_of_a_listing_that_passes_is_not_seen() {
    let listing = |text: &str| FaultKind::Body(text.to_owned());
    let kinds = [
        status(500, "InternalError"),
        status(503, "SlowDown"),
        FaultKind::Reset,
        FaultKind::ShortBody,
        FaultKind::HalfBody,
        listing("<html>busy</html>"),
        listing("<Error><Code>InternalError</Code></Error>"),
        listing("<ListBucketResult><Contents><Key>x</Key>"),
        listing("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
        listing("<ListBucketResult><Contents><Size>banana</Size></Contents></ListBucketResult>"),
        listing(""),
    ];
    for kind in kinds {
        let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &[]);
        world.server.fault(Fault::new(kind.clone()).on(Operation::ListObjects).times(2));
        assert_eq!(world.read("d/f"), b"text", "{kind:?}");
    }
}

#[test]
fn what_does_not_pass_has_its_errno_at_once() {
    let cases = [
        (status(403, "AccessDenied"), Errno::EACCES),
        (status(403, "InvalidObjectState"), Errno::EIO),
        (status(403, "RequestTimeTooSkewed"), Errno::EACCES),
        (status(404, "NoSuchKey"), Errno::ESTALE),
        (status(412, "PreconditionFailed"), Errno::ESTALE),
        (status(416, "InvalidRange"), Errno::ESTALE),
        (status(400, "InvalidRequest"), Errno::EIO),
        (FaultKind::WrongEtag, Errno::ESTALE),
        (FaultKind::Redirect(301, "eu-west-9".to_owned()), Errno::EIO),
        (FaultKind::Redirect(307, "eu-west-9".to_owned()), Errno::EIO),
    ];
    for (kind, expected) in cases {
        let world = World::counting(TestS3::builder().synthetic(BUCKET, "d/f", 100 * KIB), &[]);
        world.server.fault(Fault::new(kind.clone()).on(Operation::GetObject));
        let error = fs::read(world.path("d/f")).expect_err("a fault");
        assert_eq!(errno(&error), expected, "{kind:?}");
        // The kernel sends the READ twice, and each READ takes one GET. When the clock is wrong, the CRT
        // sends the GET again.
        assert!(world.server.stats().get_object.requests <= 4, "{kind:?}");
    }
}

#[test]
fn a_key_that_is_denied_in_mid_epoch_and_back() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "f", 200 * MIB), &["--prefetch-window", "1MiB"]);
    let file = world.open("f");
    let mut buffer = vec![0; 64 << 10];
    let mut read = |offset| file.read_exact_at(&mut buffer, offset).map(|()| check("f", offset, &buffer));
    read(0).expect("a read").expect("its bytes");
    world.server.fault(Fault::new(status(403, "AccessDenied")).on(Operation::GetObject));
    assert_eq!(errno(&read(100 * MIB).expect_err("denied")), Errno::EACCES);
    world.server.clear_faults();
    read(150 * MIB).expect("allowed again").expect("its bytes");
}

#[test]
fn stalls_and_trickles_are_restarted_elsewhere() {
    for kind in [FaultKind::Stall(600_000), FaultKind::StallBody(600_000), FaultKind::Trickle(1 << 10)] {
        let world = World::counting(TestS3::builder().synthetic(BUCKET, "d/f", 3 * MIB), &[]);
        world.server.fault(Fault::new(kind.clone()).on(Operation::GetObject).times(1));
        assert_eq!(check_file(&world.path("d/f"), "d/f"), 3 * MIB, "{kind:?}");
    }
    let world = World::counting(TestS3::builder().object(BUCKET, "d/f", "text"), &[]);
    world.server.fault(Fault::new(FaultKind::Stall(600_000)).on(Operation::ListObjects).times(1));
    assert_eq!(world.read("d/f"), b"text");
}

#[test]
fn a_read_fails_when_its_time_is_up() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "f", MIB), &["--read-timeout", "2"]);
    fs::metadata(world.path("f")).expect("a name that is known");
    world.server.freeze(true);
    assert_eq!(errno(&fs::read(world.path("f")).expect_err("no answer")), Errno::ETIMEDOUT);
    // The kernel sends the READ a second time. This READ does not wait again.
    assert_eq!(world.server.stats().get_object.requests, 1);
    assert_eq!(errno(&fs::metadata(world.path("g")).expect_err("no answer")), Errno::ETIMEDOUT);
    world.server.freeze(false);
    assert_eq!(check_file(&world.path("f"), "f"), MIB);
}

#[test]
fn a_store_that_is_down_is_not_hammered_and_its_readers_go_on_when_it_is_back() {
    let server = (0..16)
        .fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &format!("d/{index}"), 32 * MIB));
    let world = World::counting(server, &[]);
    fs::read_dir(world.path("d")).expect("a folder").for_each(drop);
    world.server.reset_stats();
    world.server.fault(Fault::new(FaultKind::Reset));
    std::thread::scope(|scope| {
        for index in 0..16 {
            let world = &world;
            scope.spawn(move || {
                let key = format!("d/{index}");
                assert_eq!(check_file(&world.path(&key), &key), 32 * MIB);
            });
        }
        std::thread::sleep(Duration::from_secs(10));
        // There are the first requests of sixteen readers, the retries that the budget has saved up, and
        // those that it gets in 10 s. The CRT sends each request twice.
        let requests = world.server.stats().requests();
        assert!(requests <= 2 * (16 * 8 + 64 + 10 * 10), "{requests} requests in 10 s");
        world.server.clear_faults();
    });
}

#[test]
fn a_store_that_is_gone_and_comes_back() {
    let server = || TestS3::builder().bucket(BUCKET).synthetic(BUCKET, "d/f", 600 * MIB);
    let mut world = World::counting(server(), &["--prefetch-window", "8MiB"]);
    let mut file = world.open("d/f");
    let mut first = vec![0; MIB as usize];
    file.read_exact(&mut first).expect("a read");
    let port = world.stop_server();
    let reader = std::thread::spawn(move || MIB + check_stream(file, "d/f", MIB, MIB as usize));
    // During this time, connections are refused.
    std::thread::sleep(Duration::from_secs(5));
    assert!(!reader.is_finished(), "it waits");
    world.server = server().port_again(port).start().expect("the server again");
    assert_eq!(reader.join().expect("a reader"), 600 * MIB);
}

#[test]
fn a_certificate_that_is_trusted_no_more() {
    let server = || TestS3::builder().bucket(BUCKET).synthetic(BUCKET, "f", MIB).synthetic(BUCKET, "g", MIB);
    let mut world = World::counting(server().tls(), &["--read-timeout", "3"]);
    assert_eq!(check_file(&world.path("f"), "f"), MIB);
    // Another server takes the port. Its certificate comes from another authority.
    let port = world.stop_server();
    world.server = server().tls().port_again(port).start().expect("a server");
    let error = errno(&fs::read(world.path("g")).expect_err("whose bytes would these be"));
    assert!([Errno::EIO, Errno::ETIMEDOUT].contains(&error), "{error}");
    assert_eq!(world.server.stats().get_object.requests, 0);
}

#[test]
fn flipped_bits_are_found_where_there_is_a_checksum() {
    let server = || TestS3::builder().synthetic(BUCKET, "d/f", 300 * KIB);
    let flip = || Fault::new(FaultKind::FlipBit).on(Operation::GetObject);
    let world = World::counting(server(), &[]);
    world.server.fault(flip().times(3));
    assert_eq!(check_file(&world.path("d/f"), "d/f"), 300 * KIB);
    assert_eq!(world.server.stats().get_object.requests, 4);
    // If the bytes stay wrong, a reader never sees them.
    let world = World::counting(server(), &["--read-timeout", "2"]);
    world.server.fault(flip());
    let error = fs::read(world.path("d/f")).expect_err("no right bytes");
    assert!([Errno::EIO, Errno::ETIMEDOUT].contains(&errno(&error)), "{error}");
    let said = world.mount.stderr();
    let told = ["\"d/f\"", "Integrity", "0..307200", "checksum", "(request id 0000"];
    assert!(told.iter().all(|told| said.contains(told)), "{said}");
    // Without verification, a reader does see them. So the test above can fail.
    let world = World::counting(server(), &["--verify", "never"]);
    world.server.fault(flip());
    check("d/f", 0, &fs::read(world.path("d/f")).expect("bytes")).expect_err("a bit is another");
}

/// Runs eight readers, two of each kind, while faults of all kinds strike a share of the GETs. All readers get the right
/// bytes.
fn check_mixed_readers(share: f64) {
    let server = (0..200).fold(TestS3::builder().synthetic(BUCKET, "big", 300 * MIB), |server, index| {
        server.synthetic(BUCKET, &format!("small/{index:03}"), 50 * KIB)
    });
    let world = World::new(server, &["--memory-limit", "128MiB"]);
    let slow = [FaultKind::Stall(600_000), FaultKind::StallBody(600_000), FaultKind::Trickle(1 << 10)];
    let kinds = [FaultKind::passing(), slow.to_vec()].concat();
    for kind in &kinds {
        world
            .server
            .fault(Fault::new(kind.clone()).on(Operation::GetObject).share(share / kinds.len() as f64));
    }
    world.server.fault(Fault::new(FaultKind::Reset).on(Operation::ListObjects).share(share));
    // So many requests that faults strike some of them.
    let turns = (10.0 / share).max(200.0) as u64;
    std::thread::scope(|scope| {
        for reader in 0..8_u64 {
            let world = &world;
            scope.spawn(move || match reader % 4 {
                0 => assert_eq!(check_file(&world.path("big"), "big"), 300 * MIB),
                1 => {
                    let file = world.open("big");
                    let mut buffer = vec![0; 100 << 10];
                    for turn in 0..turns {
                        let at = mix(reader << 32 | turn) % (299 * MIB);
                        file.read_exact_at(&mut buffer, at).expect("a read");
                        check("big", at, &buffer).expect("its bytes");
                    }
                }
                _ => {
                    for turn in 0..200 {
                        let key = format!("small/{:03}", mix(reader << 32 | turn) % 200);
                        assert_eq!(check_file(&world.path(&key), &key), 50 * KIB);
                    }
                }
            });
        }
    });
    world.server.clear_faults();
    world.check_memory(128 * MIB);
    // The readers took 0.4 s, 10 s and 21 s with shares of 1 %, 5 % and 20 %. Each stall that hits a reader
    // costs it 5 s.
    let (gets, struck) = (world.server.stats().get_object.requests, world.server.struck());
    assert!(gets > 300 && struck as f64 >= share * gets as f64 / 4.0, "{struck} of {gets} GETs were struck");
}

#[test]
fn mixed_readers_get_the_right_bytes_while_one_of_a_hundred_requests_fails() {
    check_mixed_readers(0.01);
}

#[test]
fn mixed_readers_get_the_right_bytes_while_one_of_twenty_requests_fails() {
    check_mixed_readers(0.05);
}

#[test]
fn mixed_readers_get_the_right_bytes_while_one_of_five_requests_fails() {
    check_mixed_readers(0.2);
}
