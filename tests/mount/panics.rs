//! A layer below the filesystem that panics: whoever waits for it gets an error, and the mount lives.

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use nix::errno::Errno;
use s3mount_fs::{Filesystem, FsConfig};
use s3mount_fuse::FuseConfig;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{GetObject, ListObjects, ListPage, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::{MemoryClient, watchdog};
use tempfile::TempDir;

use crate::world::{MIB, Unmount, wait_for};

/// Panics where a key has a word in it, in the task that asked, once it has waited.
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
    ) -> BoxFuture<'_, Result<Bytes, ObjectError>> {
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
    let client = Arc::new(Panicking(client));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("memory");
    let read_timeout = Duration::from_secs(2);
    let config = PrefetchConfig { read_timeout, ..PrefetchConfig::default() };
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    let config = FsConfig { timeout: read_timeout, ..FsConfig::default() };
    let filesystem = Arc::new(Filesystem::new(client, prefetcher, config, runtime.handle()));
    let config = FuseConfig {
        fs_name: "panics".to_owned(),
        read_only: true,
        no_exec: false,
        allow_other: false,
        allow_root: false,
        threads: 2,
        read_ahead_bytes: MIB,
    };
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path();
    let mount = s3mount_fuse::mount(filesystem, dir, &config, runtime.handle()).expect("a mount");
    let guard = Unmount(dir);
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
    wait_for("nobody has it open", || mount.unmount().expect("an end"));
    mount.join().expect("an end of the session");
    drop(guard);
    runtime.shutdown_background();
}
