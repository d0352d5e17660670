//! Inserts blocks into the block cache, looks them up, and sheds them:
//! `cargo run -p s3mount-cache --example look_up`.
#![expect(clippy::print_stdout, reason = "it is an example")]

use bytes::Bytes;
use s3mount_cache::BlockCache;
use s3mount_object::{ByteRange, ETag, ObjectId};

/// The blocks of random reads, by default.
const BLOCK: u64 = 128 << 10;

const MIB: u64 = 1 << 20;

fn main() {
    let cache = BlockCache::new(BLOCK, 4 * MIB);
    // Blocks belong to a version of an object: its key and its ETag.
    let [old, new] = ["\"1\"", "\"2\""].map(|etag| ObjectId::new("table.bin", ETag::new(etag)));

    // A random read has brought three neighbouring blocks in one buffer: an extent. In the daemon the bytes
    // lie in a buffer of the memory pool.
    let extent = Bytes::from(vec![7; 3 * BLOCK as usize]);
    cache.insert(&old, 64 * MIB, ByteRange::new(8 * BLOCK, 11 * BLOCK), &extent);
    println!("{} KiB are held", cache.held_bytes() / 1024);

    for (version, offset) in [(&old, 9 * BLOCK + 100), (&old, 11 * BLOCK), (&new, 9 * BLOCK + 100)] {
        match cache.get(version, offset) {
            Some(bytes) => println!("hit: {} bytes up to the end of the block", bytes.len()),
            None => println!("miss: byte {offset} of version {} is not here", version.etag()),
        }
    }

    // When the pool needs a byte back, the least recently used extent leaves as a whole.
    println!("{} KiB are given back for one byte", cache.shed(1) / 1024);
    println!(
        "{} KiB are held, and nobody else refers to the bytes: {}",
        cache.held_bytes(),
        extent.is_unique()
    );
}
