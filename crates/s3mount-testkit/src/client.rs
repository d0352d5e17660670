//! A bucket in memory, without a network, for tests of single layers.

mod failing;
mod faults;
mod rate;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use s3mount_object::{
    BucketInfo, ChecksumAlgorithm, ETag, ErrorKind, GetAnswer, GetObject, KeptChecksum, ListObjects,
    ListPage, ListedObject, NewObject, ObjectClient, ObjectError, ObjectId, ObjectMeta, Origin, PartBuffer,
    PutAnswer, PutObject, UploadParts, UserMetadata,
};

use self::faults::Faults;
use self::rate::Rate;
use crate::lent::Lent;
use crate::list::{Query, is_directory_prefix, page, unordered_page};
use crate::object::{Content, Object};
use crate::uploads::{Rules, Uploads};

/// How many requests of each operation came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// GetObject.
    pub get: usize,
    /// HeadObject.
    pub head: usize,
    /// ListObjectsV2.
    pub list: usize,
    /// GetObjectAttributes.
    pub attributes: usize,
    /// PutObject.
    pub put: usize,
}

/// An [`ObjectClient`] that has its objects in memory. It counts requests, and can be made slow or faulty.
#[derive(Debug, Default)]
pub struct MemoryClient(Mutex<BucketState>);

#[derive(Debug, Default)]
struct BucketState {
    objects: BTreeMap<String, Object>,
    requests: Requests,
    ranges: Vec<(String, Range<u64>)>,
    latency: Duration,
    faults: Faults,
    pages: VecDeque<ListPage>,
    stalls: VecDeque<Duration>,
    flips: VecDeque<bool>,
    no_checksums: bool,
    keeps_prefixes: bool,
    /// The length of the parts in which objects were uploaded, in bytes.
    upload_part: Option<u64>,
    refuses_attributes: bool,
    refuses_conditions: bool,
    refuses_uploads: bool,
    lists: Option<Rate>,
    /// Of GETs and HEADs, and of PUTs.
    rates: Option<[Rate; 2]>,
    frozen: bool,
    running: usize,
    most_running: usize,
    uploads: Uploads,
    rules: Rules,
    writes: BTreeMap<&'static str, usize>,
    is_directory_bucket: bool,
    /// How many opaque ETags were given, if they are opaque.
    opaque_etags: Option<u64>,
}

