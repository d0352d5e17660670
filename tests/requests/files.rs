//! Buckets of many files, and orders in which they are read.

use std::sync::atomic::{AtomicUsize, Ordering};

use s3mount_testkit::{Builder, TestS3, mix};

use crate::world::BUCKET;

/// A bucket with `count` files of `size` bytes in the folder `many`.
pub(crate) fn many(count: u64, size: u64) -> Builder {
    (0..count).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &key(index), size))
}

pub(crate) fn key(index: u64) -> String {
    format!("many/{index:06}.bin")
}

/// The numbers below `count` in an order without a pattern.
pub(crate) fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_unstable_by_key(|number| mix(*number));
    numbers
}

/// Calls `work` with each of `items` once, from 32 threads.
pub(crate) fn by_threads<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}
