//! The tier on the real client and a real server.

use std::sync::Arc;
use std::time::Duration;

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_memory::{BufferPool, MemoryBudget, Priority};
use s3mount_object::{ByteRange, ETag, GetObject, ObjectClient, ObjectId};
use s3mount_shared::{BLOCK_BYTES, MissReason, PutOutcome, SharedConfig, SharedTier};
use s3mount_testkit::{Fault, FaultKind, MemoryClient, Operation, TestS3, check};
use tokio::runtime::Handle;
use tokio::time::Instant;

const SIZE: u64 = BLOCK_BYTES + 300_000;

struct Mount {
    tier: SharedTier,
    pool: BufferPool,
    source: Arc<MemoryClient>,
    object: ObjectId,
}

fn mount(endpoint: &str) -> Mount {
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(endpoint.to_owned()),
        credentials: Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI".to_owned(),
            session_token: None,
        },
        ..CrtConfig::new("shared")
    };
    let client = Arc::new(CrtClient::new(config).expect("a client"));
    let pool = BufferPool::new(MemoryBudget::new(128 << 20)).expect("memory");
    let source = Arc::new(MemoryClient::new());
    let object = source.put_synthetic("k", SIZE);
    let config = SharedConfig {
        prefix: "p/".to_owned(),
        source_endpoint: "e".to_owned(),
        source_bucket: "b".to_owned(),
        queue_bytes: 64 << 20,
    };
    let tier = SharedTier::new(config, client, source.clone(), pool.clone(), &Handle::current());
    Mount { tier, pool, source, object }
}

impl Mount {
    /// Reads a range. Returns whether the tier served it. The buffer comes back when it did not.
    async fn read(&self, start: u64, end: u64) -> bool {
        let range = ByteRange::new(start, end);
        let buffer = self.pool.try_buffer((end - start) as usize, Priority::Demand).expect("a buffer");
        let (bytes, is_hit) = match self.tier.get(&self.object, SIZE, range, None, buffer).await {
            Ok(bytes) => (bytes, true),
            Err(miss) => {
                let request = GetObject { object: self.object.clone(), range };
                let buffer = Box::new(miss.buffer.expect("the buffer is back"));
                let bytes = self.source.get_object(request, buffer).await.expect("the range").bytes;
                self.tier.offer(&self.object, SIZE, range, &bytes);
                (bytes, false)
            }
        };
        check("k", start, &bytes).expect("the right bytes");
        is_hit
    }

    async fn settle(&self) {
        let started = Instant::now();
        while self.tier.held_bytes() > 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "uploads take too long");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reads the two blocks, and waits until they are uploaded.
    async fn fill(&self) {
        assert!(!self.read(0, BLOCK_BYTES).await && !self.read(BLOCK_BYTES, SIZE).await);
        self.settle().await;
        assert_eq!(self.tier.metrics().puts.at(PutOutcome::Written).get(), 2);
    }
}

fn server() -> TestS3 {
    TestS3::builder().bucket("shared").start().expect("a server")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_go_up_and_come_back() {
    let server = server();
    let (first, second) = (mount(&server.endpoint()), mount(&server.endpoint()));
    first.fill().await;
    let leases = server.keys("shared").iter().filter(|key| key.ends_with(".lease")).count();
    assert_eq!((leases, server.keys("shared").len()), (2, 4));
    for (start, end) in
        [(0, BLOCK_BYTES), (BLOCK_BYTES, SIZE), (131_072, 262_144), (5, 70_000), (SIZE - 1, SIZE)]
    {
        assert!(second.read(start, end).await, "{start}..{end}");
    }
    assert_eq!(second.source.requests().get, 0);
    let other = ObjectId::new("k", ETag::new("\"other\""));
    let miss = second.tier.get(&other, SIZE, ByteRange::new(0, 1000), None, vec![0; 1000]).await;
    assert!(miss.is_err_and(|miss| miss.buffer.is_some()));
    assert_eq!((first.pool.budget().used_bytes(), second.pool.budget().used_bytes()), (0, 0));
}

/// Each fault of the server is a miss with the right bytes, and the buffer comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_misses() {
    let server = server();
    mount(&server.endpoint()).fill().await;
    let kinds = FaultKind::passing().into_iter().chain([FaultKind::FlipBit]);
    for kind in kinds {
        let mount = mount(&server.endpoint());
        // The client itself sends a request again once.
        server.fault(Fault::new(kind.clone()).on(Operation::GetObject).times(2));
        for (start, end) in [(0, BLOCK_BYTES), (131_072, 262_144)] {
            mount.read(start, end).await;
        }
        server.clear_faults();
        assert!(mount.read(262_144, 393_216).await, "after {kind:?}");
        mount.settle().await;
    }
    let mount = mount(&server.endpoint());
    server.fault(Fault::new(FaultKind::FlipBit).on(Operation::GetObject).times(1));
    assert!(!mount.read(131_072, 262_144).await);
    assert_eq!(mount.tier.metrics().misses.at(MissReason::Damaged).get(), 1);
}

/// A server that goes away in the middle is left alone after a few requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_left_alone() {
    let server = server();
    let mount = mount(&server.endpoint());
    mount.fill().await;
    assert!(mount.read(0, 131_072).await);
    tokio::task::spawn_blocking(move || server.stop()).await.expect("it stops");
    for piece in 0..40 {
        assert!(!mount.read(piece * 131_072, (piece + 1) * 131_072).await);
    }
    let misses = |reason| mount.tier.metrics().misses.at(reason).get();
    assert!(misses(MissReason::Failed) <= 6, "{} requests failed", misses(MissReason::Failed));
    assert!(misses(MissReason::Resting) >= 34);
}

/// A server that answers nothing is given up, and no buffer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_given_up() {
    let server = server();
    let mount = mount(&server.endpoint());
    mount.fill().await;
    server.freeze(true);
    for _ in 0..3 {
        assert!(!mount.read(0, 131_072).await);
    }
    assert_eq!(mount.tier.metrics().misses.at(MissReason::Failed).get(), 2);
    assert_eq!(mount.tier.metrics().misses.at(MissReason::Resting).get(), 1);
    server.thaw();
    assert_eq!(mount.pool.budget().used_bytes(), 0);
}
