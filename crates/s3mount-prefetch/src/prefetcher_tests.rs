//! What all readers share: their shares of the memory, and what of it goes back first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{
    BucketInfo, GetObject, ListObjects, ListPage, ObjectClient, ObjectError, ObjectMeta, PartBuffer,
};
use s3mount_testkit::NullClient;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::reader::Spare;
use crate::sync::Ordering;
use crate::{ObjectReader, PrefetchConfig, Prefetcher};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A store that answers each GET after 25 ms.
#[derive(Debug)]
struct Far(NullClient);

impl ObjectClient for Far {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<Bytes, ObjectError>> {
        async move {
            sleep(Duration::from_millis(25)).await;
            self.0.get_object(request, into).await
        }
        .boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.0.head_object(key)
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        self.0.list_objects(request)
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        self.0.head_bucket()
    }
}

/// Runs `test` in time that passes only when all wait.
fn check<F: Future<Output = ()>>(memory: u64, test: impl FnOnce(Prefetcher, Arc<Far>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let client = Arc::new(Far(NullClient::new([])));
        let pool = BufferPool::new(MemoryBudget::new(memory)).expect("a pool");
        let config = PrefetchConfig { hedge_share: 0.0, ..PrefetchConfig::default() };
        test(Prefetcher::new(client.clone(), pool, config, &Handle::current()), client).await;
    });
}

async fn read(reader: &ObjectReader, offset: u64, len: u64) {
    let (answer, answered) = oneshot::channel();
    reader.read(offset, len as usize, move |result| {
        answer.send(result.map(<[u8]>::len).ok()).expect("the test waits");
    });
    assert_eq!(answered.await.expect("an answer"), Some(len as usize));
}

#[test]
fn open_small_files_take_no_share() {
    check(512 * MIB, async |prefetcher, client| {
        let big = prefetcher.open(&client.0.object("big"), GIB);
        for turn in 0..64 {
            read(&big, turn * MIB, MIB).await;
        }
        let alone = prefetcher.0.stream_share_bytes();
        let small: Vec<_> = (0..200)
            .map(|number| prefetcher.open(&client.0.object(&format!("small {number}")), 100 * KIB))
            .collect();
        join_all(small.iter().map(|reader| read(reader, 0, 4 * KIB))).await;
        assert_eq!(prefetcher.0.stream_share_bytes(), alone, "of {} MiB", alone / MIB);
        assert_eq!(prefetcher.0.active_streams.load(Ordering::Relaxed), 1);
        // One that is not fetched whole does.
        let other = prefetcher.open(&client.0.object("other"), GIB);
        read(&other, 0, MIB).await;
        assert!(prefetcher.0.stream_share_bytes() <= alone / 2);
    });
}

#[test]
fn what_is_here_goes_before_what_is_on_its_way_and_small_parts_first() {
    check(512 * MIB, async |prefetcher, client| {
        let reader = prefetcher.open(&client.0.object("k"), GIB);
        for (start, len) in [(0, 8 * MIB), (16 * MIB, MIB)] {
            assert!(reader.fetch_ahead(Some((start, len))).is_some());
        }
        sleep(Duration::from_secs(1)).await;
        assert!(reader.fetch_ahead(Some((32 * MIB, MIB))).is_some());
        let spare = Spare { ready_bytes: 9 * MIB, in_flight_bytes: MIB };
        assert_eq!(reader.visit(), (0, spare));
        assert_eq!(reader.drop_far_end(true, 128 * KIB), MIB);
        assert_eq!(reader.drop_far_end(true, 128 * KIB), 8 * MIB);
        assert_eq!(reader.drop_far_end(true, 128 * KIB), 0);
        assert_eq!(reader.drop_far_end(false, 128 * KIB), MIB);
        assert_eq!(reader.visit(), (0, Spare::default()));
    });
}
