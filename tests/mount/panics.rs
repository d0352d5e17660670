//! A layer below the filesystem panics. Programs that wait for it get an error, and the mount stays up.

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use nix::errno::Errno;
use s3mount_fs::FsConfig;
use s3mount_object::{GetAnswer, GetObject, ListObjects, ListPage, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::PrefetchConfig;
use s3mount_testkit::{MemoryClient, watchdog};

use crate::in_process::InProcess;
use crate::world::MIB;

/// A client that panics when a certain word is in the key. It panics in the caller's task, and only after it
/// has waited.
#[derive(Debug)]
struct Panicking(MemoryClient);

impl Panicking {
    async fn wait(&self, key: &str, word: &str) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!key.contains(word), "injected: {key}");
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for Panicking {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        async move {
            self.wait(request.object.key(), "bad-get").await;
            self.0.get_object(request, into).await
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        async move {
            self.wait(&request.prefix, "bad-list").await;
            self.0.list_objects(request).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(0, but no listings);
}

#[test]
fn a_panic_below_fails_who_waits_and_nobody_else() {
    let _watchdog = watchdog(Duration::from_secs(100));
    let client = MemoryClient::new();
    for (key, size) in
        [("good", 3 * MIB), ("bad-get/large", 3 * MIB), ("bad-get/small", 9), ("bad-list/f", 9)]
    {
        client.put_synthetic(key, size);
    }
    let read_timeout = Duration::from_secs(2);
    let prefetch = PrefetchConfig { read_timeout, ..PrefetchConfig::default() };
    let config = FsConfig { timeout: read_timeout, ..FsConfig::default() };
    let mounted = InProcess::new("panics", Arc::new(Panicking(client)), prefetch, config);
    let dir = mounted.path();
    std::thread::scope(|scope| {
        for name in ["bad-get/large", "bad-get/small", "bad-list/f", "bad-list"] {
            scope.spawn(move || {
                let path = dir.join(name);
                let list = || fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>().map(drop);
                let result = if name == "bad-list" { list() } else { fs::read(&path).map(drop) };
                let error = result.expect_err("nobody can answer");
                let expected = [Errno::EIO, Errno::ETIMEDOUT].map(|errno| Some(errno as i32));
                assert!(expected.contains(&error.raw_os_error()), "{name}: {error}");
            });
        }
    });
    let mut good = fs::File::open(dir.join("good")).expect("a file");
    let read = io::copy(&mut good.by_ref().take(3 * MIB), &mut io::sink()).expect("a read");
    assert_eq!(read, 3 * MIB);
    drop(good);
    mounted.end();
}
