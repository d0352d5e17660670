//! How a mount reaches the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    BucketInfo, ErrorKind, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient,
    ObjectError, ObjectId, ObjectMeta, PartBuffer, UploadParts,
};
use s3mount_testkit::MemoryClient;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::faults::{Fate, Plan};
use super::{By, SimStore};

/// The client of one mount.
#[derive(Debug)]
pub struct MountClient {
    pub(super) store: Arc<SimStore>,
    pub(super) by: By,
    is_dead: Arc<AtomicBool>,
    /// How many requests are under way that may change an object.
    changing: Arc<AtomicUsize>,
}

/// Counts a request while it is under way.
struct Counted(Option<Arc<AtomicUsize>>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, changes: bool) -> Self {
        if changes {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Self(changes.then(|| count.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A request under way. Dropping this gives it up.
struct UnderWay {
    task: JoinHandle<()>,
    goes_on: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.goes_on {
            self.task.abort();
        }
    }
}

/// What a request is to the store.
pub(super) struct Request {
    pub(super) operation: &'static str,
    pub(super) key: String,
    /// Whether it may change an object. Such a request may be done after its client has given it up.
    pub(super) changes: bool,
}

impl Request {
    pub(super) fn read(operation: &'static str, key: &str) -> Self {
        Self { operation, key: key.to_owned(), changes: false }
    }

    pub(super) fn write(operation: &'static str, key: &str) -> Self {
        Self { operation, key: key.to_owned(), changes: true }
    }
}

/// The operation that lists.
const LIST: &str = "ListObjectsV2";

/// The bucket in memory answers at once.
pub(super) fn at_once<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a bucket in memory never waits")
}

impl MountClient {
    /// The client of the mount of this number.
    pub fn new(store: Arc<SimStore>, number: usize) -> Arc<Self> {
        Arc::new(Self { store, by: By::Mount(number), is_dead: Arc::default(), changing: Arc::default() })
    }

    /// The daemon has died: it sends no more requests, and hears no more answers.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// Whether the daemon has died.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Whether anything is under way that may change an object.
    pub fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Relaxed) > 0
    }

    async fn wait_if_dead(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    fn begin(&self, request: &Request) -> (u64, Plan) {
        let plan = {
            let mut state = self.store.lock();
            *state.requests.entry(request.operation).or_default() += 1;
            let plan = self.store.faults.plan(&self.store.draw, state.sent, request.operation == LIST);
            if plan.fate != Fate::Answered {
                state.sent += 1;
            }
            plan
        };
        let tick = self.store.ticks.next();
        self.store.ticks.note(|| {
            let Request { operation, key, .. } = request;
            let fate = if plan.fate == Fate::Answered { String::new() } else { format!(" {:?}", plan.fate) };
            format!("        {:?} #{tick} {operation} {key}{fate}", self.by)
        });
        (tick, plan)
    }

    pub(super) async fn send<T: Send + 'static>(
        &self,
        request: Request,
        act: impl FnOnce(&MemoryClient) -> Result<T, ObjectError> + Send + 'static,
    ) -> Result<T, ObjectError> {
        self.wait_if_dead().await;
        let (tick, Plan { before, fate, after, goes_on }) = self.begin(&request);
        let (send, receive) = oneshot::channel();
        let (store, by) = (self.store.clone(), self.by);
        let changes_before = store.changes(&request.key);
        let Request { operation, key, changes } = request;
        let (is_dead, counted) = (self.is_dead.clone(), Counted::new(&self.changing, changes));
        let task = tokio::spawn(async move {
            let _counted = counted;
            let fail = |kind| Err(ObjectError::new(kind, operation, &key));
            let (mut send, mut answer) = (Some(send), None);
            sleep(before).await;
            match &fate {
                Fate::Refused(kind) => answer = Some(fail(kind.clone())),
                Fate::Late(kind, wait) => {
                    if let Some(send) = send.take() {
                        drop(send.send(fail(kind.clone())));
                    }
                    sleep(*wait).await;
                }
                Fate::Answered | Fate::Done(_) => {}
            }
            let is_given_up = send.as_ref().is_none_or(oneshot::Sender::is_closed);
            let is_late = is_given_up || is_dead.load(Ordering::Relaxed);
            if is_late && store.is_twin(operation, &key, changes_before) {
                return;
            }
            let was_removed = store.was_removed(&key, changes_before);
            if answer.is_none() {
                let done = store.change(by, operation, (&key, is_late && was_removed), act);
                store.ticks.note(|| {
                    let became =
                        done.as_ref().err().map_or("done".to_owned(), |error| format!("{:?}", error.kind()));
                    format!("        {by:?} #{tick} {operation} {key}: {became}")
                });
                answer = Some(match fate {
                    Fate::Done(kind) => fail(kind),
                    _ => done,
                });
            }
            sleep(after).await;
            if let (Some(send), Some(answer)) = (send, answer) {
                drop(send.send(answer));
            }
        });
        let mut under_way = UnderWay { task, goes_on: changes && goes_on };
        let answer = receive.await;
        // What is left to do is the store's.
        under_way.goes_on = true;
        self.wait_if_dead().await;
        answer.unwrap_or_else(|_| Err(ObjectError::new(ErrorKind::Cancelled, operation, "")))
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for MountClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        let key = request.object.key().to_owned();
        self.send(Request::read("GetObject", &key), move |bucket| at_once(bucket.get_object(request, into)))
            .boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            let asked = key.to_owned();
            let sent = self
                .send(Request::read("HeadObject", key), move |bucket| at_once(bucket.head_object(&asked)));
            let meta = sent.await?;
            self.store.note_seen(self.by, key, meta.etag.as_str());
            Ok(self.store.dated(key, meta))
        }
        .boxed()
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        let asked = object.clone();
        self.send(Request::read("HeadObject", object.key()), move |bucket| at_once(bucket.checksum(&asked)))
            .boxed()
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        let asked = object.clone();
        let request = Request::read("GetObjectAttributes", object.key());
        self.send(request, move |bucket| at_once(bucket.upload_parts(&asked, after))).boxed()
    }

    fn list_objects(&self, mut request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        let most = self.store.page;
        request.max_keys = Some(request.max_keys.unwrap_or(most).min(most));
        async move {
            let prefix = request.prefix.clone();
            let sent =
                self.send(Request::read(LIST, &prefix), move |bucket| at_once(bucket.list_objects(request)));
            let mut page = sent.await?;
            for object in &mut page.objects {
                self.store.note_seen(self.by, &object.key, object.meta.etag.as_str());
                object.meta = self.store.dated(&object.key, object.meta.clone());
            }
            Ok(page)
        }
        .boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async { Ok(BucketInfo { region: None }) }.boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.store.bucket.lists_in_order()
    }

    fn refused_requests(&self) -> u64 {
        0
    }

    fn repeated_requests(&self) -> u64 {
        0
    }
}
