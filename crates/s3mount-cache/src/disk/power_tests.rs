//! Power cuts: each write since the last sync may be lost, cut short, or complete, in any combination. No byte that is
//! served afterwards is wrong.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use s3mount_object::ByteRange;

use super::DiskCache;
use super::tests::{BLOCK, LIMIT, content, folder, id, offer, open_in_boot, range, read};
use crate::disk::io::power::Synced;

const SIZES: [u64; 5] = [77, 4096, BLOCK, 2 * BLOCK + 5, 9 * BLOCK + 1];

/// The number of an object whose record does not fit into an extended attribute. It takes part now and then.
const LARGE: u64 = 10;

const LARGE_BYTES: u64 = 300 * BLOCK;

/// Numbers that look random, and are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn key(number: u64) -> (String, u64) {
    let size = if number == LARGE { LARGE_BYTES } else { SIZES[number as usize % SIZES.len()] };
    (format!("object-{number}"), size)
}

/// Offers some blocks of some objects, in pieces.
fn fill(cache: &DiskCache, random: &mut Random, objects: u64) {
    for _ in 0..1 + random.below(6) {
        let (key, size) = key(random.below(objects));
        let object = cache.object(&id(&key), size);
        let bytes = content(&key, size);
        let step = match random.below(3) {
            0 => size,
            1 => (size / 2).next_multiple_of(BLOCK).min(size),
            _ => (64 * BLOCK).min(size),
        };
        for start in (0..size).step_by(step as usize) {
            if random.below(8) > 0 {
                offer(&object, range(start, (start + step).min(size)), &bytes);
            }
        }
    }
    assert!(cache.0.disks[0].wait_written(LIMIT));
    if random.below(2) == 0 {
        // The maps of partial objects are saved, and nothing is synced.
        cache.0.disks[0].save_maps();
    }
}

/// Reads all bytes that are reported as here, by the daemon and by the kernel. Returns how many these were.
async fn check(cache: &DiskCache, objects: u64) -> u64 {
    let mut bytes_right = 0;
    for number in 0..objects {
        let (key, size) = key(number);
        let (object, bytes) = (cache.object(&id(&key), size), content(&key, size));
        object.look().await;
        if let Some(file) = object.whole_file() {
            let mut found = vec![0; size as usize];
            file.metadata().map(|file| assert_eq!(file.len(), size)).expect("a file");
            let plain = fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file)));
            plain.and_then(|plain| plain.read_exact_at(&mut found, 0)).expect("all of it");
            assert!(found == bytes, "the kernel would serve wrong bytes of {key}");
            bytes_right += size;
        }
        let mut at = 0;
        while at < size {
            let end = object.run(at).end.min(at + 8 * BLOCK);
            if let Some(found) = read(&object, ByteRange::new(at, end)).await {
                assert!(found == bytes.slice(at as usize..end as usize), "{at}..{end} of {key}");
                bytes_right += end - at;
            }
            at = end;
        }
    }
    bytes_right
}

#[tokio::test]
async fn no_power_cut_leaves_a_wrong_byte() {
    let (mut random, mut served, mut boot) = (Random(20_260_101), 0, 1);
    let (_folder, path) = folder();
    for cut in 0..200 {
        let objects = if cut % 20 < 3 { LARGE + 1 } else { LARGE };
        let (cache, now) = open_in_boot(&path, boot);
        // Later than every operation of the former mount in this boot.
        now.fetch_add(20_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        assert!(cache.flush(LIMIT), "it is synced");
        let before = Synced::now(&path).expect("a directory of this test");
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        // A power cut ends no process in order.
        cache.0.disks[0].abandon();
        drop(cache);
        before.cut_power(&path, |limit| random.below(limit)).expect("a directory of this test");
        boot = boot % 200 + 1;
        let (cache, now) = open_in_boot(&path, boot);
        served += check(&cache, objects).await;
        if cut % 4 == 0 {
            // Untrusted objects have been compared with their checksums now.
            assert!(cache.flush(LIMIT));
            served += check(&cache, objects).await;
        }
        now.fetch_add(11_000_000_000, Ordering::Relaxed);
        if cut % 10 == 9 {
            for number in [0, 1, 3, 4, 9, LARGE] {
                cache.forget(&id(&key(number).0));
            }
            assert!(cache.flush(LIMIT));
        }
    }
    assert!(served > 200 * 10 * BLOCK, "{served} bytes were served");
}
