//! `.s3mount/keep`: warms the disk cache with the files that a program names.

use std::future::ready;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use s3mount_object::ByteRange;

use super::Filesystem;
use crate::FsError;
use crate::ahead::hints::hint::Hint;
use crate::control::keep_file::WarmRequest;

/// How many files of one WRITE are fetched at once. At S3's latency of 30 ms, 64 bring 2,000 small files a
/// second. The kernel sends one WRITE to the file at a time.
const AT_ONCE: usize = 64;

impl Filesystem {
    /// Fetches the files that a program names, and writes them to the disk cache. Uses memory and requests that readers
    /// can spare. Resolves when all files are there.
    ///
    /// # Errors
    /// `NotFound` for a line that names no file, and those of looking a name up; `Warm` when the disk cache can't keep
    /// it.
    pub async fn warm_cache(self: Arc<Self>, asked: WarmRequest) -> Result<(), FsError> {
        let one = |hint| self.warm_one(hint);
        stream::iter(asked.0).map(one).buffer_unordered(AT_ONCE).try_for_each(|()| ready(Ok(()))).await
    }

    async fn warm_one(&self, hint: Option<Hint>) -> Result<(), FsError> {
        let hint = hint.ok_or(FsError::NotFound)?;
        let (folder, name) = hint.folder_and_name();
        let prefix = Arc::from(format!("{}{folder}", self.namespace.root()));
        let file = self.namespace.find_file(&prefix, name).await?;
        let (offset, len) = hint.range.unwrap_or((0, file.size));
        let (start, end) = (offset.min(file.size), offset.saturating_add(len).min(file.size));
        Ok(self.prefetcher.warm_cache(&file.object, file.size, ByteRange::new(start, end)).await?)
    }
}
