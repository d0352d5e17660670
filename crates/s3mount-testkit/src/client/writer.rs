//! How the client in memory implements [`ObjectWriter`].

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use s3mount_object::{
    Body, ByteRange, ChecksumAlgorithm, Completion, Condition, CopySource, Deletion, Description, ETag,
    ErrorKind, GetObject, LatestAnswer, ListedUpload, NewObject, ObjectChecksum, ObjectError, ObjectId,
    ObjectWriter, PartBuffer, PutAnswer, PutObject, UploadId, UploadsPage, Written, WrittenPart,
    WrittenParts,
};

use super::{BucketState, MemoryClient, meta};
use crate::object::{Content, Object, now, tag};
use crate::random::opaque_tag;
use crate::sums::{Kept, Sum, Value};
use crate::uploads::{MAX_PART, Named, Part, Refused, Upload, Whole, check_condition, precondition_failed};

/// Entries in a page of uploads or parts: few, so that tests see several pages.
const PAGE: usize = 3;

/// The kind of error that a client makes of S3's code.
fn kind(refused: &Refused) -> ErrorKind {
    match (refused.code, refused.status) {
        ("NoSuchUpload", _) => ErrorKind::NoSuchUpload,
        ("InvalidPart" | "InvalidPartOrder" | "EntityTooSmall", _) => ErrorKind::InvalidPart,
        ("BadDigest", _) => ErrorKind::BadChecksum,
        (_, 404) => ErrorKind::NotFound,
        (_, 412) => ErrorKind::PreconditionFailed,
        (_, 501) => ErrorKind::Unsupported,
        _ => ErrorKind::Rejected,
    }
}

fn crc(value: &Value) -> ObjectChecksum {
    ObjectChecksum { algorithm: ChecksumAlgorithm::Crc64Nvme, value: value.crc() }
}

fn written(object: &Object) -> Written {
    let checksum = object
        .kept
        .as_ref()
        .and_then(|kept| ObjectChecksum::from_base64(ChecksumAlgorithm::Crc64Nvme, &kept.text));
    Written { etag: ETag::new(&object.etag), checksum, may_come_again: false }
}

impl BucketState {
    /// Refuses what the test asks to refuse, and writes whose condition does not hold.
    fn check_write(&self, key: &str, condition: Option<&Condition>) -> Result<(), ErrorKind> {
        if self.refuses_uploads {
            return Err(ErrorKind::Forbidden);
        }
        if condition.is_some() && self.refuses_conditions {
            return Err(ErrorKind::Unsupported);
        }
        let (if_match, if_none_match) = match condition {
            Some(Condition::Matches(version)) => (Some(version.as_str()), None),
            Some(Condition::Absent) => (None, Some("*")),
            None => (None, None),
        };
        check_condition(self.objects.get(key), if_match, if_none_match).map_err(|refused| kind(&refused))
    }

    /// An object that is written, with its ETag.
    pub(super) fn tagged(&mut self, object: Object) -> Object {
        let Some(given) = &mut self.opaque_etags else { return object };
        *given += 1;
        let tag = opaque_tag(*given);
        // That of an upload ends with the number of its parts.
        let parts = object.etag.trim_matches('"').split_once('-').map(|(_, parts)| format!("-{parts}"));
        Object { etag: format!("\"{tag}{}\"", parts.unwrap_or_default()), ..object }
    }

    /// The version that a copy is made of.
    fn source(&self, source: &CopySource) -> Result<&Object, ErrorKind> {
        if source.bucket.is_some() {
            return Err(ErrorKind::NoSuchBucket);
        }
        let object = self.objects.get(source.object.key()).ok_or(ErrorKind::NotFound)?;
        let is_same = object.etag == source.object.etag().as_str();
        is_same.then_some(object).ok_or_else(|| kind(&precondition_failed()))
    }
}

/// The bytes of a body and their CRC. A store has memory of its own, so they are copied.
fn received(body: Body) -> Result<(Bytes, Value), ErrorKind> {
    let sent = body.checksum();
    let bytes = Bytes::copy_from_slice(&body.into_bytes());
    let sum = |sum: Sum| {
        let mut running = sum.start();
        running.update(&bytes);
        running.finish()
    };
    let is_same =
        |sent: ObjectChecksum| sum(Sum::Crc(sent.algorithm)) == Value::of_crc(sent.algorithm, sent.value);
    if sent.is_some_and(|sent| !is_same(sent)) {
        return Err(ErrorKind::BadChecksum);
    }
    let value = sum(Sum::DEFAULT);
    Ok((bytes, value))
}

impl MemoryClient {
    /// Sends a request that writes: `act` does it.
    async fn write<T>(
        &self,
        operation: &'static str,
        key: &str,
        act: impl FnOnce(&mut BucketState) -> Result<T, ErrorKind>,
    ) -> Result<T, ObjectError> {
        *self.lock().writes.entry(operation).or_default() += 1;
        self.wait(operation, key).await?;
        let mut state = self.lock();
        let done = act(&mut state).and_then(|answer| state.faults.lost_answer().map_or(Ok(answer), Err));
        done.map_err(|kind| ObjectError::new(kind, operation, key))
    }

