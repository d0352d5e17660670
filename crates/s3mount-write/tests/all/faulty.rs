//! A store that fails, does what it was asked for and loses the answer, or is late.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    Body, BucketInfo, ByteRange, Completion, Condition, CopySource, Deletion, Description, ETag, ErrorKind,
    GetAnswer, GetObject, KeptChecksum, LatestAnswer, ListObjects, ListPage, NewObject, ObjectClient,
    ObjectError, ObjectId, ObjectMeta, ObjectWriter, PartBuffer, PutAnswer, PutObject, UploadId, UploadParts,
    UploadsPage, Written, WrittenPart, WrittenParts,
};
use s3mount_testkit::MemoryClient;

/// What happens to one request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It fails, and nothing is done.
    Fails(ErrorKind),
    /// It is done, and the answer is lost.
    IsLost,
    /// It takes this many milliseconds longer.
    IsLate(u64),
}

/// A store whose next requests have these faults.
#[derive(Debug)]
pub(crate) struct FaultyClient {
    pub(crate) store: Arc<MemoryClient>,
    faults: Mutex<VecDeque<Fault>>,
    /// How many uploads nobody can give up: their ids were lost, or the store refused it.
    pub(crate) orphans: AtomicUsize,
    /// How many parts came in several pieces.
    pub(crate) in_pieces: AtomicUsize,
}

impl FaultyClient {
    pub(crate) fn new(store: Arc<MemoryClient>) -> Arc<Self> {
        Arc::new(Self {
            store,
            faults: Mutex::default(),
            orphans: AtomicUsize::new(0),
            in_pieces: AtomicUsize::new(0),
        })
    }

    /// Gives the next requests these faults.
    pub(crate) fn add(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().expect("no panic").extend(faults);
    }

    /// Later requests have no faults.
    pub(crate) fn heal(&self) {
        self.faults.lock().expect("no panic").clear();
    }

    fn with<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        request: BoxFuture<'a, Result<T, ObjectError>>,
    ) -> BoxFuture<'a, Result<T, ObjectError>> {
        let fault = self.faults.lock().expect("no panic").pop_front().unwrap_or(Fault::None);
        let is_orphaned = matches!(
            (&fault, operation),
            (Fault::IsLost, "CreateMultipartUpload")
                | (Fault::Fails(ErrorKind::Forbidden), "AbortMultipartUpload")
        );
        self.orphans.fetch_add(usize::from(is_orphaned), Ordering::Relaxed);
        async move {
            match fault {
                Fault::None => request.await,
                Fault::Fails(kind) => Err(ObjectError::new(kind, operation, "a fault")),
                Fault::IsLost => {
                    request.await?;
                    Err(ObjectError::new(ErrorKind::Network, operation, "the answer is lost"))
                }
                Fault::IsLate(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    request.await
                }
            }
        }
        .boxed()
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for FaultyClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.with("GetObject", self.store.get_object(request, into))
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.store.head_object(key)
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        self.store.checksum(object)
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        self.store.upload_parts(object, after)
    }

    fn refused_requests(&self) -> u64 {
        self.store.refused_requests()
    }

    fn repeated_requests(&self) -> u64 {
        self.store.repeated_requests()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        self.store.list_objects(request)
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        self.store.head_bucket()
    }

    fn lists_in_order(&self) -> bool {
        self.store.lists_in_order()
    }
}

impl ObjectWriter for FaultyClient {
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>> {
        self.store.put_object(request)
    }

    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>> {
        self.store.get_latest(key, range, into)
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        self.with("PutObject", ObjectWriter::put(&*self.store, key, body, object, condition))
    }

    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>> {
        self.with("CreateMultipartUpload", self.store.create_upload(key, object, has_checksums))
    }

    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        self.in_pieces.fetch_add(usize::from(body.pieces().len() > 1), Ordering::Relaxed);
        self.with("UploadPart", self.store.put_part(upload, number, body))
    }

    fn copy_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        source: &'a CopySource,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        self.with("UploadPartCopy", self.store.copy_part(upload, number, source, range))
    }

    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let answer = self.with("CompleteMultipartUpload", self.store.complete(upload, parts, completion));
        async move {
            let answer = answer.await;
            if answer.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Conflict) {
                // S3 wants such an upload anew.
                let _ = self.store.abort(upload).await;
            }
            answer
        }
        .boxed()
    }

    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.with("AbortMultipartUpload", self.store.abort(upload))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>> {
        self.store.list_uploads(prefix, after)
    }

    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>> {
        self.with("ListParts", self.store.list_parts(upload, after))
    }

    fn copy<'a>(
        &'a self,
        source: &'a CopySource,
        key: &'a str,
        object: Option<&'a NewObject>,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        self.with("CopyObject", self.store.copy(source, key, object, condition))
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>> {
        self.with("DeleteObject", ObjectWriter::delete(&*self.store, key, only))
    }

    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        condition: Option<&'a Condition>,
        token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.store.rename(source, key, condition, token)
    }

    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>> {
        self.with("GetObjectTagging", self.store.tags(key))
    }

    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>> {
        self.with("HeadObject", self.store.describe(key))
    }
}
