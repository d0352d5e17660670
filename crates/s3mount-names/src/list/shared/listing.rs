//! One listing that several readers share.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::error::NamesError;
use crate::list::lister::Lister;
use crate::list::requests::ListRequests;
use crate::pages::page::Page;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};

/// How long a page is kept for readers that have not taken it.
pub(super) const KEPT: Duration = Duration::from_secs(10);

/// The state that all listings share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) requests: Arc<ListRequests>,
    /// The greatest age of a listing that a reader joins. With zero, no listing is shared.
    pub(super) within: Duration,
    /// The most memory for pages that are kept for readers, in bytes.
    pub(super) most_bytes: usize,
    pub(super) bytes: AtomicUsize,
}

impl Common {
    fn has_too_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.most_bytes
    }
}

/// The pages that wait for readers, and the positions of the readers.
#[derive(Debug)]
struct ListedPages {
    /// Whether readers may still join.
    is_open: bool,
    /// Whether all pages have come.
    is_over: bool,
    /// The number of the first page that is kept.
    first: usize,
    pages: VecDeque<Arc<Page>>,
    /// The number of each reader's next page.
    readers: HashMap<u64, usize>,
    last_reader: u64,
}

impl ListedPages {
    /// How many pages have come.
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }
}

/// A listing, and its pages that not every reader has taken. While readers may join, it keeps all pages.
#[derive(Debug)]
pub(super) struct SharedListing {
    pub(super) prefix: Arc<str>,
    /// The listing has the names after this key.
    behind: Box<str>,
    began: Instant,
    /// Its holder requests the next page. It is unset until the first page is needed.
    lister: tokio::sync::Mutex<Option<Lister>>,
    state: Mutex<ListedPages>,
    common: Arc<Common>,
}

impl SharedListing {
    /// Begins a listing of the names after a key, and returns its first reader.
    pub(super) fn begin(common: &Arc<Common>, prefix: &Arc<str>, behind: &str) -> Seat {
        let state = ListedPages {
            is_open: true,
            is_over: false,
            first: 0,
            pages: VecDeque::new(),
            readers: HashMap::from([(0, 0)]),
            last_reader: 0,
        };
        let listing = Arc::new(Self {
            prefix: prefix.clone(),
            behind: behind.into(),
            began: Instant::now(),
            lister: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
            common: common.clone(),
        });
        Seat { listing, reader: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, ListedPages> {
        lock(&self.state)
    }

    /// Adds a reader of the names after this key, if it may join.
    pub(super) fn join(self: &Arc<Self>, behind: &str) -> Option<Seat> {
        if *self.behind != *behind {
            return None;
        }
        let mut state = self.lock();
        self.trim(&mut state, Instant::now());
        if !state.is_open {
            return None;
        }
        state.last_reader += 1;
        let reader = state.last_reader;
        state.readers.insert(reader, 0);
        Some(Seat { listing: self.clone(), reader })
    }

    /// The number of readers.
    #[cfg(test)]
    pub(super) fn readers(&self) -> usize {
        self.lock().readers.len()
    }

    /// Closes the listing to new readers.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_open = false;
        self.trim(&mut state, Instant::now());
    }

    /// Drops pages that were kept for too long. Readers that have not taken them continue with another listing.
    pub(super) fn expire(&self, now: Instant) {
        let mut state = self.lock();
        self.trim(&mut state, now);
        let age = |page: &Arc<Page>| now.saturating_duration_since(page.came());
        while state.pages.front().is_some_and(|page| age(page) >= KEPT) {
            self.pop(&mut state);
        }
    }

    fn pop(&self, state: &mut ListedPages) {
        if let Some(page) = state.pages.pop_front() {
            state.first += 1;
            self.common.bytes.fetch_sub(page.bytes(), Ordering::Relaxed);
        }
    }

    /// Drops the pages that no reader needs any more.
    fn trim(&self, state: &mut ListedPages, now: Instant) {
        let is_late = now.saturating_duration_since(self.began) > self.common.within;
        state.is_open &= !state.is_over && !is_late && state.first == 0;
        if state.is_open {
            return;
        }
        let wanted = state.readers.values().copied().min().unwrap_or_else(|| state.end());
        while state.first < wanted && !state.pages.is_empty() {
            self.pop(state);
        }
    }

    /// Keeps a new page. If there is no room, drops the oldest pages.
    fn push(&self, page: Page, is_last: bool) {
        let mut state = self.lock();
        self.common.bytes.fetch_add(page.bytes(), Ordering::Relaxed);
        state.pages.push_back(Arc::new(page));
        state.is_over = is_last;
        if self.common.has_too_much() {
            state.is_open = false;
        }
        self.trim(&mut state, Instant::now());
        // The newest page stays for the readers that wait for it.
        while self.common.has_too_much() && state.pages.len() > 1 {
            self.pop(&mut state);
        }
    }

    /// Whether only this reader needs the new page, which is its next.
    fn passes_by(&self, reader: u64, is_last: bool) -> bool {
        let mut state = self.lock();
        self.trim(&mut state, Instant::now());
        if state.is_open || state.readers.len() > 1 || !state.pages.is_empty() {
            return false;
        }
        state.first += 1;
        state.is_over = is_last;
        let next = state.first;
        state.readers.insert(reader, next);
        true
    }
}

impl Drop for SharedListing {
    fn drop(&mut self) {
        let kept: usize = self.lock().pages.iter().map(|page| page.bytes()).sum();
        self.common.bytes.fetch_sub(kept, Ordering::Relaxed);
    }
}

/// A page that a reader has got.
#[derive(Debug)]
pub enum Taken {
    /// Only its reader has it. The reader keeps it.
    Own(Page),
    /// It was kept when it came.
    Shared(Arc<Page>),
}

impl Taken {
    /// The page.
    pub fn page(&self) -> &Page {
        match self {
            Self::Own(page) => page,
            Self::Shared(page) => page,
        }
    }
}

/// The result of a reader's call.
#[derive(Debug)]
pub(super) enum Next {
    /// A page, and whether it is the last.
    Page(Taken, bool),
    End,
    /// The next page of this reader was dropped, or does not come.
    Gone,
}

/// A reader of a listing, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) listing: Arc<SharedListing>,
    reader: u64,
}

