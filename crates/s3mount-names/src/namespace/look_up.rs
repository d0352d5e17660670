//! Asks the store for names.
//!
//! One LIST answers for a name and for those after it. Few look-ups of one directory ask at a time, and after some of
//! them the whole directory is listed.

use std::pin::pin;
use std::sync::Arc;

use s3mount_object::ListObjects;
use tokio::time::Instant;

use super::Namespace;
use crate::error::NamesError;
use crate::fact::{Asked, Fact};
use crate::lookup::allowance::PATIENCE;
use crate::lookup::limit::LookupPermit;
use crate::name::{NamedDraft, Stored, just_before};
use crate::pages::page::Page;
use crate::pages::snapshots::Outcome;
use crate::sync::spawn;

impl<D: NamedDraft> Namespace<D> {
    /// Asks the store for `name`, with one LIST whose page begins at the name. The page answers for a file and for a
    /// directory of this name, and for the names after it.
    pub(super) async fn find(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let is_ordered = self.requests.lists_in_order();
        match (self.snapshots.keeps_nothing(), is_ordered) {
            (true, true) => return self.find_alone(prefix, name).await,
            (true, false) => return self.find_unordered(prefix, name).await,
            (false, _) => {}
        }
        let _permit = match self.wait_for_permit(prefix, name).await? {
            Waited::Permitted(permit) => permit,
            Waited::Known(fact) => return Ok(fact),
        };
        if self.snapshots.on_miss(prefix, Instant::now()) {
            spawn(self.requests.runtime(), self.clone().list_whole(prefix.clone()));
        }
        if !is_ordered {
            return self.find_unordered(prefix, name).await;
        }
        match self.list_page(prefix, name).await? {
            Some(fact) => Ok(fact),
            // More than a page of names lies between the key and its directory.
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Lists the page that begins at `name`, and keeps it. Returns the fact about the name, if the page covers it.
    pub(super) async fn list_page(
        &self,
        prefix: &Arc<str>,
        name: &str,
    ) -> Result<Option<Fact<D>>, NamesError> {
        let after = just_before(name);
        let request = ListObjects {
            prefix: prefix.to_string(),
            delimiter: true,
            start_after: (!after.is_empty()).then(|| format!("{prefix}{after}")),
            ..ListObjects::default()
        };
        let sent = Instant::now();
        let listed = self.requests.list(request).await?;
        let asked = Asked::since(sent);
        let page = Page::new(prefix, &after, &listed, asked, &self.requests.hidden);
        let answer = page.answer(prefix, name);
        self.keep(prefix, page);
        Ok(answer.map(|target| self.answered(target, asked)))
    }

    /// Waits until a LIST may be sent for `name` alone, or the page of another LIST has answered.
    async fn wait_for_permit(&self, prefix: &Arc<str>, name: &str) -> Result<Waited<'_, D>, NamesError> {
        loop {
            let mut page_has_come = pin!(self.page_has_come.notified());
            let permit = tokio::select! {
                biased;
                permit = self.lookup_limiter.acquire(prefix) => Some(permit),
                () = &mut page_has_come => None,
            };
            if let Some(fact) = self.known(prefix, name) {
                return Ok(Waited::Known(fact));
            }
            let Some(permit) = permit else { continue };
            if self.snapshots.may_ask(prefix, Instant::now()) {
                return Ok(Waited::Permitted(permit));
            }
            drop(permit);
            // After a page, or after this time, the look-up tries again.
            let _ = tokio::time::timeout(PATIENCE, page_has_come).await;
        }
    }

    /// Asks the store for `name` when no pages are kept.
    async fn find_alone(&self, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let request =
            ListObjects { prefix: format!("{prefix}{name}"), delimiter: true, ..ListObjects::default() };
        let sent = Instant::now();
        let listed = self.requests.list(request).await?;
        let asked = Asked::since(sent);
        match Page::new(prefix, "", &listed, asked, &self.requests.hidden).answer(prefix, name) {
            Some(target) => Ok(self.answered(target, asked)),
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks the store for the directory `name`, then for the key. This takes two requests, however far apart the two
    /// are.
    async fn find_exactly(&self, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let sent = Instant::now();
        let first = |prefix| ListObjects { prefix, max_keys: Some(1), ..ListObjects::default() };
        let below = self.requests.list(first(format!("{prefix}{name}/"))).await?;
        let is_folder = !below.objects.is_empty();
        self.keep(prefix, Page::of_folder(name, is_folder, Asked::since(sent)));
        if is_folder {
            return Ok(self.answered(Some(Stored::Directory), Asked::since(sent)));
        }
        let mut listed = self.requests.list(first(format!("{prefix}{name}"))).await?;
        listed.next = None;
        let asked = Asked::since(sent);
        let target =
            Page::new(prefix, "", &listed, asked, &self.requests.hidden).answer(prefix, name).flatten();
        let file = if let Some(Stored::File(file)) = &target { Some(file) } else { None };
        self.keep(prefix, Page::of_one(name, file, asked));
        Ok(self.answered(target, asked))
    }

    /// Lists a whole directory, because look-ups in it have found no page. Stops when memory is used up.
    async fn list_whole(self: Arc<Self>, prefix: Arc<str>) {
        let mut listing = Whole { namespace: &self, prefix: &prefix, outcome: Outcome::Failed };
        let (mut reader, mut bytes) = (self.list(&prefix, None).await, 0);
        loop {
            match self.next_page(&prefix, &mut reader).await {
                Ok(Some(taken)) => {
                    bytes += taken.page().bytes();
                    self.keep_taken(&prefix, taken);
                    self.snapshots.on_listed_page(&prefix, Instant::now());
                    self.page_has_come.notify_waiters();
                }
                Ok(None) => return listing.outcome = Outcome::Known,
                Err(NamesError::TooManyNames(_)) => return listing.outcome = Outcome::TooLarge,
                Err(error) => return tracing::debug!(%prefix, %error, "listing ahead failed"),
            }
            if bytes > self.snapshots.most_of_one() {
                return listing.outcome = Outcome::TooLarge;
            }
        }
    }
}

/// The result of a look-up's wait.
enum Waited<'a, D> {
    Permitted(LookupPermit<'a>),
    Known(Fact<D>),
}

/// A directory that is being listed whole, until this is dropped.
struct Whole<'a, D: NamedDraft> {
    namespace: &'a Namespace<D>,
    prefix: &'a str,
    outcome: Outcome,
}

impl<D: NamedDraft> Drop for Whole<'_, D> {
    fn drop(&mut self) {
        self.namespace.snapshots.listed(self.prefix, self.outcome, Instant::now());
        // Look-ups that waited for its pages may send requests now.
        self.namespace.page_has_come.notify_waiters();
    }
}
