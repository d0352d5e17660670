//! The number of inodes that the kernel remembers is bounded.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::FsConfig;
use s3mount_prefetch::PrefetchConfig;
use s3mount_testkit::{MemoryClient, watchdog};

use crate::in_process::InProcess;
use crate::world::wait_for;

#[test]
fn the_kernel_is_asked_to_forget_the_oldest_files() {
    const LIMIT: u64 = 1000;
    let _watchdog = watchdog(Duration::from_secs(100));
    let client = MemoryClient::new();
    for index in 0..5000 {
        client.put(&format!("d/{index:04}"), format!("{index}"));
    }
    let config = FsConfig { inode_limit: LIMIT as usize, ..FsConfig::default() };
    let mounted = InProcess::new("inodes", Arc::new(client), PrefetchConfig::default(), config);
    let path = |index: usize| mounted.path().join(format!("d/{index:04}"));
    let inodes = || mounted.filesystem.metrics().inodes.get();

    let open: Vec<_> = (0..10).map(|index| File::open(path(index)).expect("a file")).collect();
    for _round in 0..2 {
        for index in 0..5000 {
            assert_eq!(path(index).metadata().expect("a file").len(), index.to_string().len() as u64);
        }
        wait_for("most are forgotten", || inodes() <= LIMIT);
    }
    for (index, file) in open.iter().enumerate() {
        let [known, found] =
            [file.metadata(), path(index).metadata()].map(|known| known.expect("a file").ino());
        assert_eq!(known, found, "what is open stays");
        assert_eq!(fs::read_to_string(path(index)).expect("a file"), index.to_string());
    }
    drop(open);
    mounted.end();
}
