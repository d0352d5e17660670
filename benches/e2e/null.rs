//! The filesystem alone: a mount over a client that answers at once and moves no bytes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, FsConfig};
use s3mount_fuse::{FuseConfig, MountPoint};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::NullClient;

use crate::scenario::{FILE_BYTES, FILES, MIB, file_name};

/// Mounts at the folder, and in the memory, that `args` name. Ends after SIGTERM or an unmount.
pub(crate) fn serve(args: &[String]) -> anyhow::Result<()> {
    let [dir, limit] = args else { anyhow::bail!("role-null DIR BYTES") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let pool = BufferPool::new(MemoryBudget::new(limit.parse()?))?;
    let client = Arc::new(NullClient::new((0..FILES).map(|index| (file_name(index), FILE_BYTES))));
    let limit_bytes = pool.budget().limit_bytes();
    let config = PrefetchConfig {
        max_window_bytes: (limit_bytes / 4 * 3).min(512 * MIB),
        ..PrefetchConfig::default()
    };
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    let fs = FsConfig {
        negative_metadata_ttl: Duration::ZERO,
        metadata_limit_bytes: MIB as usize,
        ..FsConfig::default()
    };
    let fuse = FuseConfig {
        fs_name: "null".to_owned(),
        read_only: true,
        no_exec: false,
        allow_other: false,
        allow_root: false,
        threads: std::thread::available_parallelism()?.get(),
        read_ahead_bytes: MIB,
        max_reads: 1024,
        passthrough_dirs: Vec::new(),
        audit: None,
        without_resend: false,
    };
    let fs = Arc::new(Filesystem::new(client, prefetcher, fs, runtime.handle()));
    let mut mount = s3mount_fuse::mount(fs, MountPoint::open(Path::new(dir))?, &fuse, runtime.handle())?;
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