    /// Says when the object at `key` was written, if there is one.
    pub fn set_modified(&self, key: &str, modified: SystemTime) {
        if let Some(object) = self.lock().objects.get_mut(key) {
            object.modified = modified;
        }
    }

    /// How many requests of each operation that writes came since the last call of this method, by the names
    /// that S3 has for them.
    pub fn take_writes(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.lock().writes)
    }

    /// Sets the smallest part but the last that an upload may have, in bytes. S3 has 5 MiB, and so has this
    /// client without this call.
    pub fn set_min_part(&self, bytes: u64) {
        self.lock().rules.min_part = bytes;
    }

    /// The uploads that are neither complete nor aborted, in the order of their keys.
    pub fn open_uploads(&self) -> Vec<UploadId> {
        let state = self.lock();
        let (all, _) = state.uploads.list("", None, usize::MAX);
        let id = |(key, id, _): (&str, &str, _)| UploadId { key: key.to_owned(), id: id.to_owned() };
        all.into_iter().map(id).collect()
    }

    /// All bytes of the object at `key`, and what it has beside them.
    ///
    /// # Panics
    /// When there is no such object, or its file can't be read.
    pub fn stored(&self, key: &str) -> (Vec<u8>, NewObject) {
        let object = self.lock().objects.get(key).cloned().unwrap_or_else(|| panic!("no object {key:?}"));
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < object.size {
            let piece = object.read(bytes.len() as u64, 1 << 20);
            bytes.extend_from_slice(&piece.expect("the object's bytes"));
        }
        (bytes, object.beside)
    }
}

