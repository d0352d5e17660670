//! The maps of a process.

use std::sync::Arc;

use super::super::common::lock;
use super::super::map::Map;
use super::{Fd, Process, insert_lowest};

impl Process {
    /// `mmap` of a whole file, shared or private. Returns the map's number.
    ///
    /// # Errors
    /// The errno.
    pub async fn mmap(&self, fd: Fd, is_shared: bool) -> Result<Fd, i32> {
        let (_call, _caller) = self.begin().await?;
        let map = Map::new(&self.file(fd)?, is_shared).await?;
        Ok(insert_lowest(&mut lock(&self.0.maps), Arc::new(map)))
    }

    fn map(&self, map: Fd) -> Result<Arc<Map>, i32> {
        lock(&self.0.maps).get(&map).cloned().ok_or(libc::EINVAL)
    }

    /// Reads bytes of a map. `EFAULT` stands for SIGBUS.
    ///
    /// # Errors
    /// The errno.
    pub async fn map_read(&self, map: Fd, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let (_call, caller) = self.begin().await?;
        self.map(map)?.read(&caller, offset, len).await
    }

    /// Writes bytes to a map.
    ///
    /// # Errors
    /// The errno.
    pub async fn map_write(&self, map: Fd, offset: u64, data: &[u8]) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.map(map)?.write(&caller, offset, data).await
    }

    /// `msync`
    ///
    /// # Errors
    /// The errno.
    pub async fn msync(&self, map: Fd) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.map(map)?.sync(&caller).await
    }

    /// `munmap`
    ///
    /// # Errors
    /// The errno.
    pub async fn munmap(&self, map: Fd) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        let map = lock(&self.0.maps).remove(&map).ok_or(libc::EINVAL)?;
        map.close(&caller).await;
        Ok(())
    }
}
