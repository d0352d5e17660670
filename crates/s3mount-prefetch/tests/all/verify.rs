//! Objects are compared with their checksums when all of their bytes have come.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use proptest::prelude::*;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, ObjectId};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher, ReadError};
use s3mount_testkit::{MemoryClient, check};
use tokio::runtime::Runtime;

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(100);

struct Bed {
    client: Arc<MemoryClient>,
    prefetcher: Prefetcher,
    _runtime: Runtime,
}

fn bed(memory_bytes: u64, verify_whole: bool) -> Bed {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = Arc::new(MemoryClient::new());
    let pool = BufferPool::new(MemoryBudget::new(memory_bytes)).expect("a pool");
    let config = PrefetchConfig { hedge_share: 0.0, verify_whole, ..PrefetchConfig::default() };
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    Bed { client, prefetcher, _runtime: runtime }
}

impl Bed {
    fn open(&self, size: u64) -> (Arc<ObjectReader>, ObjectId) {
        let object = self.client.put_synthetic("k", size);
        (self.prefetcher.open(&object, size), object)
    }

    /// Waits until no GET is in flight.
    fn settle(&self) {
        // A GET that was asked for may not have begun yet. So no GET may run at four checks in a row.
        let mut quiet = 0;
        for _ in 0..3000 {
            std::thread::sleep(Duration::from_millis(5));
            quiet = if self.client.running().0 == 0 { quiet + 1 } else { 0 };
            if quiet == 4 {
                return;
            }
        }
        panic!("GETs are still in flight");
    }

    /// How many objects were verified, how many could not be verified, and how many were wrong.
    fn verdicts(&self) -> (u64, u64, u64) {
        let metrics = self.prefetcher.metrics();
        (metrics.objects_verified.get(), metrics.objects_unverified.get(), metrics.objects_corrupt.get())
    }
}

fn read(reader: &ObjectReader, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
    let (send, receive) = mpsc::channel();
    reader.read(offset, len, move |result| {
        // A failed test no longer listens.
        let _ = send.send(result.map(<[u8]>::to_vec));
    });
    receive.recv_timeout(LIMIT).expect("an answer in time")
}

/// Reads the object in pieces of `step` bytes, up to the first error. Returns whether the bytes were right.
fn read_all(reader: &ObjectReader, step: usize) -> Result<bool, ReadError> {
    let mut is_right = true;
    for offset in (0..reader.size()).step_by(step) {
        is_right &= check("k", offset, &read(reader, offset, step)?).is_ok();
    }
    Ok(is_right)
}

#[test]
fn an_object_costs_one_head_and_no_other_request() {
    let mut requests = Vec::new();
    for verify in [false, true] {
        let bed = bed(256 * MIB, verify);
        let (reader, _) = bed.open(20 * MIB + 77);
        assert!(read_all(&reader, 100 * KIB).expect("bytes"));
        assert_eq!(bed.verdicts(), (u64::from(verify), 0, 0));
        requests.push((bed.client.take_requests().head, bed.prefetcher.metrics().fetched_bytes.get()));
    }
    assert_eq!(requests, [(0, 20 * MIB + 77), (1, 20 * MIB + 77)]);
}

#[test]
fn who_reads_a_header_pays_nothing() {
    let bed = bed(256 * MIB, true);
    let (reader, _) = bed.open(500 * MIB);
    read(&reader, 0, 64 * KIB).expect("bytes");
    let small = bed.client.put_synthetic("small", MIB);
    let small = bed.prefetcher.open(&small, MIB);
    read(&small, 0, 1000).expect("bytes");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bed.client.take_requests().head, 0);
}

#[test]
fn an_object_without_a_checksum_is_read_as_ever() {
    let bed = bed(256 * MIB, true);
    bed.client.keep_no_checksums();
    let (reader, _) = bed.open(20 * MIB);
    bed.client.flip_next([false, true]);
    assert!(!read_all(&reader, 128 * KIB).expect("bytes"), "wrong ones: nothing tells of it");
    assert_eq!(bed.verdicts(), (0, 1, 0));
}