impl ObjectWriter for MemoryClient {
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>> {
        self.upload(request).boxed()
    }

    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>> {
        let request = GetObject { object: ObjectId::new(key, ETag::new("")), range };
        self.get_version(request, into).map_ok(|(bytes, metadata)| LatestAnswer { bytes, metadata }).boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        self.write("PutObject", key, move |state| {
            let (bytes, value) = received(body)?;
            state.check_write(key, condition)?;
            let kept = Some(Kept::whole(Sum::DEFAULT, &value));
            let object = state.tagged(Object { beside: object.clone(), kept, ..Object::bytes(bytes) });
            let answer = written(&object);
            state.objects.insert(key.to_owned(), object);
            Ok(answer)
        })
        .boxed()
    }

    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>> {
        self.write("CreateMultipartUpload", key, move |state| {
            state.check_write(key, None)?;
            let upload = Upload { demands_sums: has_checksums, ..Upload::new(object.clone()) };
            Ok(UploadId { key: key.to_owned(), id: state.uploads.create(key, upload) })
        })
        .boxed()
    }

    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        self.write("UploadPart", &upload.key, move |state| {
            let (len, has_sum) = (body.len(), body.checksum().is_some());
            let (bytes, value) = received(body)?;
            let UploadId { key, id } = upload;
            let open = state.uploads.get(key, id).map_err(|refused| kind(&refused))?;
            if open.demands_sums && !has_sum {
                return Err(ErrorKind::Rejected);
            }
            let (etag, checksum) = (ETag::new(&format!("\"{}\"", tag(&bytes))), Some(crc(&value)));
            let part = Part { len, tag: tag(&bytes), content: Content::Bytes(bytes), value, modified: now() };
            state.uploads.put(key, id, number, part).map_err(|refused| kind(&refused))?;
            Ok(WrittenPart { number, etag, len, checksum })
        })
        .boxed()
    }

    fn copy_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        source: &'a CopySource,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        self.write("UploadPartCopy", &upload.key, move |state| {
            let object = state.source(source)?;
            if range.len() == 0 || range.end() > object.size {
                return Err(ErrorKind::Rejected);
            }
            let sum = object.checksum_of(ChecksumAlgorithm::Crc64Nvme, range.start(), range.end());
            let sum = sum.map_err(|_| ErrorKind::Server)?;
            let content = object.content.range(range.start()..range.end());
            let (len, tag) = (range.len(), format!("{:032x}", sum.value));
            let value = Value::of_crc(sum.algorithm, sum.value);
            let etag = ETag::new(&format!("\"{tag}\""));
            let part = Part { len, tag, content, value, modified: now() };
            let added = state.uploads.put(&upload.key, &upload.id, number, part);
            added.map_err(|refused| kind(&refused))?;
            Ok(WrittenPart { number, etag, len, checksum: Some(sum) })
        })
        .boxed()
    }

    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        self.write("CompleteMultipartUpload", &upload.key, move |state| {
            let UploadId { key, id } = upload;
            let named = parts.iter().map(|part| Named {
                number: part.number,
                tag: part.etag.as_str().trim_matches('"').to_owned(),
                value: None,
            });
            let value = completion.checksum.map(|sum| (Sum::Crc(sum.algorithm), sum.to_base64()));
            let whole = Whole { size: Some(parts.iter().map(|part| part.len).sum()), kind: None, value };
            let named: Vec<Named> = named.collect();
            let joined = state.uploads.join(key, id, &named, &whole, state.rules);
            let object = joined.map_err(|refused| kind(&refused))?;
            state.check_write(key, completion.condition.as_ref())?;
            let object = state.tagged(object);
            let answer = written(&object);
            state.objects.insert(key.clone(), object);
            state.uploads.abort(key, id).map_err(|refused| kind(&refused))?;
            Ok(answer)
        })
        .boxed()
    }

    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.write("AbortMultipartUpload", &upload.key, move |state| {
            // An upload that is not there is a success.
            let _ = state.uploads.abort(&upload.key, &upload.id);
            Ok(())
        })
        .boxed()
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>> {
        self.write("ListMultipartUploads", prefix, move |state| {
            let after = after.map(|after| (after.key.as_str(), after.id.as_str()));
            let (page, has_more) = state.uploads.list(prefix, after, PAGE);
            let listed = |(key, id, upload): (&str, &str, &Upload)| ListedUpload {
                upload: UploadId { key: key.to_owned(), id: id.to_owned() },
                initiated: upload.initiated,
            };
            let uploads: Vec<_> = page.into_iter().map(listed).collect();
            let next = uploads.last().filter(|_| has_more).map(|last| last.upload.clone());
            Ok(UploadsPage { uploads, next })
        })
        .boxed()
    }

    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>> {
        self.write("ListParts", &upload.key, move |state| {
            let open = state.uploads.get(&upload.key, &upload.id).map_err(|refused| kind(&refused))?;
            let mut behind = open.parts.range(after + 1..);
            let part = |(number, part): (&u32, &Part)| WrittenPart {
                number: *number,
                etag: ETag::new(&format!("\"{}\"", part.tag)),
                len: part.len,
                checksum: Some(crc(&part.value)),
            };
            let parts: Vec<_> = behind.by_ref().take(PAGE).map(part).collect();
            let next = parts.last().filter(|_| behind.next().is_some()).map(|last| last.number);
            Ok(WrittenParts { parts, next })
        })
        .boxed()
    }

    fn copy<'a>(
        &'a self,
        source: &'a CopySource,
        key: &'a str,
        object: Option<&'a NewObject>,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        self.write("CopyObject", key, move |state| {
            state.check_write(key, condition)?;
            let mut copy = state.source(source)?.clone();
            if copy.size > MAX_PART {
                return Err(ErrorKind::Rejected);
            }
            copy.modified = now();
            let tags = copy.beside.tags.take();
            copy.beside = match object {
                Some(object) => object.clone(),
                // The bucket decides on these.
                None => NewObject { storage_class: None, encryption: None, ..copy.beside },
            };
            copy.beside.tags = copy.beside.tags.or(tags);
            let copy = state.tagged(copy);
            let answer = written(&copy);
            state.objects.insert(key.to_owned(), copy);
            Ok(answer)
        })
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>> {
        self.write("DeleteObject", key, move |state| {
            state.check_write(key, only.cloned().map(Condition::Matches).as_ref())?;
            state.objects.remove(key);
            Ok(Deletion { may_come_again: false })
        })
        .boxed()
    }

    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        condition: Option<&'a Condition>,
        _token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.write("RenameObject", key, move |state| {
            if !state.is_directory_bucket {
                return Err(ErrorKind::Unsupported);
            }
            state.check_write(key, condition)?;
            state.source(&CopySource { bucket: None, object: source.clone() })?;
            if let Some(object) = state.objects.remove(source.key()) {
                state.objects.insert(key.to_owned(), object);
            }
            Ok(())
        })
        .boxed()
    }

    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>> {
        async move {
            self.wait("GetObjectTagging", key).await?;
            let fail = |kind| ObjectError::new(kind, "GetObjectTagging", key);
            let state = self.lock();
            let object = state.objects.get(key).ok_or_else(|| fail(ErrorKind::NotFound))?;
            Ok(object.beside.tags.clone())
        }
        .boxed()
    }

    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>> {
        async move {
            self.lock().requests.head += 1;
            self.wait("HeadObject", key).await?;
            let fail = |kind| ObjectError::new(kind, "HeadObject", key);
            let object = self.lock().objects.get(key).cloned().ok_or_else(|| fail(ErrorKind::NotFound))?;
            let checksum = object.checksum(ChecksumAlgorithm::Crc64Nvme);
            let checksum = checksum.map_err(|error| fail(ErrorKind::Server).with_source(error))?;
            let checksum = Some(checksum).filter(|_| !self.lock().no_checksums);
            let beside = NewObject { tags: None, ..object.beside.clone() };
            let tags =
                object.beside.tags.iter().flat_map(|tags| tags.split('&')).filter(|tag| !tag.is_empty());
            let tag_count = u32::try_from(tags.count()).unwrap_or(u32::MAX);
            Ok(Description { meta: meta(&object), object: beside, tag_count, checksum })
        }
        .boxed()
    }
}
