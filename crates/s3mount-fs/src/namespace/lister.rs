//! Lists one directory: its names in order, a page after another, with as many LISTs side by side as the
//! [`Split`] asks for and the store bears.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectError};
use tokio::task::{JoinError, JoinSet};

use crate::FsError;
use crate::namespace::Metadata;
use crate::namespace::snapshot::Page;
use crate::namespace::split::{Ask, Fault, Split};

/// Names in pages that wait for their turn, at most, of all listings together: some 12 MiB. More than this
/// is listed by nobody but the reader that waits for it.
const MOST_WAITING: usize = 128 << 10;

/// A listing under way; what it has asked for is given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Lister {
    metadata: Arc<Metadata>,
    prefix: Arc<str>,
    split: Split,
    tasks: JoinSet<Landed>,
    /// What it has added to the names that wait.
    waiting: usize,
    /// Whether its first page may have been listed ahead.
    is_walk: bool,
}

/// The number of a piece, its page, and when that was asked for.
type Landed = (u32, Result<ListPage, FsError>, Instant);

impl Lister {
    /// Of the directory `prefix`. With `is_walk` its first page may have come ahead of a walk.
    pub(crate) fn new(metadata: &Arc<Metadata>, prefix: &Arc<str>, is_walk: bool) -> Self {
        Self {
            metadata: metadata.clone(),
            prefix: prefix.clone(),
            split: Split::new(prefix),
            tasks: JoinSet::new(),
            waiting: 0,
            is_walk,
        }
    }

    /// Whether all pages were given.
    pub(crate) fn is_complete(&self) -> bool {
        self.split.is_complete()
    }

    /// The next page; `None` at the end. It may be given up and asked for again.
    ///
    /// # Errors
    /// The store's; an integrity error when the listing goes back or has no end.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, FsError> {
        if std::mem::take(&mut self.is_walk)
            && let Some((page, at)) = self.metadata.walks.take(&self.prefix).await
            && let Some(ask) = self.split.ask(0)
        {
            self.land((ask.piece, Ok(page), at))?;
        }
        loop {
            while let Some(landed) = self.tasks.try_join_next() {
                self.join(landed)?;
            }
            let part = self.split.take();
            self.count();
            self.ask();
            if part.is_some() || self.is_complete() {
                return Ok(part);
            }
            if let Some(landed) = self.tasks.join_next().await {
                self.join(landed)?;
            }
        }
    }

    /// Asks for what comes next, and for what the reader will wait for later as far as there is room.
    fn ask(&mut self) {
        loop {
            let has_room = self.metadata.waiting.load(Ordering::Relaxed) < MOST_WAITING;
            let pace = self.metadata.pace();
            let permit = if has_room { pace.permit() } else { None };
            let spare = if permit.is_some() { 1 + pace.spare() } else { 0 };
            let Some(Ask { piece, is_first, start_after, continuation }) = self.split.ask(spare) else {
                return;
            };
            let request = ListObjects {
                prefix: self.prefix.to_string(),
                delimiter: true,
                start_after: (!start_after.is_empty()).then(|| format!("{}{start_after}", self.prefix)),
                continuation,
                ..ListObjects::default()
            };
            let (metadata, at) = (self.metadata.clone(), Instant::now());
            let listing = async move {
                let _permit = permit.filter(|_| !is_first);
                let page =
                    if is_first { metadata.list(request).await } else { metadata.list_ahead(request).await };
                (piece, page, at)
            };
            self.tasks.spawn_on(listing, &self.metadata.runtime);
        }
    }

    fn join(&mut self, landed: Result<Landed, JoinError>) -> Result<(), FsError> {
        match landed {
            Ok(landed) => self.land(landed),
            // It has panicked, and whose it was is not known.
            Err(_) => {
                self.tasks.abort_all();
                self.split.all_failed();
                Ok(())
            }
        }
    }

    fn land(&mut self, (piece, page, at): Landed) -> Result<(), FsError> {
        match page {
            Ok(page) => {
                let landed = self.split.landed(piece, page, at, &self.metadata.hidden);
                self.count();
                landed.map_err(|fault| self.fault(fault))
            }
            Err(error) => {
                let is_throttled =
                    matches!(&error, FsError::Object(error) if *error.kind() == ErrorKind::Throttled);
                if self.split.failed(piece, is_throttled) { Err(error) } else { Ok(()) }
            }
        }
    }

    fn fault(&self, fault: Fault) -> FsError {
        let why = match fault {
            Fault::GoesBack => "a page of the listing goes back behind the page before it",
            Fault::HasNoEnd => "the listing has no end",
        };
        let error = ObjectError::new(ErrorKind::Integrity, "ListObjectsV2", &self.prefix);
        FsError::Object(error.with_source(why.to_owned()))
    }

    /// Tells the mount how many names wait here.
    fn count(&mut self) {
        let before = std::mem::replace(&mut self.waiting, self.split.waiting());
        self.metadata.waiting.fetch_add(self.waiting.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.metadata.waiting.fetch_sub(self.waiting, Ordering::Relaxed);
    }
}
