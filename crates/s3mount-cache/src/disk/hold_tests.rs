//! A data set that is larger than the cache, read in order, on a real directory.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, ETag, ObjectId};

use super::{DiskCache, DiskConfig};

const OBJECTS: u64 = 30;
const BYTES: u64 = 64 << 10;

/// How many objects fit: each takes its bytes, and 4 KiB if its record has no room in the inode.
const FIT: u64 = 20;

fn open(path: &Path) -> DiskCache {
    let config = DiskConfig {
        dirs: vec![path.to_owned()],
        max_bytes: Some(FIT * (BYTES + 4096)),
        source: "s3://bucket".to_owned(),
        queue_bytes: 1 << 30,
        ..DiskConfig::default()
    };
    DiskCache::open(&config).expect("a directory of this test")
}

/// Reads all objects in order, offers the missing ones, and returns the numbers of the others.
async fn epoch(cache: &DiskCache) -> Vec<u64> {
    let mut hits = Vec::new();
    for number in 0..OBJECTS {
        let object = cache.object(&ObjectId::new(&number.to_string(), ETag::new("\"1\"")), BYTES);
        object.look().await;
        if object.run(0).is_here {
            hits.push(number);
        } else {
            object.offer(ByteRange::new(0, BYTES), &Bytes::from(vec![number as u8; BYTES as usize]));
            assert!(cache.flush(Duration::from_secs(20)));
        }
    }
    hits
}

#[tokio::test]
async fn what_fits_is_held_in_each_epoch_and_by_the_next_mount() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache");
    let cache = open(&path);
    assert!(epoch(&cache).await.is_empty());
    let held = epoch(&cache).await;
    assert!((FIT..=FIT + 1).contains(&(held.len() as u64)), "{held:?}");
    drop(cache);
    let again = open(&path);
    for _ in 0..3 {
        assert_eq!(epoch(&again).await, held);
    }
}
