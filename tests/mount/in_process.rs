//! A mount that the test's own process serves, through a client that the test chooses.

use std::path::Path;
use std::sync::Arc;

use s3mount_fs::{Filesystem, FsConfig};
use s3mount_fuse::{FuseConfig, Mount, MountPoint};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ObjectClient;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::world::{MIB, Unmount};

/// A filesystem that is mounted at a folder of its own.
pub(crate) struct InProcess {
    pub(crate) filesystem: Arc<Filesystem>,
    folder: TempDir,
    mount: Option<Mount>,
    runtime: Option<Runtime>,
}

impl InProcess {
    /// Mounts the bucket of `client`.
    pub(crate) fn new(
        name: &str,
        client: Arc<dyn ObjectClient>,
        prefetch: PrefetchConfig,
        config: FsConfig,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("memory");
        let prefetcher = Prefetcher::new(client.clone(), pool, prefetch, runtime.handle());
        let filesystem = Arc::new(Filesystem::new(client, prefetcher, config, runtime.handle()));
        let config = FuseConfig {
            fs_name: name.to_owned(),
            read_only: true,
            no_exec: false,
            allow_other: false,
            allow_root: false,
            threads: 2,
            read_ahead_bytes: MIB,
            max_reads: 1024,
            passthrough_dirs: Vec::new(),
            audit: None,
            without_resend: false,
        };
        let folder = TempDir::new().expect("a folder");
        let point = MountPoint::open(folder.path()).expect("a folder");
        let mount = s3mount_fuse::mount(filesystem.clone(), point, &config, runtime.handle());
        Self { filesystem, folder, mount: Some(mount.expect("a mount")), runtime: Some(runtime) }
    }

    /// The folder at which the filesystem is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Unmounts the filesystem, and waits until the session has ended.
    pub(crate) fn end(mut self) {
        let mount = self.mount.take().expect("it is mounted");
        mount.unmount().expect("an end");
        mount.join().expect("an end of the session");
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        drop(Unmount(self.folder.path()));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