impl Seat {
    /// The next page. See [`ListingReader::next`](super::ListingReader::next). If another reader has requested it,
    /// waits at most for `patience`.
    pub(super) async fn next(
        &mut self,
        patience: Duration,
        keep: impl Fn(&Page),
    ) -> Result<Next, NamesError> {
        loop {
            if let Some(next) = self.take() {
                return Ok(next);
            }
            let Ok(mut lister) = timeout(patience, self.listing.lister.lock()).await else {
                return Ok(Next::Gone);
            };
            // Another reader may have got the page meanwhile.
            if let Some(next) = self.take() {
                return Ok(next);
            }
            let lister = match &mut *lister {
                Some(lister) => lister,
                unset => {
                    let of = &self.listing;
                    unset.insert(match &*of.behind {
                        "" => Lister::start(&of.common.requests, &of.prefix, None).await,
                        behind => Lister::behind(&of.common.requests, &of.prefix, behind),
                    })
                }
            };
            let page = lister.next().await?;
            let is_last = lister.is_complete();
            let Some(page) = page else {
                self.listing.lock().is_over = true;
                continue;
            };
            if self.listing.passes_by(self.reader, is_last) {
                return Ok(Next::Page(Taken::Own(page), is_last));
            }
            keep(&page);
            self.listing.push(page, is_last);
        }
    }

    /// The next page, if it has come.
    fn take(&self) -> Option<Next> {
        let mut state = self.listing.lock();
        let next = state.readers.get(&self.reader).copied().unwrap_or_default();
        let Some(index) = next.checked_sub(state.first) else { return Some(Next::Gone) };
        let Some(page) = state.pages.get(index).cloned() else { return state.is_over.then_some(Next::End) };
        state.readers.insert(self.reader, next + 1);
        let is_last = state.is_over && next + 1 == state.end();
        self.listing.trim(&mut state, Instant::now());
        Some(Next::Page(Taken::Shared(page), is_last))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.listing.lock();
        state.readers.remove(&self.reader);
        self.listing.trim(&mut state, Instant::now());
    }
}
