//! Requests that change objects.

use futures::future::BoxFuture;
use s3mount_object::{
    Body, ByteRange, Completion, Condition, CopySource, Deletion, Description, ETag, LatestAnswer, NewObject,
    ObjectError, ObjectId, ObjectWriter, PartBuffer, PutAnswer, PutObject, UploadId, UploadsPage, Written,
    WrittenPart, WrittenParts,
};

use super::{Counted, MeasuredClient};
use crate::metrics::{ReadOperation, WriteOperation};

impl<C: ObjectWriter + ?Sized> MeasuredClient<C> {
    fn measure_write<'a, T: Send + 'a>(
        &'a self,
        operation: WriteOperation,
        (key, start, len): (&str, u64, u64),
        answer: BoxFuture<'a, Result<T, ObjectError>>,
    ) -> BoxFuture<'a, Result<T, ObjectError>> {
        let counted = Counted::Write(&self.writes, operation);
        self.measure_as(counted, self.subject(key, start, len), answer, |_| None)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<C: ObjectWriter + ?Sized> ObjectWriter for MeasuredClient<C> {
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>> {
        let subject = self.subject(&request.key, 0, request.bytes.len() as u64);
        let counted = Counted::Write(&self.writes, WriteOperation::Put);
        self.measure_as(counted, subject, self.client.put_object(request), |_| None)
    }

    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>> {
        let subject = self.subject(key, range.start(), range.len());
        self.measure_as(
            self.read(ReadOperation::Get),
            subject,
            self.client.get_latest(key, range, into),
            |_| None,
        )
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let subject = (key, 0, body.len());
        self.measure_write(WriteOperation::Put, subject, self.client.put(key, body, object, condition))
    }

    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>> {
        let answer = self.client.create_upload(key, object, has_checksums);
        self.measure_write(WriteOperation::CreateUpload, (key, 0, 0), answer)
    }

    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        let subject = (upload.key.as_str(), 0, body.len());
        self.measure_write(WriteOperation::UploadPart, subject, self.client.put_part(upload, number, body))
    }

    fn copy_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        source: &'a CopySource,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        let subject = (upload.key.as_str(), range.start(), range.len());
        let answer = self.client.copy_part(upload, number, source, range);
        self.measure_write(WriteOperation::CopyPart, subject, answer)
    }

    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let answer = self.client.complete(upload, parts, completion);
        self.measure_write(WriteOperation::CompleteUpload, (&upload.key, 0, 0), answer)
    }

    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.measure_write(WriteOperation::AbortUpload, (&upload.key, 0, 0), self.client.abort(upload))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>> {
        self.measure(ReadOperation::List, prefix, self.client.list_uploads(prefix, after))
    }

    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>> {
        self.measure(ReadOperation::List, &upload.key, self.client.list_parts(upload, after))
    }

    fn copy<'a>(
        &'a self,
        source: &'a CopySource,
        key: &'a str,
        object: Option<&'a NewObject>,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        let answer = self.client.copy(source, key, object, condition);
        self.measure_write(WriteOperation::Copy, (key, 0, 0), answer)
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>> {
        self.measure_write(WriteOperation::Delete, (key, 0, 0), self.client.delete(key, only))
    }

    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        condition: Option<&'a Condition>,
        token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        let answer = self.client.rename(source, key, condition, token);
        self.measure_write(WriteOperation::Rename, (key, 0, 0), answer)
    }

    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>> {
        self.measure(ReadOperation::Attributes, key, self.client.tags(key))
    }

    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>> {
        self.measure(ReadOperation::Head, key, self.client.describe(key))
    }
}
