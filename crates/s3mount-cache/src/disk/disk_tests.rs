//! The disk cache from outside.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, ETag, ObjectId};

use super::{DiskCache, DiskConfig, Run};

const LIMIT: Duration = Duration::from_secs(20);

fn config(path: &Path) -> DiskConfig {
    DiskConfig {
        dirs: vec![path.to_owned()],
        max_bytes: None,
        source: "https://s3.example|bucket".to_owned(),
        queue_bytes: 1 << 30,
    }
}

fn object(key: &str) -> ObjectId {
    ObjectId::new(key, ETag::new("\"1\""))
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at / 9 % 253) as u8 ^ (at >> 16) as u8).collect()
}

#[tokio::test]
async fn a_whole_object_is_found_by_the_next_mount() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, bytes) = (folder.path().join("cache"), pattern(300_001));
    let (size, all) = (bytes.len() as u64, ByteRange::new(0, bytes.len() as u64));
    let cache = DiskCache::open(&config(&path)).expect("a new directory");
    let kept = cache.object(&object("a/b"), size);
    kept.look().await;
    assert_eq!(kept.run(0), Run { is_here: false, end: size });
    kept.offer(all, &bytes);
    assert!(cache.flush(LIMIT));
    assert_eq!(cache.held_bytes(), 0);
    assert_eq!(kept.run(0), Run { is_here: true, end: size });
    let again = DiskCache::open(&config(&path)).expect("a cache");
    let found = again.object(&object("a/b"), size);
    let read = found.read(ByteRange::new(4096, 300_001), vec![0; 300_000]).await;
    assert_eq!(read.expect("a hit"), bytes.slice(4096..));
    let file = found.whole_file().expect("of this boot");
    assert_eq!(file.metadata().expect("a file").len(), size);
    assert!(again.object(&object("other"), size).read(all, vec![0; 300_001]).await.is_err());
    again.forget(&object("a/b"));
    assert_eq!(found.run(0), Run { is_here: false, end: size });
    assert!(cache.0.disks[0].dir.layout.objects().is_dir());
}
