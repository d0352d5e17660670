//! An open directory: its names, as far as they were read.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::assembler::Assembler;
use super::list_ahead::Walks;
use crate::FsError;
use crate::namespace::Namespace;
use crate::namespace::lister::Lister;
use crate::namespace::names::Named;
use crate::numbers::InodeNo;

/// Names that an open directory keeps behind what was read last: more than the kernel takes at once,
/// and a little to seek back.
const NAMES_KEPT: usize = 4096;

/// An open directory: its listing as far as it was read.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(super) ino: InodeNo,
    pub(super) prefix: Arc<str>,
    /// A name that is not shown.
    without: Option<&'static str>,
    pub(super) listing: Mutex<Listing>,
}

impl OpenDirectory {
    /// The directory `prefix`, of which nothing is read yet; the name `without` is not shown.
    pub(super) fn new(ino: InodeNo, prefix: Arc<str>, without: Option<&'static str>) -> Self {
        Self { ino, prefix, without, listing: Mutex::default() }
    }
}

/// The names of a directory, in order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// How many names came before those that are kept.
    dropped: usize,
    names: VecDeque<Named>,
    assembler: Assembler,
    lister: Option<Lister>,
    /// When the newest page was asked for.
    pub(super) read_at: Option<Instant>,
}

impl Listing {
    /// Begins anew.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The names of the directory `open` from the one of the number `first` on, as far as they have come, one at
    /// least if there are more. A place that is not kept is gone to by way of the beginning.
    pub(super) async fn from(
        &mut self,
        first: usize,
        namespace: &Namespace,
        walks: &Walks,
        open: &OpenDirectory,
    ) -> Result<impl Iterator<Item = &Named>, FsError> {
        if first < self.dropped {
            self.restart();
        }
        while self.dropped + self.names.len() <= first && !self.is_complete() {
            // All that is here was read.
            let excess = self.names.len().saturating_sub(NAMES_KEPT);
            self.names.drain(..excess);
            self.dropped += excess;
            namespace.in_time(self.more(namespace, walks, open)).await?;
        }
        Ok(self.names.iter().skip(first - self.dropped))
    }

    fn is_complete(&self) -> bool {
        self.lister.as_ref().is_some_and(Lister::is_complete)
    }

    /// The name of the number `index`, if it is kept.
    pub(super) fn get(&self, index: usize) -> Option<&Named> {
        self.names.get(index.checked_sub(self.dropped)?)
    }

    /// Lists one page more.
    async fn more(
        &mut self,
        namespace: &Namespace,
        walks: &Walks,
        open: &OpenDirectory,
    ) -> Result<(), FsError> {
        let lister = match &mut self.lister {
            Some(lister) => lister,
            unset => {
                let first = walks.take(&open.prefix).await;
                unset.insert(Lister::new(namespace.requests(), &open.prefix, first))
            }
        };
        if let Some(page) = lister.next().await? {
            self.read_at = Some(page.at());
            let names = self.assembler.push(&open.prefix, &page).into_iter();
            self.names.extend(names.filter(|named| Some(named.name.as_str()) != open.without));
            namespace.keep(&open.prefix, page);
        }
        Ok(())
    }
}