#[test]
fn a_head_that_fails_is_sent_again() {
    let bed = bed(256 * MIB, true);
    let (reader, _) = bed.open(20 * MIB);
    // The HEAD is among these requests, because it is sent with the first GETs.
    read(&reader, 0, 4 * KIB).expect("bytes");
    bed.client.fail_next(std::iter::repeat_n(ErrorKind::Server, 6));
    assert!(read_all(&reader, 128 * KIB).expect("bytes"));
    assert_eq!(bed.verdicts(), (1, 0, 0));
}

/// Each round of the loop flips a bit of another GET, so that every GET of the stream is hit once.
#[test]
fn a_flipped_bit_fails_who_has_seen_it() {
    let mut failed = 0;
    for flipped in 0.. {
        let bed = bed(256 * MIB, true);
        let size = 40 * MIB;
        let (reader, object) = bed.open(size);
        bed.client.flip_next((0..=flipped).map(|get| get == flipped));
        let result = read_all(&reader, 128 * KIB);
        let gets = bed.client.take_requests().get;
        if let Err(error) = result {
            assert!(error.is_corrupt() && !error.is_stale(), "{error}");
            assert_eq!(bed.verdicts(), (0, 0, 1));
            assert!(read(&reader, 0, 1).expect_err("nothing of it is read any more").is_corrupt());
            assert!(bed.prefetcher.take_quarantined(&object));
            assert!(!bed.prefetcher.take_quarantined(&object), "once");
            // A new open fetches the object again.
            let again = bed.prefetcher.open(&object, size);
            assert!(read_all(&again, 128 * KIB).expect("bytes"));
            assert_eq!(bed.verdicts(), (1, 0, 1));
            failed += 1;
        } else {
            // The bit would have been in a GET that was not needed.
            assert!(result.expect("bytes"), "the bit of GET {flipped} was served");
            assert_eq!(bed.verdicts(), (1, 0, 0));
        }
        if gets <= flipped {
            break;
        }
    }
    assert!(failed > 3, "{failed} failed");
}

/// An object of parts of 8 MiB that has been read up to the end of its first part, so that its parts are
/// known.
fn in_parts(bed: &Bed, size: u64) -> (Arc<ObjectReader>, ObjectId) {
    bed.client.keep_part_checksums(8 * MIB);
    let (reader, object) = bed.open(size);
    for offset in (0..8 * MIB).step_by(128 * KIB) {
        read(&reader, offset, 128 * KIB).expect("bytes");
    }
    bed.settle();
    (reader, object)
}

#[test]
fn parts_of_an_upload_cost_a_page_and_are_fetched_whole() {
    let bed = bed(256 * MIB, true);
    let size = 100 * MIB + 77;
    let (reader, _) = in_parts(&bed, size);
    assert!(read_all(&reader, 128 * KIB).expect("bytes"));
    assert_eq!(bed.verdicts(), (1, 0, 0));
    assert_eq!(bed.prefetcher.metrics().fetched_bytes.get(), size);
    // The object has 13 parts, and a page has three of them.
    let requests = bed.client.take_requests();
    assert_eq!((requests.head, requests.attributes), (1, 5));
    // The stream had ramped to 2 or 4 MiB when the parts became known.
    let ends = bed.client.ranges().into_iter().map(|(_, range)| range.end);
    let uncut = ends.filter(|end| *end > 24 * MIB && *end < size && !end.is_multiple_of(8 * MIB)).count();
    assert_eq!(uncut, 0, "{:?}", bed.client.ranges());
}

