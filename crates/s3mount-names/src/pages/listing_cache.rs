//! A cache of listings on the disk of this machine, for the next mount.
//!
//! Each listing of a whole directory is kept while its pages come. A look-up that memory does not answer reads the one
//! page that covers the name, if it is not older than `--metadata-ttl`. If names never change (`--immutable`), a kept
//! listing also replaces a new one.
//!
//! A fault of the disk is harmless: a page that is late, damaged or gone is requested from the store.

mod recorder;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use s3mount_cache::{NameStore, NamesFile};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use self::recorder::{Recording, Writer};
use crate::pages::page::Page;
use crate::sync::{Mutex, lock};
use crate::time::{millis, time};

/// How long a look-up waits for the disk. A LIST takes about as long.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the disk is not read after it was late.
const PAUSE: Duration = Duration::from_secs(30);

/// How long a listing waits for the disk. One of a million names is read in a fraction of this time.
const WHOLE_PATIENCE: Duration = Duration::from_secs(5);

/// The listings on the disk.
#[derive(Debug)]
pub struct ListingCache {
    store: NameStore,
    writer: Writer,
    /// When the mount began, by both clocks.
    mounted: (SystemTime, Instant),
    /// Whether a kept listing may replace a new one.
    is_immutable: bool,
    runtime: Handle,
    /// When the disk was last late.
    late: Mutex<Option<Instant>>,
}

/// Converts times of this process's clock to times of day, and back.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    mounted: (SystemTime, Instant),
    now: Instant,
    is_immutable: bool,
}

impl Clocks {
    /// The time of day `at`.
    fn wall(self, at: Instant) -> i64 {
        let (wall, mounted) = self.mounted;
        match at.checked_duration_since(mounted) {
            Some(after) => millis(wall + after),
            None => millis(wall - mounted.saturating_duration_since(at)),
        }
    }

    /// The same moment by the clock of this process. `None` for a moment in the future: a clock was set back since
    /// then, so the age of the page is unknown. The age does not matter if names never change.
    fn instant(self, wall: i64) -> Option<Instant> {
        let now = time(self.wall(self.now));
        let age = now.duration_since(time(wall)).ok();
        let at = age.and_then(|age| self.now.checked_sub(age));
        at.or(self.is_immutable.then_some(self.now))
    }
}

impl ListingCache {
    /// Keeps listings in `store`. The mount began at `mounted_at`, which is now.
    pub(crate) fn new(
        store: NameStore,
        mounted_at: SystemTime,
        is_immutable: bool,
        runtime: &Handle,
    ) -> Self {
        let mounted = (mounted_at, Instant::now());
        let writer = Writer::start(store.clone());
        Self { store, writer, mounted, is_immutable, runtime: runtime.clone(), late: Mutex::default() }
    }

    fn clocks(&self) -> Clocks {
        Clocks { mounted: self.mounted, now: Instant::now(), is_immutable: self.is_immutable }
    }

    /// Does `work` with the store in a thread that may block. `None` if it fails or is late, and for a while after it
    /// was late.
    async fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&NameStore) -> io::Result<Option<T>> + Send + 'static,
    ) -> Option<T> {
        if lock(&self.late).is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        let store = self.store.clone();
        let answer = self.runtime.spawn_blocking(move || work(&store));
        match timeout(patience, answer).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "a kept listing can't be read");
                None
            }
            Ok(Err(_)) => None,
            Err(_) => {
                tracing::warn!(?PAUSE, "the disk cache is slow: names are listed by the store for a while");
                *lock(&self.late) = Some(Instant::now());
                None
            }
        }
    }

    /// Drops the listing of the directory `prefix`, because a read has shown it wrong.
    pub(crate) fn forget(&self, prefix: &str) {
        let (store, prefix) = (self.store.clone(), prefix.to_owned());
        drop(self.runtime.spawn_blocking(move || {
            if let Err(error) = store.forget(&prefix) {
                tracing::debug!(%error, prefix, "a kept listing that is wrong can't be dropped");
            }
        }));
    }

    /// The kept page that covers `name` in the directory `prefix`, and the directory of that name.
    pub(crate) async fn page(&self, prefix: &Arc<str>, name: &str) -> Option<Page> {
        let (prefix, clocks) = (prefix.clone(), self.clocks());
        // If a key and a directory have the same name, the directory is shown.
        let keys = [name.to_owned(), format!("{name}/")];
        let page = self.ask(PATIENCE, move |store| {
            let Some(file) = store.open(&prefix)? else { return Ok(None) };
            let [file_at, folder_at] = keys.each_ref().map(|key| file.index_of(key));
            let Some(index) = file_at.filter(|_| file_at == folder_at) else { return Ok(None) };
            Ok(Page::from_bytes(&file.page(index)?, |wall| clocks.instant(wall)))
        });
        page.await
    }

    /// Whether the lister will find the listing of the directory `prefix` on the disk. Reads none of its pages.
    pub async fn has_listing(&self, prefix: &Arc<str>) -> bool {
        if !self.is_immutable {
            return false;
        }
        let prefix = prefix.clone();
        let found = self.ask(PATIENCE, move |store| store.open(&prefix));
        found.await.is_some_and(|file| !file.is_empty())
    }

    /// The kept listing of the directory `prefix`, if it may replace a new one.
    pub(crate) async fn listing(&self, prefix: &Arc<str>) -> Option<KeptListing> {
        if !self.is_immutable {
            return None;
        }
        let (prefix, clocks) = (prefix.clone(), self.clocks());
        self.ask(WHOLE_PATIENCE, move |store| {
            let Some(file) = store.open(&prefix)? else { return Ok(None) };
            // After this, no page can fail half-way through the listing.
            for index in 0..file.len() {
                if Page::from_bytes(&file.page(index)?, |wall| clocks.instant(wall)).is_none() {
                    return Ok(None);
                }
            }
            Ok((!file.is_empty()).then_some(KeptListing { file, clocks, next: 0 }))
        })
        .await
    }
}

/// The pages of a kept listing, which replace those of the store.
#[derive(Debug)]
pub(crate) struct KeptListing {
    file: NamesFile,
    clocks: Clocks,
    next: usize,
}

impl KeptListing {
    /// The next page, or `None` at the end. It was just read, so it comes from the page cache.
    ///
    /// # Errors
    /// Those of a disk that has failed since then.
    pub(crate) fn next(&mut self) -> io::Result<Option<Page>> {
        if self.is_complete() {
            return Ok(None);
        }
        let bytes = self.file.page(self.next)?;
        self.next += 1;
        Ok(Page::from_bytes(&bytes, |wall| self.clocks.instant(wall)))
    }

    /// Whether all pages were returned.
    pub(crate) fn is_complete(&self) -> bool {
        self.next >= self.file.len()
    }
}

/// Keeps one listing while its pages come.
#[derive(Debug)]
pub(crate) struct Recorder {
    recording: Recording,
    clocks: Clocks,
}

impl ListingCache {
    /// Begins to keep the listing of the directory `prefix`.
    pub(crate) fn recorder(&self, prefix: &Arc<str>) -> Recorder {
        Recorder { recording: self.writer.record(prefix), clocks: self.clocks() }
    }
}

impl Recorder {
    /// Keeps the next page. The listing is complete with the page that has no `upto`.
    pub(crate) fn keep(&mut self, page: &Page) {
        if self.recording.goes_on() {
            let bytes = page.to_bytes(self.clocks.wall(page.at()));
            self.recording.keep(page.upto().map(Into::into), bytes);
        }
    }
}
