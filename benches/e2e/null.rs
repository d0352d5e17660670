//! The filesystem alone: a mount over a client that answers at once, without a byte moved.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use globset::GlobSet;
use s3mount_fs::{Filesystem, FsConfig, MetadataTtl};
use s3mount_fuse::FuseConfig;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{
    BucketInfo, ETag, ErrorKind, GetObject, ListObjects, ListPage, ListedObject, ObjectClient, ObjectError,
    ObjectMeta, PartBuffer,
};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};

use crate::scenario::{FILE_BYTES, FILES, MIB, file_name};

/// A bucket whose objects hold whatever the pool's memory holds.
#[derive(Debug)]
struct NullClient;

fn meta(key: &str) -> Option<ObjectMeta> {
    (0..FILES).any(|index| file_name(index) == key).then(|| ObjectMeta {
        etag: ETag::new("null"),
        size: FILE_BYTES,
        last_modified: SystemTime::UNIX_EPOCH,
        storage_class: None,
    })
}

/// A lent buffer that bytes can be made of.
struct Lent(Box<dyn PartBuffer>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl ObjectClient for NullClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<Bytes, ObjectError>> {
        let len = request.range.len() as usize;
        async move { Ok(Bytes::from_owner(Lent(into)).slice(..len)) }.boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move { meta(key).ok_or_else(|| ObjectError::new(ErrorKind::NotFound, "HeadObject", key)) }
            .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        let names = (0..FILES).map(file_name).filter(move |name| name.starts_with(&request.prefix));
        let objects = names.filter_map(|key| Some(ListedObject { meta: meta(&key)?, key })).collect();
        async move { Ok(ListPage { objects, ..ListPage::default() }) }.boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async { Ok(BucketInfo { region: None }) }.boxed()
    }
}

/// Mounts at the folder, and in the memory, that `args` name, until it is told to end.
pub(crate) fn serve(args: &[String]) -> anyhow::Result<()> {
    let [dir, limit] = args else { anyhow::bail!("role-null DIR BYTES") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let pool = BufferPool::new(MemoryBudget::new(limit.parse()?))?;
    let client = Arc::new(NullClient);
    let limit_bytes = pool.budget().limit_bytes();
    let config =
        PrefetchConfig { max_window_bytes: (limit_bytes / 2).min(512 * MIB), ..PrefetchConfig::default() };
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    let fs = FsConfig {
        direct_io: GlobSet::empty(),
        prefix: String::new(),
        uid: 0,
        gid: 0,
        dir_mode: 0o755,
        file_mode: 0o644,
        metadata_ttl: MetadataTtl::For(Duration::from_secs(60)),
        timeout: Duration::from_secs(60),
    };
    let fuse = FuseConfig {
        fs_name: "null".to_owned(),
        allow_other: false,
        allow_root: false,
        threads: std::thread::available_parallelism()?.get(),
        read_ahead_bytes: MIB,
    };
    let fs = Arc::new(Filesystem::new(client, prefetcher, fs));
    let mut mount = s3mount_fuse::mount(fs, Path::new(dir), &fuse, runtime.handle().clone())?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            () = mount.ended() => {}
            _ = terminate.recv() => {}
        }
        anyhow::Ok(())
    })?;
    mount.unmount()?;
    runtime.shutdown_background();
    Ok(())
}
