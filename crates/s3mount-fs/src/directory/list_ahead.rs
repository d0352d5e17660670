//! Lists the next directories ahead of a program that walks a tree.
//!
//! `find`, `ls -R`, `os.walk` and `rsync` wait for each directory's listing before they go on to the next.
//! Once a walk has listed two siblings in order, the next siblings are listed ahead, many at a time.
//! [`SequenceDetector`](crate::ahead::sequence::SequenceDetector) chooses them. The request for a directory also lists
//! everything below it, if all of that fits one page.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ListObjects, ListPage};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::sync::{JoinHandle, Mutex, MutexGuard, lock, spawn};
use s3mount_names::{Asked, ListRequests, NamesError};

/// How many LISTs ahead of walks are in flight at a time.
const AT_ONCE: usize = 32;

/// The most names that listings hold while they wait for their walk: some 12 MiB. Beyond that, a walk lists
/// its directories itself.
const MOST_NAMES: usize = 64 << 10;

/// The age up to which a waiting listing may be used.
const STALE: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Listed {
    UnderWay(JoinHandle<Option<ListPage>>),
    /// A page, and the time of its arrival.
    Ready(ListPage, Instant),
}

#[derive(Debug, Default)]
struct ListedAhead {
    listed: HashMap<Arc<str>, (Instant, Listed)>,
    names: usize,
    /// One of its subdirectories did not fit a page, so each is listed on its own.
    large: Option<Arc<str>>,
    /// When a folder was renamed last. What was asked for before may list another folder of the same name.
    moved_at: Option<Instant>,
}

/// The listings that wait for their walk.
#[derive(Debug)]
pub(crate) struct Walks {
    state: Mutex<ListedAhead>,
    at_once: Semaphore,
    stale: Duration,
    requests: Arc<ListRequests>,
}

impl Walks {
    /// A waiting listing is used for at most `ttl`.
    pub(crate) fn new(requests: Arc<ListRequests>, ttl: Duration) -> Self {
        let at_once = Semaphore::new(AT_ONCE);
        Self { state: Mutex::default(), at_once, stale: STALE.min(ttl), requests }
    }

    fn lock(&self) -> MutexGuard<'_, ListedAhead> {
        lock(&self.state)
    }

    /// The first page of the directory `prefix`, and when it was requested, if the directory was listed ahead, or is
    /// being listed.
    pub(crate) async fn take(&self, prefix: &str) -> Option<(ListPage, Asked)> {
        let (at, listed) = { self.lock().remove(prefix) }?;
        if at.elapsed() >= self.stale {
            return None;
        }
        let taken = match listed {
            Listed::Ready(page, came) => Some((page, Asked { sent: at, came })),
            Listed::UnderWay(task) => task.await.ok().flatten().map(|page| (page, Asked::since(at))),
        };
        taken.filter(|_| self.lock().moved_at.is_none_or(|moved_at| moved_at < at))
    }

    /// Notes that a folder was renamed: what was listed before is not used any more.
    pub(crate) fn note_folder_moved(&self) {
        self.lock().moved_at = Some(Instant::now());
    }

    /// Drops the listings that are too old.
    pub(crate) fn expire(&self) {
        self.lock().drop_stale(self.stale);
    }

    /// Lists `directory`, which lies in `parent`. Does nothing if the directory `is_open`, because then its walk has
    /// already reached it.
    pub(crate) fn list_ahead(
        self: &Arc<Self>,
        parent: &Arc<str>,
        directory: &str,
        is_open: impl Fn(&str) -> bool,
    ) {
        if self.stale.is_zero() {
            return;
        }
        let mut state = self.lock();
        // This is checked under the lock: a program that opens the directory after this finds the listing.
        if state.names >= MOST_NAMES || state.listed.contains_key(directory) || is_open(directory) {
            return;
        }
        let (directory, by_itself) = (Arc::<str>::from(directory), state.large.as_ref() == Some(parent));
        let (walks, parent, prefix) = (self.clone(), parent.clone(), directory.clone());
        let task = spawn(self.requests.runtime(), async move {
            // The semaphore is never closed.
            let _permit = walks.at_once.acquire().await.ok()?;
            if let Some(cache) = walks.requests.listing_cache()
                && cache.has_listing(&prefix).await
            {
                // The walk reads it from the disk by itself.
                return None;
            }
            let listed = walks.list(&parent, &prefix, by_itself).await;
            let page =
                listed.inspect_err(|error| tracing::debug!(%prefix, %error, "listing ahead failed")).ok()?;
            walks.lock().finish(&prefix, page)
        });
        state.listed.insert(directory, (Instant::now(), Listed::UnderWay(task)));
    }

    async fn list(
        &self,
        parent: &Arc<str>,
        prefix: &Arc<str>,
        by_itself: bool,
    ) -> Result<ListPage, NamesError> {
        if by_itself {
            return self.requests.first_page(prefix).await;
        }
        let (request, at) =
            (ListObjects { prefix: prefix.to_string(), ..ListObjects::default() }, Instant::now());
        let page = self.requests.list(request).await?;
        if page.next.is_some() {
            self.lock().large = Some(parent.clone());
            return self.requests.first_page(prefix).await;
        }
        let mut directories = directories(prefix, page);
        let page = directories.remove(&**prefix).unwrap_or_default();
        let mut state = self.lock();
        for (below, page) in directories {
            state.insert(below.into(), page, at);
        }
        Ok(page)
    }
}

