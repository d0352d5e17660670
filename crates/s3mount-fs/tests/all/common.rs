//! A filesystem over a client in memory, and callers of it.

pub(crate) mod writes;

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_fs::{DirOffset, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, ROOT};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;

/// As [`mount`], with 16 MiB of memory to begin with, and up to 64 MiB.
pub(crate) fn divided(client: &Arc<MemoryClient>, change: impl FnOnce(&mut FsConfig)) -> Arc<Filesystem> {
    let pool = BufferPool::new(MemoryBudget::between(16 << 20, 64 << 20)).expect("a pool");
    over(client, Prefetcher::new(client.clone(), pool, PrefetchConfig::default(), &Handle::current()), change)
}

/// Readers of `store` with 64 MiB of memory, that send no second GETs.
pub(crate) fn prefetcher(store: impl Into<Bucket>) -> Prefetcher {
    let pool = BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool");
    let config = PrefetchConfig { hedge_share: 0.0, ..PrefetchConfig::default() };
    Prefetcher::new(store, pool, config, &Handle::current())
}

/// A filesystem over the whole bucket, with the settings that `change` has changed.
pub(crate) fn mount(client: &Arc<MemoryClient>, change: impl FnOnce(&mut FsConfig)) -> Arc<Filesystem> {
    over(client, prefetcher(client.clone()), change)
}

fn over(
    client: &Arc<MemoryClient>,
    prefetcher: Prefetcher,
    change: impl FnOnce(&mut FsConfig),
) -> Arc<Filesystem> {
    let mut config =
        FsConfig { metadata_ttl: MetadataTtl::For(Duration::from_secs(60)), ..FsConfig::default() };
    change(&mut config);
    Arc::new(Filesystem::new(client.clone(), prefetcher, config, &Handle::current()))
}

/// A bucket with these keys. The content of each object is its key.
pub(crate) fn bucket<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Arc<MemoryClient> {
    let client = MemoryClient::new();
    for key in keys {
        client.put(key.as_ref(), key.as_ref().to_owned());
    }
    Arc::new(client)
}

/// Looks a path up.
pub(crate) async fn walk(fs: &Filesystem, path: &str) -> Result<InodeNo, FsError> {
    let mut ino = ROOT;
    for name in path.split('/') {
        ino = fs.lookup(ino, name).await?.attr.ino;
    }
    Ok(ino)
}

/// All names of a folder without the dots, as `readdir` gives them.
pub(crate) async fn names(fs: &Filesystem, ino: InodeNo) -> Result<Vec<String>, FsError> {
    let handle = fs.opendir(ino)?;
    let (mut names, mut offset) = (Vec::new(), DirOffset::START);
    loop {
        let page = fs.readdir(handle, offset, 1024).await?;
        let Some(last) = page.last() else { break };
        offset = last.next;
        names.extend(page.into_iter().map(|entry| entry.name).filter(|name| !matches!(&**name, "." | "..")));
    }
    fs.releasedir(handle);
    Ok(names)
}