/// A GET that runs. Dropping this lowers the number of running GETs, also when the GET is dropped half-way.
struct Running<'a>(&'a MemoryClient);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl MemoryClient {
    /// An empty bucket.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BucketState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object, and returns its version.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) -> ObjectId {
        self.insert(key, Object::bytes(bytes.into()))
    }

    /// Puts an object of computed content (see [`content`](crate::content)).
    pub fn put_synthetic(&self, key: &str, size: u64) -> ObjectId {
        self.insert(key, Object::synthetic(key, size))
    }

    fn insert(&self, key: &str, mut object: Object) -> ObjectId {
        if let Some(len) = self.lock().upload_part {
            object.upload_in_parts(len);
        }
        let mut state = self.lock();
        let object = state.tagged(object);
        let id = ObjectId::new(key, ETag::new(&object.etag));
        state.objects.insert(key.to_owned(), object);
        id
    }

    /// Deletes an object.
    pub fn delete(&self, key: &str) {
        self.lock().objects.remove(key);
    }

    /// Makes each request wait this long.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Makes each of the next requests wait longer by one of these times, in this order.
    pub fn stall_next(&self, stalls: impl IntoIterator<Item = Duration>) {
        self.lock().stalls.extend(stalls);
    }

    /// Says for each of the next GETs, in order, whether a bit of its body is flipped.
    pub fn flip_next(&self, flips: impl IntoIterator<Item = bool>) {
        self.lock().flips.extend(flips);
    }

    /// Makes the store keep no checksums of objects.
    pub fn keep_no_checksums(&self) {
        self.lock().no_checksums = true;
    }

    /// Lists a prefix also when the key to start after lies below this prefix. S3 does not do so.
    pub fn keep_prefixes(&self) {
        self.lock().keeps_prefixes = true;
    }

    /// Makes the store keep the CRCs of parts of `len` bytes. This holds for objects that are longer than a
    /// part, and are put from now on.
    pub fn keep_part_checksums(&self, len: u64) {
        self.lock().upload_part = Some(len);
    }

    /// Gives each object that is written or copied from now on an ETag that no other object has, as S3 does to objects that
    /// it encrypts with KMS keys.
    pub fn give_opaque_etags(&self) {
        self.lock().opaque_etags = Some(0);
    }

    /// Refuses requests for the parts of an upload, as S3 refuses them to a caller without the permission.
    pub fn refuse_attributes(&self) {
        self.lock().refuses_attributes = true;
    }

    /// Refuses uploads with conditions by 501, as a store does that knows none.
    pub fn refuse_conditions(&self) {
        self.lock().refuses_conditions = true;
    }

    /// Makes the bucket a directory bucket: objects can be renamed, and listings are in no order.
    pub fn make_directory_bucket(&self) {
        self.lock().is_directory_bucket = true;
    }

    /// Refuses all uploads, as S3 refuses them to a caller without the permission.
    pub fn refuse_uploads(&self, refuses: bool) {
        self.lock().refuses_uploads = refuses;
    }

    /// The keys of all objects, in order.
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Flips one bit of the object at `key`, in the middle of its bytes, and leaves its version and its
    /// metadata as they are. Returns whether there is such an object, whose bytes are in memory.
    pub fn flip_stored_bit(&self, key: &str) -> bool {
        let mut state = self.lock();
        let Some(Content::Bytes(bytes)) = state.objects.get_mut(key).map(|object| &mut object.content) else {
            return false;
        };
        let mut flipped = bytes.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        *bytes = flipped.into();
        true
    }

    /// Answers the next LISTs with these pages, whatever the LISTs ask for. The last page answers all later
    /// LISTs.
    pub fn list_next(&self, pages: impl IntoIterator<Item = ListPage>) {
        self.lock().pages = pages.into_iter().collect();
    }

    /// Answers this many LISTs a second, and refuses the others.
    pub fn throttle_lists(&self, per_second: f64) {
        self.lock().lists = Some(Rate::new(per_second));
    }

    /// Answers so many GETs and HEADs a second, and so many PUTs, and refuses the others.
    pub fn throttle(&self, reads_per_second: f64, writes_per_second: f64) {
        self.lock().rates = Some([reads_per_second, writes_per_second].map(Rate::new));
    }

    /// How many GETs and HEADs, and how many PUTs, were refused because too many came.
    pub fn refused(&self) -> [usize; 2] {
        self.lock().rates.as_ref().map_or([0; 2], |rates| rates.each_ref().map(|rate| rate.refused))
    }

    /// How many LISTs were refused because too many came.
    pub fn refused_lists(&self) -> usize {
        self.lock().lists.as_ref().map_or(0, |rate| rate.refused)
    }

    /// While the client is frozen, it answers no request.
    pub fn freeze(&self, frozen: bool) {
        self.lock().frozen = frozen;
    }

    /// The requests since the last call of [`take_requests`](Self::take_requests).
    pub fn requests(&self) -> Requests {
        self.lock().requests
    }

    /// The ranges that were asked for since the last call of [`take_ranges`](Self::take_ranges).
    pub fn ranges(&self) -> Vec<(String, Range<u64>)> {
        self.lock().ranges.clone()
    }

    /// The requests since the last call of this method.
    pub fn take_requests(&self) -> Requests {
        std::mem::take(&mut self.lock().requests)
    }

    /// The ranges that were asked for since the last call of this method.
    pub fn take_ranges(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut self.lock().ranges)
    }

    /// How many GETs run now, and the largest number that ever ran at the same time.
    pub fn running(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.most_running)
    }

    async fn wait(&self, operation: &'static str, target: &str) -> Result<(), ObjectError> {
        let (latency, failure) = {
            let mut state = self.lock();
            let stall = state.stalls.pop_front().unwrap_or_default();
            let kind = usize::from(operation == "PutObject");
            let is_refused = state.rates.as_mut().is_some_and(|rates| rates[kind].is_empty());
            let failure = state.faults.failure().or(is_refused.then_some(ErrorKind::Throttled));
            (state.latency + stall, failure)
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        while self.lock().frozen {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        failure.map_or(Ok(()), |kind| Err(ObjectError::new(kind, operation, target)))
    }

    async fn get(&self, request: GetObject, into: Box<dyn PartBuffer>) -> Result<Bytes, ObjectError> {
        if request.object.etag().as_str().trim_matches('"').is_empty() {
            return Err(ObjectError::new(ErrorKind::NoEtag, "GetObject", request.object.key()));
        }
        let (bytes, _) = self.get_version(request, into).await?;
        Ok(bytes)
    }

    /// Like a GET, of whichever version is there where the ETag of the request is empty.
    async fn get_version(
        &self,
        request: GetObject,
        mut into: Box<dyn PartBuffer>,
    ) -> Result<(Bytes, UserMetadata), ObjectError> {
        let GetObject { object: id, range } = request;
        let fail = |kind| ObjectError::new(kind, "GetObject", id.key());
        if range.len() == 0 || range.len() > (*into).as_ref().len() as u64 {
            return Err(fail(ErrorKind::Rejected));
        }
        let is_flipped;
        let _running = {
            let mut state = self.lock();
            is_flipped = state.flips.pop_front().unwrap_or(false);
            state.requests.get += 1;
            state.ranges.push((id.key().to_owned(), range.start()..range.end()));
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            Running(self)
        };
        self.wait("GetObject", id.key()).await?;
        let object = self.lock().objects.get(id.key()).cloned().ok_or_else(|| fail(ErrorKind::NotFound))?;
        if !id.etag().as_str().is_empty() && object.etag != id.etag().as_str() {
            return Err(fail(ErrorKind::PreconditionFailed));
        }
        if range.end() > object.size {
            let is_behind = range.start() >= object.size;
            return Err(fail(if is_behind { ErrorKind::RangeNotSatisfiable } else { ErrorKind::Integrity }));
        }
        let len = range.len() as usize;
        let has_whole = |state: &BucketState| !state.no_checksums && state.part_len(&object).is_none();
        if is_flipped && range.len() == object.size && has_whole(&self.lock()) {
            // The checksum of the whole object comes with its bytes. By it, a client notices the flipped bit.
            return Err(fail(ErrorKind::Integrity));
        }
        let mut done = 0;
        while done < len {
            let piece = object
                .read(range.start() + done as u64, len - done)
                .map_err(|error| fail(ErrorKind::Server).with_source(error))?;
            (*into).as_mut()[done..done + piece.len()].copy_from_slice(&piece);
            done += piece.len();
        }
        if is_flipped {
            (*into).as_mut()[len / 2] ^= 1;
        }
        Ok((Bytes::from_owner(Lent(into)).slice(..len), object.beside.metadata))
    }

    async fn upload(&self, request: PutObject) -> Result<PutAnswer, ObjectError> {
        const OPERATION: &str = "PutObject";
        let PutObject { key, bytes, metadata, only_new } = request;
        self.lock().requests.put += 1;
        self.wait(OPERATION, &key).await?;
        let mut state = self.lock();
        if state.refuses_uploads {
            return Err(ObjectError::new(ErrorKind::Forbidden, OPERATION, &key));
        }
        if only_new && state.refuses_conditions {
            return Err(ObjectError::new(ErrorKind::Unsupported, OPERATION, &key));
        }
        if only_new && state.objects.contains_key(&key) {
            return Ok(PutAnswer::Exists);
        }
        // A store has memory of its own.
        let bytes = Bytes::copy_from_slice(&bytes);
        let beside = NewObject { metadata, ..NewObject::default() };
        let object = state.tagged(Object { beside, ..Object::bytes(bytes) });
        state.objects.insert(key, object);
        Ok(PutAnswer::Written)
    }
}

impl BucketState {
    /// The object that is kept under the key, if it is still the version that `object` names.
    fn version(&self, operation: &'static str, object: &ObjectId) -> Result<&Object, ObjectError> {
        let fail = |kind| ObjectError::new(kind, operation, object.key());
        let kept = self.objects.get(object.key()).ok_or_else(|| fail(ErrorKind::NotFound))?;
        let is_same = kept.etag == object.etag().as_str();
        is_same.then_some(kept).ok_or_else(|| fail(ErrorKind::PreconditionFailed))
    }

    /// The length of the parts in which `object` was uploaded, if there were several.
    fn part_len(&self, object: &Object) -> Option<u64> {
        self.upload_part.filter(|len| *len < object.size)
    }
}

/// Parts in a page of their attributes: few, so that tests see several pages.
const PARTS_IN_PAGE: usize = 3;

fn meta(object: &Object) -> ObjectMeta {
    ObjectMeta {
        etag: ETag::new(&object.etag),
        size: object.size,
        last_modified: object.modified,
        storage_class: object.beside.storage_class.clone(),
    }
}

impl ObjectClient for MemoryClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.get(request, into)
            .map_ok(|bytes| GetAnswer { bytes, origin: Origin::Store, is_compared: false, first_byte: None })
            .boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            self.lock().requests.head += 1;
            self.wait("HeadObject", key).await?;
            let state = self.lock();
            let object = state.objects.get(key);
            object.map(meta).ok_or_else(|| ObjectError::new(ErrorKind::NotFound, "HeadObject", key))
        }
        .boxed()
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        async move {
            self.lock().requests.head += 1;
            self.wait("HeadObject", object.key()).await?;
            let state = self.lock();
            let kept = state.version("HeadObject", object)?;
            if state.no_checksums {
                return Ok(KeptChecksum::None);
            }
            if state.part_len(kept).is_some() {
                return Ok(KeptChecksum::OfParts);
            }
            let whole = kept.checksum(ChecksumAlgorithm::Crc64Nvme);
            let fail = |error: std::io::Error| {
                ObjectError::new(ErrorKind::Server, "HeadObject", object.key()).with_source(error)
            };
            whole.map(KeptChecksum::Whole).map_err(fail)
        }
        .boxed()
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        const OPERATION: &str = "GetObjectAttributes";
        async move {
            self.lock().requests.attributes += 1;
            self.wait(OPERATION, object.key()).await?;
            let state = self.lock();
            if state.refuses_attributes {
                return Err(ObjectError::new(ErrorKind::Forbidden, OPERATION, object.key()));
            }
            let kept = state.version(OPERATION, object)?;
            let Some(len) = state.part_len(kept) else { return Ok(UploadParts::default()) };
            let fail = |error: std::io::Error| {
                ObjectError::new(ErrorKind::Server, OPERATION, object.key()).with_source(error)
            };
            let all = kept.parts(ChecksumAlgorithm::Crc32, len).map_err(fail)?;
            let parts: Vec<_> = all.iter().skip(after as usize).take(PARTS_IN_PAGE).copied().collect();
            let end = after + parts.len() as u32;
            Ok(UploadParts { parts, next: (all.len() as u32 > end).then_some(end) })
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        async move {
            self.lock().requests.list += 1;
            self.wait("ListObjectsV2", &request.prefix).await?;
            if self.lock().lists.as_mut().is_some_and(Rate::is_empty) {
                return Err(ObjectError::new(ErrorKind::Throttled, "ListObjectsV2", &request.prefix));
            }
            {
                let pages = &mut self.lock().pages;
                let next = if pages.len() > 1 { pages.pop_front() } else { pages.front().cloned() };
                if let Some(page) = next {
                    return Ok(page);
                }
            }
            let state = self.lock();
            let query = Query { keeps_prefixes: state.keeps_prefixes, ..Query::new(request.clone()) };
            let page = match state.is_directory_bucket {
                true if request.start_after.is_some() || !is_directory_prefix(&request.prefix) => {
                    return Err(ObjectError::new(ErrorKind::Rejected, "ListObjectsV2", &request.prefix));
                }
                true => unordered_page(&state.objects, &state.uploads.keys(), &query),
                false => page(&state.objects, &query),
            };
            let listed =
                |(key, object): (&String, &Object)| ListedObject { key: key.clone(), meta: meta(object) };
            Ok(ListPage {
                objects: page.objects.into_iter().map(listed).collect(),
                common_prefixes: page.prefixes,
                next: page.next,
            })
        }
        .boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async move { Ok(BucketInfo { region: None }) }.boxed()
    }

    fn lists_in_order(&self) -> bool {
        !self.lock().is_directory_bucket
    }
}
