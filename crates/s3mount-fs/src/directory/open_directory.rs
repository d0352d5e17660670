//! One open directory, and as much of its listing as was read.

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

/// How many names an open directory keeps after they were read. The kernel takes fewer at once, so a reader
/// can also seek back a little.
const NAMES_KEPT: usize = 4096;

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(super) ino: InodeNo,
    pub(super) prefix: Arc<str>,
    /// A name that the directory does not show.
    hidden_name: Option<&'static str>,
    pub(super) listing: Mutex<Listing>,
}

impl OpenDirectory {
    /// The directory `prefix`, of which nothing is read yet. It does not show `hidden_name`.
    pub(super) fn new(ino: InodeNo, prefix: Arc<str>, hidden_name: Option<&'static str>) -> Self {
        Self { ino, prefix, hidden_name, listing: Mutex::default() }
    }
}

/// The names of a directory, in order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// How many names were dropped from the front of `names`.
    dropped: usize,
    names: VecDeque<Named>,
    assembler: Assembler,
    lister: Option<Lister>,
    /// When the newest page was requested.
    pub(super) read_at: Option<Instant>,
}

impl Listing {
    /// Begins the listing anew.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The names of the directory `open` from the number `first` on: those that have come so far, and one at
    /// least if there are more. If that name was dropped already, the directory is listed again from its
    /// beginning.
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
            // All names that are kept were read.
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

    /// The name with the number `index`, if it is kept.
    pub(super) fn get(&self, index: usize) -> Option<&Named> {
        self.names.get(index.checked_sub(self.dropped)?)
    }

    /// Takes one more page of the listing.
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
                unset.insert(Lister::start(namespace.requests(), &open.prefix, first).await)
            }
        };
        if let Some(page) = lister.next().await? {
            let page = namespace.as_of_now(&open.prefix, page);
            self.read_at = Some(page.at());
            let mut names = self.assembler.push(&open.prefix, &page);
            namespace.add_local_names(&open.prefix, &page, &mut names);
            self.names
                .extend(names.into_iter().filter(|named| Some(named.name.as_str()) != open.hidden_name));
            namespace.keep(&open.prefix, page);
        }
        Ok(())
    }
}