#[test]
fn a_part_that_comes_wrong_is_fetched_again_before_it_is_read() {
    let bed = bed(256 * MIB, true);
    let (reader, _) = in_parts(&bed, 64 * MIB);
    // The third, the fifth and the last part are wrong, each once.
    bed.client.flip_next((0..8).map(|get| get % 3 == 0));
    for part in 3..8 {
        reader.fetch_ahead(Some((part * 8 * MIB, 8 * MIB))).expect("memory");
        bed.settle();
    }
    assert_eq!(bed.prefetcher.metrics().refetches.get(), 3);
    assert!(read_all(&reader, 128 * KIB).expect("bytes"));
    assert_eq!(bed.verdicts(), (1, 0, 0));
}

#[test]
fn a_part_that_is_wrong_for_ever_fails_its_readers() {
    let bed = bed(256 * MIB, true);
    let (reader, object) = in_parts(&bed, 64 * MIB);
    bed.client.flip_next(std::iter::repeat_n(true, 100_000));
    let error = read(&reader, 40 * MIB, 128 * KIB).map(|_| ()).and_then(|()| read_all(&reader, 128 * KIB));
    let error = error.expect_err("it is wrong");
    assert!(matches!(error, ReadError::CorruptPart { .. } | ReadError::Changed { .. }), "{error}");
    assert!(bed.client.take_requests().get < 60, "each is fetched again some times, and no more");
    assert!(bed.prefetcher.take_quarantined(&object));
}

#[test]
fn who_may_not_ask_for_parts_reads_as_ever() {
    let bed = bed(256 * MIB, true);
    bed.client.keep_part_checksums(8 * MIB);
    bed.client.refuse_attributes();
    let (reader, _) = bed.open(40 * MIB);
    assert!(read_all(&reader, 128 * KIB).expect("bytes"));
    bed.settle();
    let requests = bed.client.take_requests();
    assert_eq!((bed.verdicts(), requests.head, requests.attributes), ((0, 1, 0), 1, 1));
}

#[test]
fn parts_of_odd_lengths_are_compared_where_they_can_be() {
    let bed = bed(256 * MIB, true);
    bed.client.keep_part_checksums(5_000_000);
    let (reader, _) = bed.open(64 * MIB);
    read_all(&reader, 128 * KIB).expect("bytes");
    let (verified, unverified, corrupt) = bed.verdicts();
    // Ranges that came before the parts were known may reach across a part's end.
    assert_eq!((verified + unverified, corrupt), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Readers read in any order, in little memory, while bits flip. A reader of the whole object gets the right bytes,
    /// or an error.
    #[test]
    fn nobody_reads_all_of_it_wrong(
        flips in proptest::collection::vec(proptest::bool::weighted(0.05), 200),
        size_kib in 1100..20_000_u64,
        step in prop_oneof![Just(128 * KIB), Just(1024 * KIB), Just(3000 * KIB)],
        shares in 1..4_u64,
        part in prop_oneof![Just(None), Just(Some(5 * MIB)), Just(Some(2 * MIB)), Just(Some(12 * MIB))],
    ) {
        let bed = bed(24 * MIB, true);
        if let Some(len) = part {
            bed.client.keep_part_checksums(len);
        }
        let (reader, _) = bed.open(size_kib * 1024);
        bed.client.flip_next(flips);
        // One thread reads each piece once. Then the first thread reads all of them again.
        let results: Vec<Result<bool, ReadError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..shares).map(|share| {
                let reader = &reader;
                scope.spawn(move || {
                    let mut is_right = true;
                    let starts = (0..reader.size()).step_by(step).skip(usize::try_from(share).expect("few"));
                    for offset in starts.step_by(usize::try_from(shares).expect("few")) {
                        is_right &= check("k", offset, &read(reader, offset, step)?).is_ok();
                    }
                    Ok(is_right)
                })
            }).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let all: Result<Vec<bool>, ReadError> = results.into_iter().collect();
        match all {
            Ok(right) => prop_assert!(right.iter().all(|is_right| *is_right), "wrong bytes, and no error"),
            Err(error) => prop_assert!(error.is_corrupt(), "{error}"),
        }
    }
}
