//! A client that asks an index for names, and the store for bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    BucketInfo, ErrorKind, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient,
    ObjectError, ObjectId, ObjectMeta, PartBuffer, UploadParts,
};

use crate::error::ListedError;
use crate::file::index::Index;
use crate::names::Named;

/// The most names on a page that begins behind a name, as a look-up asks for it: the name that it wants is the first. A
/// store answers a page of 1,000 as fast as one of 100, and an index does not.
const LOOK_UP_NAMES: u32 = 100;

/// Answers LISTs and HEADs from the index of a list, and passes all other requests on to a client of the bucket.
#[derive(Debug)]
pub struct ListedClient<C: ?Sized = dyn ObjectClient> {
    names: Arc<Answers>,
    client: Arc<C>,
    has_told: AtomicBool,
}

#[derive(Debug)]
struct Answers {
    named: Named,
    is_damaged: AtomicBool,
}

impl<C: ObjectClient + ?Sized> ListedClient<C> {
    /// The bucket of `client`, with the names of a list.
    pub fn new(named: Named, client: Arc<C>) -> Self {
        let names = Arc::new(Answers { named, is_damaged: AtomicBool::new(false) });
        Self { names, client, has_told: AtomicBool::new(false) }
    }

    /// Tells once what to do about objects that are not as the list says.
    fn tell(&self, error: &ObjectError, key: &str) {
        let has_changed = matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable
        );
        if has_changed && !self.has_told.swap(true, Ordering::Relaxed) {
            let kind = error.kind();
            tracing::warn!(
                key,
                ?kind,
                "the bucket does not have the version that --names-from lists: its reads fail with ESTALE. Other objects may \
                 have changed, too, which is not logged again; mount anew with a newer list"
            );
        }
    }
}

impl Answers {
    /// Asks the index, on a thread that may wait for the disk.
    async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        (operation, target): (&'static str, String),
        question: impl FnOnce(&Index, &str) -> Result<T, ListedError> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let asked = tokio::task::spawn_blocking(move || {
            question(&self.named.index, &target).map_err(|error| self.failed(operation, &target, error))
        });
        // It ends early only if the runtime does.
        asked.await.unwrap_or_else(|_| Err(ObjectError::new(ErrorKind::Cancelled, operation, "")))
    }

    fn failed(&self, operation: &'static str, target: &str, error: ListedError) -> ObjectError {
        if !self.is_damaged.swap(true, Ordering::Relaxed) {
            let path = self.named.path.display();
            tracing::error!(%path, error = %error, "the index of names can't be read; mount anew to build it again");
            if self.named.is_kept && matches!(error, ListedError::Damaged(_)) {
                // The next mount builds it. Where it can't be removed, that fails as this one does.
                let _ = std::fs::remove_file(&self.named.path);
            }
        }
        // Another attempt would read the same.
        ObjectError::new(ErrorKind::Rejected, operation, target).with_source(error)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<C: ObjectClient + ?Sized> ObjectClient for ListedClient<C> {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        let object = request.object.clone();
        async move {
            let answer = self.client.get_object(request, into).await;
            answer.inspect_err(|error| self.tell(error, object.key()))
        }
        .boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        const OPERATION: &str = "HeadObject";
        let asked = self.names.clone().ask((OPERATION, key.to_owned()), Index::head);
        asked
            .map(move |found| found?.ok_or_else(|| ObjectError::new(ErrorKind::NotFound, OPERATION, key)))
            .boxed()
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        self.client.checksum(object)
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        self.client.upload_parts(object, after)
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        let target = request.prefix.clone();
        let is_look_up = request.start_after.is_some() && request.continuation.is_none();
        let most = request.max_keys.unwrap_or(u32::MAX).min(LOOK_UP_NAMES);
        let max_keys = if is_look_up { Some(most) } else { request.max_keys };
        let request = ListObjects { max_keys, ..request };
        self.names.clone().ask(("ListObjectsV2", target), move |index, _| index.list(&request)).boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        self.client.head_bucket()
    }

    fn refused_requests(&self) -> u64 {
        self.client.refused_requests()
    }

    fn repeated_requests(&self) -> u64 {
        self.client.repeated_requests()
    }

    fn lists_in_order(&self) -> bool {
        true
    }
}
