//! A mount that may write, over a client in memory.

use std::sync::Arc;

use s3mount_fs::{FileHandle, Filesystem, FsConfig, InodeNo, ROOT, Rights, WriteOpen, Writes};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;

pub(crate) const WRITE: WriteOpen =
    WriteOpen { writes: true, appends: false, truncates: false, is_exclusive: false };
pub(crate) const APPEND: WriteOpen = WriteOpen { appends: true, ..WRITE };
pub(crate) const EMPTY: WriteOpen = WriteOpen { truncates: true, ..WRITE };

/// A mount that may do everything, of a bucket that holds `old`.
pub(crate) fn mount() -> (Arc<MemoryClient>, Arc<Filesystem>) {
    let (client, fs) = make(FsConfig::default());
    (client, Arc::new(fs))
}

/// A mount that keeps attributes.
pub(crate) fn mount_keeping() -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_keeping_as(FsConfig::default())
}

/// A mount with these settings that keeps attributes.
pub(crate) fn mount_keeping_as(config: FsConfig) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    let (client, fs) = make(config);
    (client.clone(), Arc::new(fs.with_attributes(client)))
}

/// A mount of the same bucket that keeps attributes.
pub(crate) fn another_keeping(client: &Arc<MemoryClient>) -> Arc<Filesystem> {
    Arc::new(make_of(client, FsConfig::default()).with_attributes(client.clone()))
}

fn make(config: FsConfig) -> (Arc<MemoryClient>, Filesystem) {
    let client = Arc::new(MemoryClient::new());
    client.put("old", "old text");
    let fs = make_of(&client, config);
    (client, fs)
}

fn make_of(client: &Arc<MemoryClient>, fs_config: FsConfig) -> Filesystem {
    let (runtime, pool) = (Handle::current(), BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"));
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), PrefetchConfig::default(), &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writes = Writes {
        writer: Writer::new(client.clone(), pool, config, &runtime),
        rights: Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 },
        object: NewObject::default(),
        append_delay: std::time::Duration::ZERO,
        outbox: None,
        publishes_on_fsync: false,
    };
    let config = FsConfig { allows_writes: true, ..fs_config };
    Filesystem::new(client.clone(), prefetcher, config, &runtime).with_writes(writes)
}

pub(crate) async fn look_up(fs: &Filesystem, name: &str) -> InodeNo {
    fs.lookup(ROOT, name).await.expect("a name").attr.ino
}

/// Writes at the beginning.
pub(crate) async fn write(fs: &Arc<Filesystem>, handle: FileHandle, data: &[u8]) {
    write_at(fs, handle, 0, data).await;
}

/// Writes at the end.
pub(crate) async fn append(fs: &Arc<Filesystem>, handle: FileHandle, data: &[u8]) {
    if let Some(deferred) = fs.append(handle, data, 1).expect("memory") {
        fs.clone().finish_write(deferred).await.expect("memory");
    }
}

pub(crate) async fn write_at(fs: &Arc<Filesystem>, handle: FileHandle, offset: u64, data: &[u8]) {
    if let Some(deferred) = fs.write(handle, offset, data, 1).expect("memory") {
        fs.clone().finish_write(deferred).await.expect("memory");
    }
}
