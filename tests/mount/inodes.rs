//! What the kernel knows of files, bounded.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, FsConfig};
use s3mount_fuse::FuseConfig;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::{MemoryClient, watchdog};
use tempfile::TempDir;

use crate::world::{MIB, Unmount, wait_for};

#[test]
fn the_kernel_is_asked_to_forget_the_oldest_files() {
    const LIMIT: u64 = 1000;
    let _watchdog = watchdog(Duration::from_secs(100));
    let client = MemoryClient::new();
    for index in 0..5000 {
        client.put(&format!("d/{index:04}"), format!("{index}"));
    }
    let client = Arc::new(client);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("memory");
    let prefetcher = Prefetcher::new(client.clone(), pool, PrefetchConfig::default(), runtime.handle());
    let config = FsConfig { inode_limit: LIMIT as usize, ..FsConfig::default() };
    let filesystem = Arc::new(Filesystem::new(client, prefetcher, config, runtime.handle()));
    let config = FuseConfig {
        fs_name: "inodes".to_owned(),
        read_only: true,
        no_exec: false,
        allow_other: false,
        allow_root: false,
        threads: 2,
        read_ahead_bytes: MIB,
    };
    let folder = TempDir::new().expect("a folder");
    let path = |index: usize| folder.path().join(format!("d/{index:04}"));
    let mount =
        s3mount_fuse::mount(filesystem.clone(), folder.path(), &config, runtime.handle()).expect("a mount");
    let guard = Unmount(folder.path());

    let open: Vec<_> = (0..10).map(|index| File::open(path(index)).expect("a file")).collect();
    for round in 0..2 {
        for index in 0..5000 {
            assert_eq!(path(index).metadata().expect("a file").len(), index.to_string().len() as u64);
        }
        wait_for("most are forgotten", || filesystem.metrics().inodes.get() <= LIMIT);
        assert!(filesystem.metrics().inodes.get() > LIMIT / 2, "no more than was to be, in round {round}");
    }
    for (index, file) in open.iter().enumerate() {
        let [known, found] =
            [file.metadata(), path(index).metadata()].map(|known| known.expect("a file").ino());
        assert_eq!(known, found, "what is open stays");
        assert_eq!(fs::read_to_string(path(index)).expect("a file"), index.to_string());
    }
    drop(open);
    wait_for("nobody has it open", || mount.unmount().expect("an end"));
    mount.join().expect("an end of the session");
    drop(guard);
    runtime.shutdown_background();
}