impl ListedAhead {
    /// Keeps a page until its walk takes it, if there is room. Returns the page if the walk already waits for it.
    fn finish(&mut self, prefix: &Arc<str>, page: ListPage) -> Option<ListPage> {
        let Some((at, Listed::UnderWay(_))) = self.listed.get(prefix) else { return Some(page) };
        let at = *at;
        self.insert(prefix.clone(), page, at);
        None
    }

    fn insert(&mut self, prefix: Arc<str>, page: ListPage, at: Instant) {
        self.remove(&prefix);
        if self.names < MOST_NAMES {
            self.names += names(&page);
            self.listed.insert(prefix, (at, Listed::Ready(page, Instant::now())));
        }
    }

    fn remove(&mut self, prefix: &str) -> Option<(Instant, Listed)> {
        let removed = self.listed.remove(prefix)?;
        if let Listed::Ready(page, _) = &removed.1 {
            self.names -= names(page);
        }
        Some(removed)
    }

    fn drop_stale(&mut self, stale: Duration) {
        self.listed.retain(|_, (at, _)| at.elapsed() < stale);
        let ready = self.listed.values().map(|(_, listed)| match listed {
            Listed::Ready(page, _) => names(page),
            Listed::UnderWay(_) => 0,
        });
        self.names = ready.sum();
    }
}

fn names(page: &ListPage) -> usize {
    page.objects.len() + page.common_prefixes.len()
}

/// Splits the page of a listing without a delimiter into all directories at and below `prefix`. Each page equals that
/// of a listing of this directory alone.
fn directories(prefix: &str, mut page: ListPage) -> BTreeMap<String, ListPage> {
    // Not every store lists in order.
    page.objects.sort_by(|a, b| a.key.cmp(&b.key));
    let mut directories = BTreeMap::from([(prefix.to_owned(), ListPage::default())]);
    for object in page.objects {
        let Some(below) = object.key.strip_prefix(prefix) else { continue };
        let mut directory = prefix.to_owned();
        for part in below.split_inclusive('/').filter(|part| part.ends_with('/')) {
            let parent = directories.entry(directory.clone()).or_default();
            directory.push_str(part);
            if parent.common_prefixes.last() != Some(&directory) {
                parent.common_prefixes.push(directory.clone());
            }
        }
        directories.entry(directory).or_default().objects.push(object);
    }
    directories
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;
    use s3mount_bucket::Bucket;
    use s3mount_object::{ListObjects, ListPage, ObjectClient as _};
    use s3mount_testkit::MemoryClient;
    use tokio::runtime::Handle;

    use super::{AT_ONCE, MOST_NAMES, Walks, directories, names};
    use s3mount_names::ListRequests;

    #[tokio::test]
    async fn pages_that_nobody_takes_are_bounded() {
        const PER_FOLDER: usize = 900;
        let client = MemoryClient::new();
        for (folder, name) in (0..100).flat_map(|folder| (0..PER_FOLDER).map(move |name| (folder, name))) {
            client.put_synthetic(&format!("t/{folder:03}/{name:03}"), 1);
        }
        let (bucket, minute) = (Bucket::from(Arc::new(client)), Duration::from_secs(60));
        let requests = Arc::new(ListRequests::new(bucket, minute, None, Handle::current()));
        let walks = Arc::new(Walks::new(requests.clone(), minute));
        let folders: Vec<_> = (0..100).map(|folder| format!("t/{folder:03}/")).collect();
        for folder in &folders {
            walks.list_ahead(&"t/".into(), folder, |_| false);
        }
        while requests.succeeded() < 100 || walks.at_once.available_permits() < AT_ONCE {
            tokio::task::yield_now().await;
        }
        let mut kept = 0;
        for folder in &folders {
            if let Some((page, _)) = walks.take(folder).await {
                kept += names(&page);
            }
        }
        assert!((MOST_NAMES..MOST_NAMES + PER_FOLDER).contains(&kept), "{kept} names");
        assert_eq!(walks.lock().names, 0);
    }

    proptest! {
        #[test]
        fn directories_are_as_if_listed_alone(
            keys in proptest::collection::btree_set("p/[ab/\\-]{1,7}", 1..40),
        ) {
            let client = MemoryClient::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            keys.iter().for_each(|key| drop(client.put(key, "x")));
            let list = |prefix: &str, delimiter| -> ListPage {
                let request = ListObjects { prefix: prefix.to_owned(), delimiter, ..ListObjects::default() };
                runtime.block_on(client.list_objects(request)).expect("a page")
            };
            let found = directories("p/", list("p/", false));
            let mut left = vec!["p/".to_owned()];
            let mut count = 0;
            while let Some(prefix) = left.pop() {
                let alone = list(&prefix, true);
                prop_assert_eq!(found.get(&prefix), Some(&alone), "{}", prefix);
                left.extend(alone.common_prefixes);
                count += 1;
            }
            prop_assert_eq!(found.len(), count);
        }
    }
}
