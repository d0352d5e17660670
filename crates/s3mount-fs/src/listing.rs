//! An open directory: its names, as far as they were read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use s3mount_object::ListPage;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::FsError;
use crate::cursor::Cursor;
use crate::inode::InodeNo;
use crate::metadata::Metadata;
use crate::names::{Assembler, Named};

/// Names that an open directory keeps behind what was read last: more than the kernel takes at once,
/// and a little to seek back.
const NAMES_KEPT: usize = 4096;

/// An open directory: its listing as far as it was read.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) ino: InodeNo,
    pub(crate) prefix: Arc<str>,
    pub(crate) listing: Mutex<Listing>,
}

#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// How many names came before those that are kept.
    dropped: usize,
    names: VecDeque<Named>,
    assembler: Assembler,
    cursor: Cursor,
    /// The page at the cursor, on its way.
    ahead: Option<Ahead>,
    pub(crate) read_at: Option<Instant>,
}

impl Listing {
    /// The names from the one of the number `first` on, as far as they have come, one at least if there
    /// are more; `without` one name. A place that is not kept is gone to by way of the beginning.
    pub(crate) async fn from(
        &mut self,
        first: usize,
        metadata: &Arc<Metadata>,
        prefix: &Arc<str>,
        without: Option<&str>,
    ) -> Result<impl Iterator<Item = &Named>, FsError> {
        if first < self.dropped {
            *self = Self::default();
        }
        while self.dropped + self.names.len() <= first && !self.cursor.is_complete {
            // All that is here was read.
            let excess = self.names.len().saturating_sub(NAMES_KEPT);
            self.names.drain(..excess);
            self.dropped += excess;
            metadata.in_time(self.more(metadata, prefix, without)).await?;
        }
        Ok(self.names.iter().skip(first - self.dropped))
    }

    /// The name of the number `index`, if it is kept.
    pub(crate) fn get(&self, index: usize) -> Option<&Named> {
        self.names.get(index.checked_sub(self.dropped)?)
    }

    /// The page at the cursor, and when it was asked for.
    async fn page(&self, metadata: &Metadata, prefix: &str) -> Result<(ListPage, Instant), FsError> {
        if self.cursor.next.is_none()
            && let Some(listed) = metadata.walks.take(prefix).await
        {
            return Ok(listed);
        }
        let at = Instant::now();
        Ok((metadata.page(prefix, self.cursor.next.clone()).await?, at))
    }

    /// Lists one page more, and has the next one listed ahead.
    async fn more(
        &mut self,
        metadata: &Arc<Metadata>,
        prefix: &Arc<str>,
        without: Option<&str>,
    ) -> Result<(), FsError> {
        let ahead = match self.ahead.take() {
            Some(mut ahead) => (&mut ahead.0).await.ok(),
            None => None,
        };
        let (mut page, at) = match ahead {
            Some((page, at)) => (page?, at),
            None => self.page(metadata, prefix).await?,
        };
        self.cursor.advance(metadata, prefix, &mut page, at)?;
        self.ahead = self.cursor.next.clone().map(|next| {
            let (metadata, prefix) = (metadata.clone(), prefix.clone());
            let runtime = metadata.runtime.clone();
            let at = Instant::now();
            Ahead(runtime.spawn(async move { (metadata.page(&prefix, Some(next)).await, at) }))
        });
        self.read_at = Some(at);
        let names = self.assembler.push(prefix, page).into_iter();
        self.names.extend(names.filter(|named| Some(named.name.as_str()) != without));
        Ok(())
    }
}

/// A LIST that nobody waits for yet; given up when it is dropped.
#[derive(Debug)]
struct Ahead(JoinHandle<(Result<ListPage, FsError>, Instant)>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}
