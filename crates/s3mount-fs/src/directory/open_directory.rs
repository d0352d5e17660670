//! An open directory: its names, as far as they were read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use crate::FsError;
use crate::inode::InodeNo;
use crate::namespace::Metadata;
use crate::namespace::lister::Lister;
use crate::namespace::names::{Assembler, Named};

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
    lister: Option<Lister>,
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
        while self.dropped + self.names.len() <= first && !self.is_complete() {
            // All that is here was read.
            let excess = self.names.len().saturating_sub(NAMES_KEPT);
            self.names.drain(..excess);
            self.dropped += excess;
            metadata.in_time(self.more(metadata, prefix, without)).await?;
        }
        Ok(self.names.iter().skip(first - self.dropped))
    }

    fn is_complete(&self) -> bool {
        self.lister.as_ref().is_some_and(Lister::is_complete)
    }

    /// The name of the number `index`, if it is kept.
    pub(crate) fn get(&self, index: usize) -> Option<&Named> {
        self.names.get(index.checked_sub(self.dropped)?)
    }

    /// Lists one page more.
    async fn more(
        &mut self,
        metadata: &Arc<Metadata>,
        prefix: &Arc<str>,
        without: Option<&str>,
    ) -> Result<(), FsError> {
        let lister = self.lister.get_or_insert_with(|| Lister::new(metadata, prefix, true));
        if let Some(page) = lister.next().await? {
            self.read_at = Some(page.at());
            let names = self.assembler.push(prefix, &page).into_iter();
            self.names.extend(names.filter(|named| Some(named.name.as_str()) != without));
            metadata.keep(prefix, page);
        }
        Ok(())
    }
}
