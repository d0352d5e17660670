//! How a mount writes to the store.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    Body, ByteRange, Completion, Condition, CopySource, Deletion, Description, ETag, LatestAnswer, NewObject,
    ObjectError, ObjectId, ObjectWriter, PartBuffer, PutAnswer, PutObject, UploadId, UploadsPage, Written,
    WrittenPart, WrittenParts,
};

use super::BEGIN;
use super::client::{MountClient, Request, at_once};

/// The bytes as they are sent, in memory of their own: the caller may have its memory back.
fn sent(body: Body) -> Body {
    let sum = body.checksum();
    let bytes = Bytes::copy_from_slice(&body.into_bytes());
    sum.into_iter().fold(Body::from(bytes), Body::with_checksum)
}

impl ObjectWriter for MountClient {
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>> {
        let named = Request::write("PutObject", &request.key);
        self.send(named, move |bucket| at_once(bucket.put_object(request))).boxed()
    }

    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>> {
        let asked = key.to_owned();
        self.send(Request::read("GetObject", key), move |bucket| {
            at_once(bucket.get_latest(&asked, range, into))
        })
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let (at, body, object, condition) = (key.to_owned(), sent(body), object.clone(), condition.cloned());
        self.send(Request::write("PutObject", key), move |bucket| {
            at_once(ObjectWriter::put(bucket, &at, body, &object, condition.as_ref()))
        })
        .boxed()
    }

    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>> {
        let (at, object) = (key.to_owned(), object.clone());
        self.send(Request::write("CreateMultipartUpload", key), move |bucket| {
            at_once(bucket.create_upload(&at, &object, has_checksums))
        })
        .boxed()
    }

    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        let (to, body) = (upload.clone(), sent(body));
        self.send(Request::write("UploadPart", &upload.key), move |bucket| {
            at_once(bucket.put_part(&to, number, body))
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
        let (to, source) = (upload.clone(), source.clone());
        self.send(Request::write("UploadPartCopy", &upload.key), move |bucket| {
            at_once(bucket.copy_part(&to, number, &source, range))
        })
        .boxed()
    }

    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let (to, parts, completion) = (upload.clone(), parts.to_vec(), completion.clone());
        self.send(Request::write("CompleteMultipartUpload", &upload.key), move |bucket| {
            at_once(bucket.complete(&to, &parts, &completion))
        })
        .boxed()
    }

    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>> {
        let of = upload.clone();
        self.send(Request::write("AbortMultipartUpload", &upload.key), move |bucket| {
            at_once(bucket.abort(&of))
        })
        .boxed()
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>> {
        async move {
            let (below, after) = (prefix.to_owned(), after.cloned());
            let listed = self.send(Request::read("ListMultipartUploads", prefix), move |bucket| {
                at_once(bucket.list_uploads(&below, after.as_ref()))
            });
            let mut page = listed.await?;
            // The bucket in memory has the machine's time.
            page.uploads.iter_mut().for_each(|listed| listed.initiated = UNIX_EPOCH + BEGIN);
            Ok(page)
        }
        .boxed()
    }

    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>> {
        let of = upload.clone();
        self.send(Request::read("ListParts", &upload.key), move |bucket| {
            at_once(bucket.list_parts(&of, after))
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
        let (source, to, object, condition) =
            (source.clone(), key.to_owned(), object.cloned(), condition.cloned());
        self.send(Request::write("CopyObject", key), move |bucket| {
            at_once(bucket.copy(&source, &to, object.as_ref(), condition.as_ref()))
        })
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>> {
        let (at, only) = (key.to_owned(), only.cloned());
        self.send(Request::write("DeleteObject", key), move |bucket| {
            at_once(ObjectWriter::delete(bucket, &at, only.as_ref()))
        })
        .boxed()
    }

    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        condition: Option<&'a Condition>,
        token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        let (source, to, condition, token) =
            (source.clone(), key.to_owned(), condition.cloned(), token.to_owned());
        self.send(Request::write("RenameObject", key), move |bucket| {
            at_once(bucket.rename(&source, &to, condition.as_ref(), &token))
        })
        .boxed()
    }

    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>> {
        let of = key.to_owned();
        self.send(Request::read("GetObjectTagging", key), move |bucket| at_once(bucket.tags(&of))).boxed()
    }

    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>> {
        async move {
            let of = key.to_owned();
            let sent =
                self.send(Request::read("HeadObject", key), move |bucket| at_once(bucket.describe(&of)));
            let description = sent.await?;
            self.store.note_seen(self.by, key, description.meta.etag.as_str());
            Ok(Description { meta: self.store.dated(key, description.meta), ..description })
        }
        .boxed()
    }
}
