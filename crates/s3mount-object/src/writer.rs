//! What a client can do that may also write.

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{
    Body, ByteRange, Completion, Condition, CopySource, Deletion, Description, NewObject, ObjectClient,
    ObjectError, ObjectId, PartBuffer, UploadId, UploadsPage, UserMetadata, Written, WrittenPart,
    WrittenParts,
};

/// One upload of a whole object.
#[derive(Clone, Debug)]
pub struct PutObject {
    /// The whole key.
    pub key: String,
    /// All bytes of the object.
    pub bytes: Bytes,
    /// What the store keeps beside the bytes.
    pub metadata: UserMetadata,
    /// Writes only where no object is (`If-None-Match: *`).
    pub only_new: bool,
}

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    /// The store has the object.
    Written,
    /// Another object is at the key, or is being written there, and stays. Only uploads with
    /// [`only_new`](PutObject::only_new) end so.
    Exists,
}

/// What a GET of whichever version is there brings.
#[derive(Clone, Debug)]
pub struct LatestAnswer {
    /// The bytes of the range, in the memory that was lent.
    pub bytes: Bytes,
    /// What the store keeps beside the object.
    pub metadata: UserMetadata,
}

/// A store that may be written to.
///
/// Every future may be dropped at any time. Its request is then cancelled, and the store may still do it. A
/// request that fails [may have been done](ObjectError::may_be_done), too: the answer can be lost. So who
/// sends a request again may meet its own success. A client that does so by itself says so in the error.
///
/// - A write with a [`Condition`] then fails by `PreconditionFailed` or `NotFound`, [`complete`](Self::complete)
///   also by `NoSuchUpload`. [`describe`](Self::describe) tells whether the version that is there has the
///   ETag, the checksum or the size of one's own.
/// - All others may be sent again without harm. But of two attempts at one part, the later one replaces the
///   earlier one, and may come with another ETag. So a part must not be sent twice at the same time, and when
///   [`complete`](Self::complete) fails by `InvalidPart`, [`list_parts`](Self::list_parts) tells what the store
///   has.
///
/// # Errors of all writes
/// [`Forbidden`](crate::ErrorKind::Forbidden) when the caller may not write;
/// [`PreconditionFailed`](crate::ErrorKind::PreconditionFailed) when the condition does not hold, and
/// [`NotFound`](crate::ErrorKind::NotFound) for [`Condition::Matches`] when no object is there;
/// [`Conflict`](crate::ErrorKind::Conflict) when another write to the key is under way;
/// [`Unsupported`](crate::ErrorKind::Unsupported) from a store that says that it does not know conditions, or
/// this request; [`TooLarge`](crate::ErrorKind::TooLarge) and [`NoSpace`](crate::ErrorKind::NoSpace);
/// [`BadChecksum`](crate::ErrorKind::BadChecksum) when the store received other bytes than were sent.
pub trait ObjectWriter: ObjectClient {
    /// Writes an object whole, in one request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an upload with
    /// [`only_new`](PutObject::only_new) to a store that says that it knows no conditions;
    /// [`Forbidden`](crate::ErrorKind::Forbidden) when the caller may not write.
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>>;

    /// Reads a range of whichever version is at `key`, like [`get_object`](ObjectClient::get_object), and
    /// brings the version's metadata with it.
    ///
    /// # Errors
    /// Those of `get_object`, except that no version can be the wrong one.
    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>>;

    /// Writes an object whole, in one request (PutObject). S3 takes up to 5 GiB.
    ///
    /// # Errors
    /// Those of all writes.
    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>>;

    /// Begins an upload in parts (CreateMultipartUpload). With `has_checksums`, each part that is
    /// [put](Self::put_part) has to bring its CRC-64/NVME, and [`complete`](Self::complete) that of all bytes.
    ///
    /// # Errors
    /// Those of all writes.
    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>>;

    /// Writes one part of an upload, with a number from 1 to 10,000 (UploadPart). It replaces the part that
    /// had this number. S3 takes 5 MiB to 5 GiB, and less for the last part.
    ///
    /// # Errors
    /// Those of all writes; [`NoSuchUpload`](crate::ErrorKind::NoSuchUpload) when the upload was completed or
    /// aborted.
    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>>;

    /// Makes a part of an upload out of a range of an object, inside the store (UploadPartCopy).
    ///
    /// # Errors
    /// Those of [`put_part`](Self::put_part); `PreconditionFailed` and `NotFound` of the source.
    fn copy_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        source: &'a CopySource,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>>;

    /// Makes an object of the parts (CompleteMultipartUpload). They are in the order of their numbers, and are
    /// those that the store's answers named.
    ///
    /// # Errors
    /// Those of all writes; [`NoSuchUpload`](crate::ErrorKind::NoSuchUpload);
    /// [`InvalidPart`](crate::ErrorKind::InvalidPart) when the store has another part under a number, or a
    /// part is too small. After a [`Conflict`](crate::ErrorKind::Conflict) S3 wants the whole upload anew.
    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>>;

    /// Gives an upload up (AbortMultipartUpload). An upload that the store does not have is a success. A part
    /// that is under way at the same time may stay: S3 asks to abort again after it.
    ///
    /// # Errors
    /// Those of all writes.
    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>>;

    /// One page of the uploads that are not complete, to keys that begin with `prefix`
    /// (ListMultipartUploads): those after the upload `after`, which need not exist any more.
    ///
    /// # Errors
    /// Those of the request.
    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>>;

    /// One page of the parts that the store has of an upload: those after part number `after` (ListParts).
    ///
    /// # Errors
    /// [`NoSuchUpload`](crate::ErrorKind::NoSuchUpload), and those of the request.
    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>>;

    /// Copies an object of up to 5 GiB inside the store, in one request (CopyObject). With `object`, the copy
    /// has this beside its bytes, and the source's tags if it names none. Without it, the copy has the source's
    /// metadata and tags, and the storage class and the encryption that the bucket gives to new objects.
    ///
    /// # Errors
    /// Those of all writes; `PreconditionFailed` and `NotFound` of the source.
    fn copy<'a>(
        &'a self,
        source: &'a CopySource,
        key: &'a str,
        object: Option<&'a NewObject>,
        condition: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>>;

    /// Deletes the object at `key`, if there is one (DeleteObject). With `only`, it is deleted only while it
    /// is that version.
    ///
    /// # Errors
    /// Those of all writes.
    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a crate::ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>>;

    /// Gives an object another key (RenameObject). Only directory buckets of S3 can do so. `token` names this
    /// rename: the same rename, sent again, succeeds again.
    ///
    /// # Errors
    /// Those of all writes; `Unsupported` from all stores that can't.
    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        condition: Option<&'a Condition>,
        token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>>;

    /// The tags of the object at `key`, as [`NewObject::tags`] has them (GetObjectTagging). `None` for an object
    /// without tags. A HEAD does not tell them, and only a copy by one request takes them over by itself.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Forbidden`](crate::ErrorKind::Forbidden) for a caller who may
    /// read the object, and may not read its tags; `Unsupported` from a store without tags.
    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>>;

    /// All that a HEAD says of the object at `key`. After a lost answer, this tells whether the write was
    /// done. Before a copy in parts, this tells what to write beside the copy's bytes.
    ///
    /// # Errors
    /// Those of [`head_object`](ObjectClient::head_object).
    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>>;
}
