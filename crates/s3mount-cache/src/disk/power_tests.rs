//! Power cuts: what was written since everything was on the disk may be lost, cut off, or there in any
//! combination. No byte that is served afterwards is wrong.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use s3mount_object::ByteRange;

use super::DiskCache;
use super::tests::{BLOCK, LIMIT, content, files, folder, id, offer, open_in_boot, range, read};

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
        // The maps of parts are saved, and nothing is synced.
        cache.0.disks[0].save_maps();
    }
}

/// What a file was when everything was on the disk.
type Stable = BTreeMap<PathBuf, (u64, Vec<u8>, Option<Vec<u8>>)>;

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, "user.s3mount", value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

fn set_attribute(path: &Path, value: &[u8]) {
    rustix::fs::setxattr(path, "user.s3mount", value, rustix::fs::XattrFlags::empty()).expect("set");
}

fn stable(path: &Path) -> Stable {
    let file = |path: PathBuf| {
        // The housekeeper may replace a map meanwhile: what has gone by now is not on the disk after the cut.
        let bytes = fs::read(&path).ok()?;
        let inode = fs::metadata(&path).ok()?.ino();
        let attribute = attribute(&path);
        Some((path, (inode, bytes, attribute)))
    };
    files(&path.join("v1")).into_iter().filter_map(file).collect()
}

/// Loses some of what was written since `before`, in any order.
fn cut_power(path: &Path, before: &Stable, random: &mut Random) {
    for file in files(&path.join("v1")) {
        let now = fs::read(&file).expect("a file");
        let inode = fs::metadata(&file).expect("a file").ino();
        let old = before.get(&file);
        let is_same_file = old.is_some_and(|(old, ..)| *old == inode);
        // The same bytes may have been in another file before: a part that became whole.
        let synced = before.values().find(|(old, ..)| *old == inode).map(|(_, bytes, _)| bytes);
        if is_same_file && synced == Some(&now) && attribute(&file) == before[&file].2 {
            continue;
        }
        match random.below(6) {
            // The name, or the new file behind it, was not written.
            0 if !is_same_file => match old {
                None => fs::remove_file(&file).expect("deleted"),
                Some((_, bytes, attribute)) => {
                    fs::remove_file(&file).expect("deleted");
                    fs::write(&file, bytes).expect("written");
                    if let Some(attribute) = attribute {
                        set_attribute(&file, attribute);
                    }
                }
            },
            // The length was not written.
            1 if synced.is_none() => {
                let file = OpenOptions::new().write(true).open(&file).expect("a file");
                file.set_len(random.below(now.len() as u64 + 1)).expect("cut");
            }
            // The attribute was not written.
            2 if attribute(&file).is_some() && synced.is_none() => {
                rustix::fs::removexattr(&file, "user.s3mount").expect("removed");
            }
            // Some pages were not written: they are as they were before, or empty.
            3 | 4 => {
                let open = OpenOptions::new().write(true).open(&file).expect("a file");
                for _ in 0..1 + random.below(4) {
                    let page = random.below(now.len() as u64 / 4096 + 1) * 4096;
                    let end = (page + 4096 * (1 + random.below(40))).min(now.len() as u64);
                    for at in (page..end).step_by(4096) {
                        let (from, to) = (at as usize, (at + 4096).min(end) as usize);
                        let empty = vec![0; to - from];
                        let was = synced.and_then(|bytes| bytes.get(from..to)).unwrap_or(&empty);
                        open.write_all_at(was, at).expect("written");
                    }
                }
            }
            // All of it was written.
            _ => {}
        }
    }
}

/// Reads all that is said to be here, by the daemon and by the kernel. Returns how many bytes these were.
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
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        assert!(cache.flush(LIMIT), "it is synced");
        let before = stable(&path);
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
        fill(&cache, &mut random, objects);
        // A power cut ends no process in order.
        cache.0.disks[0].abandon();
        drop(cache);
        cut_power(&path, &before, &mut random);
        boot = boot % 200 + 1;
        let (cache, now) = open_in_boot(&path, boot);
        served += check(&cache, objects).await;
        if cut % 4 == 0 {
            // What was not trusted has been compared with its checksums now.
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
