//! `.s3mount/keep`: warms the disk cache with the files that a program names.
//!
//! A file that can't be kept keeps no other one from it: the WRITE goes on, and fails in the end. Two errors end it at once,
//! because all files would have them: the disk has no room, and the store answers nothing any more.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use s3mount_object::ByteRange;
use s3mount_prefetch::WarmError;

use super::Filesystem;
use crate::FsError;
use crate::ahead::hints::hint::Hint;
use crate::control::keep_file::WarmRequest;

/// How many files of one WRITE are fetched at once. At S3's latency of 30 ms, 64 bring 2,000 small files a
/// second. The kernel sends one WRITE to the file at a time.
const AT_ONCE: usize = 64;

/// The most files of one WRITE that the log names because they can't be kept.
const MOST_TOLD: usize = 10;

/// Why a file is not kept.
struct NotKept {
    name: String,
    error: FsError,
    /// Whether the other files would have the same error.
    is_last: bool,
}

impl Filesystem {
    /// Fetches the files that a program names, and writes them to the disk cache. Uses memory and requests that readers
    /// can spare. Resolves when all files are there that can be.
    ///
    /// # Errors
    /// That of the first file that can't be kept: `NotFound` for a line that names no file, and those of looking a name up;
    /// `Warm` when the disk cache can't keep it. A file that a filter leaves out counts last. The log has the names.
    pub async fn warm_cache(self: Arc<Self>, asked: WarmRequest) -> Result<(), FsError> {
        let mut files = stream::iter(asked.0).map(|hint| self.warm_one(hint)).buffer_unordered(AT_ONCE);
        let (mut first, mut left_out, mut failed, mut names) = (Ok(()), Ok(()), 0, Vec::new());
        while let Some(kept) = files.next().await {
            let Err(NotKept { name, error, is_last }) = kept else { continue };
            if matches!(error, FsError::Warm(WarmError::LeftOut)) {
                left_out = Err(error);
                continue;
            }
            failed += 1;
            names.extend((failed <= MOST_TOLD).then_some(name));
            first = first.and(Err(error));
            if is_last {
                break;
            }
        }
        if let Err(error) = &first {
            // One line, because the log has lines that are alike only once in a while.
            tracing::warn!(failed, ?names, %error, "files are not kept in the disk cache");
        }
        first.and(left_out)
    }

    async fn warm_one(&self, hint: Option<Hint>) -> Result<(), NotKept> {
        let Some(hint) = hint else {
            let name = "a line that names no file".to_owned();
            return Err(NotKept { name, error: FsError::NotFound, is_last: false });
        };
        let answered = || self.prefetcher.metrics().get_requests.get();
        let before = answered();
        self.warm_file(&hint).await.map_err(|error| {
            // It has waited as long as a read does. Meanwhile no other GET was answered, either.
            let is_dead = error.errno() == libc::ETIMEDOUT && answered() == before;
            let is_last = is_dead || matches!(error, FsError::Warm(WarmError::NoCache | WarmError::NoRoom));
            NotKept { name: hint.path.to_string(), error, is_last }
        })
    }

    async fn warm_file(&self, hint: &Hint) -> Result<(), FsError> {
        let (folder, name) = hint.folder_and_name();
        let prefix = Arc::from(format!("{}{folder}", self.namespace.root()));
        let file = self.namespace.find_file(&prefix, name).await?;
        let (offset, len) = hint.range.unwrap_or((0, file.size));
        let (start, end) = (offset.min(file.size), offset.saturating_add(len).min(file.size));
        Ok(self.prefetcher.warm_cache(&file.object, file.size, ByteRange::new(start, end)).await?)
    }
}
