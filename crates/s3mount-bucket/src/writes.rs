//! Requests that change objects, and questions that only writers have.
//!
//! A write that returns [`Written`] is done, also if its answer was lost: see [`own`](crate::own).

use std::sync::atomic::Ordering;

use s3mount_object::{
    Body, ByteRange, Completion, Condition, CopySource, Description, ETag, ErrorKind, NewObject, ObjectError,
    ObjectId, ObjectWriter, UploadId, UploadsPage, Written, WrittenPart,
};

use crate::own::{MARK, Mark, Own, marked};
use crate::{Bucket, Failure, Operation};

/// The key and the upload by which a store is asked for what it knows. There is none of the kind.
const NO_OBJECT: &str = ".s3mount";
const NO_UPLOAD: &str = "none";

/// What became of a version that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone: this request has deleted it, or somebody else had.
    Gone,
    /// Another version was at its key, which stays. This request has deleted nothing.
    Replaced,
}

impl<C: ObjectWriter + ?Sized> Bucket<C> {
    /// Has the marks of all writes from now on begin with this number, which all daemons of a mount have in common. It can
    /// be set once.
    pub fn join_family(&self, family: u32) {
        // A second one changes nothing.
        let _ = self.door.family.set(family);
    }

    /// Another daemon of this `family` may have had a write of `key` under way when it died, for the file with this number,
    /// which changes only the version `awaited`: a write that meets it replaces it, as one of its own that the store has
    /// done late. Writes for a file have its number, in 8 hexadecimal digits, as the metadata [`MARK`].
    pub fn expect_late(&self, key: &str, (family, file): (u32, u32), awaited: Option<&ETag>) {
        self.door.late.note(key, Some(Mark(format!("{family:08x}{file:08x}"))), awaited);
    }

    /// The version at `key`, if it is one of those that are [expected](Self::expect_late).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn late_version(&self, key: &str) -> Result<Option<ObjectId>, ObjectError> {
        if !self.door.late.may_come(key) {
            return Ok(None);
        }
        match self.describe_marked(key).await {
            Ok(found) if self.door.late.is_one(key, &found) => Ok(Some(ObjectId::new(key, found.meta.etag))),
            Ok(_) => Ok(None),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a daemon of this `family` has written the version at `key`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn is_of_family(&self, key: &str, family: u32) -> Result<bool, ObjectError> {
        let found = self.describe_marked(key).await?;
        let mark = found.object.metadata.get(MARK);
        Ok(mark.is_some_and(|mark| mark.starts_with(&format!("{family:08x}"))))
    }

    /// Writes an object whole (PutObject). Where the store may still carry out an earlier write of the key, it is
    /// an upload of one part instead: see [`late`](crate::late).
    ///
    /// # Errors
    /// Those of all writes; see [`ObjectWriter`].
    pub async fn put(
        &self,
        key: &str,
        body: &Body,
        object: &NewObject,
        condition: Option<&Condition>,
    ) -> Result<Written, ObjectError> {
        if self.must_be_parts(key, body.len()) {
            return self.put_as_upload(key, body, object, condition).await;
        }
        let (object, mark) = &marked(self.door.next_mark(), object);
        let own = Own { mark: mark.clone(), size: body.len(), checksum: body.checksum() };
        let put = |condition: Option<Condition>| async move {
            let mut is_unknown = false;
            let attempt = || self.client.put(key, body.clone(), object, condition.as_ref());
            let put =
                self.send_noting(Operation::PutObject, (key, body.len()), attempt, &mut is_unknown).await;
            self.note_late(key, mark.as_ref(), is_unknown, condition.as_ref(), &put);
            put
        };
        Ok(self.own(key, &own, condition, put).await?)
    }

    /// Whether the store may still carry out an earlier change of `key` that would find the ETag that it waits for in
    /// an object of `size` bytes that is written, or copied, by one request. One of a single part has another: see
    /// [`late`](crate::late). Empty objects stay as they are, because not every store takes an empty part.
    pub fn must_be_parts(&self, key: &str, size: u64) -> bool {
        size > 0 && self.door.late.may_find_whole(key)
    }

    /// Writes an object as an upload of one part, so that its ETag is none that another version of it has had.
    async fn put_as_upload(
        &self,
        key: &str,
        body: &Body,
        object: &NewObject,
        condition: Option<&Condition>,
    ) -> Result<Written, ObjectError> {
        let has_checksums = body.checksum().is_some();
        let upload = self.create_upload(key, object, has_checksums, &mut false).await?;
        let written = async {
            let part = self.put_part(&upload, 1, body).await?;
            let parts = [WrittenPart { checksum: body.checksum().or(part.checksum), ..part }];
            Ok(self.complete(&upload, &parts, (body.checksum(), has_checksums), condition).await?)
        };
        let written = written.await;
        if written.is_err()
            && let Err(error) = self.abort(&upload).await
        {
            tracing::warn!(key, %error, "an upload could not be given up");
        }
        written
    }

    /// Begins an upload in parts (CreateMultipartUpload). With `has_checksums`, each part that is put has to bring its
    /// CRC-64/NVME. Notes in `is_unknown` whether the answer to an earlier attempt was lost: then the store may have
    /// another upload of the key, whose id nobody knows.
    ///
    /// # Errors
    /// Those of all writes.
    pub async fn create_upload(
        &self,
        key: &str,
        object: &NewObject,
        has_checksums: bool,
        is_unknown: &mut bool,
    ) -> Result<UploadId, ObjectError> {
        let (object, mark) = marked(self.door.next_mark(), object);
        let attempt = || self.client.create_upload(key, &object, has_checksums);
        let created = self.send_noting(Operation::CreateMultipartUpload, (key, 0), attempt, is_unknown).await;
        let upload = created?;
        self.door.uploads.begun(&upload.id, mark);
        Ok(upload)
    }

    /// Writes a part, with a number from 1 to 10,000 (UploadPart).
    ///
    /// # Errors
    /// Those of [`put_part`](ObjectWriter::put_part).
    pub async fn put_part(
        &self,
        upload: &UploadId,
        number: u32,
        body: &Body,
    ) -> Result<WrittenPart, ObjectError> {
        let attempt = || self.client.put_part(upload, number, body.clone());
        Ok(self.send(Operation::UploadPart, (&upload.key, body.len()), attempt).await?)
    }

    /// Makes a part of a range of an object (UploadPartCopy).
    ///
    /// # Errors
    /// Those of [`copy_part`](ObjectWriter::copy_part).
    pub async fn copy_part(
        &self,
        upload: &UploadId,
        number: u32,
        source: &CopySource,
        range: ByteRange,
    ) -> Result<WrittenPart, ObjectError> {
        let attempt = || self.client.copy_part(upload, number, source, range);
        Ok(self.send(Operation::UploadPartCopy, (&upload.key, range.len()), attempt).await?)
    }

    /// Makes an object of the parts of an upload (CompleteMultipartUpload). `checksum` is the CRC-64/NVME of all bytes,
    /// if it is known. It is sent along if the upload `has_checksums`.
    ///
    /// # Errors
    /// Those of [`complete`](ObjectWriter::complete), and whether it may be done all the same. `PreconditionFailed`
    /// also where the answer was lost and the upload is no more, though the object that is there is another's: it
    /// has become an object that was replaced since, or somebody has given it up.
    pub async fn complete(
        &self,
        upload: &UploadId,
        parts: &[WrittenPart],
        own: (Option<s3mount_object::ObjectChecksum>, bool),
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let (checksum, has_checksums) = own;
        let size = parts.iter().map(|part| part.len).sum();
        let own = Own { mark: self.door.uploads.mark(&upload.id), size, checksum };
        let complete = |condition: Option<Condition>| async move {
            let completion = Completion { condition, checksum: checksum.filter(|_| has_checksums) };
            let attempt = || self.client.complete(upload, parts, &completion);
            self.send(Operation::CompleteMultipartUpload, (&upload.key, size), attempt).await
        };
        let completed = self.own(&upload.key, &own, condition, complete).await;
        if completed.is_ok() {
            self.door.uploads.ended(&upload.id);
        }
        completed.map_err(|failure| match failure.error.kind() {
            ErrorKind::NoSuchUpload if failure.may_be_done && condition.is_some() => {
                Failure { error: failure.error.with_kind(ErrorKind::PreconditionFailed), ..failure }
            }
            _ => failure,
        })
    }

    /// Asks whether the store says that it knows no conditions of writes (501). Nothing is written: an upload that
    /// nobody has begun is to be completed below `prefix`, which a store that knows conditions refuses for another
    /// reason. False if it can't be found out.
    pub async fn refuses_conditions(&self, prefix: &str) -> bool {
        let upload = UploadId { key: format!("{prefix}{NO_OBJECT}"), id: NO_UPLOAD.to_owned() };
        let part = WrittenPart { number: 1, etag: ETag::new("\"0\""), len: 1, checksum: None };
        let completion = Completion { condition: Some(Condition::Absent), checksum: None };
        let parts = [part];
        let attempt = || self.client.complete(&upload, &parts, &completion);
        match self.send(Operation::CompleteMultipartUpload, (&upload.key, 0), attempt).await {
            Ok(_) => false,
            Err(Failure { error, .. }) => *error.kind() == ErrorKind::Unsupported,
        }
    }

    /// Gives an upload up (AbortMultipartUpload). One that the store does not have is a success.
    ///
    /// # Errors
    /// Those of all writes.
    pub async fn abort(&self, upload: &UploadId) -> Result<(), ObjectError> {
        let attempt = || self.client.abort(upload);
        self.send(Operation::AbortMultipartUpload, (&upload.key, 0), attempt).await?;
        self.door.uploads.ended(&upload.id);
        Ok(())
    }

    /// Copies an object of `size` bytes, up to 5 GiB, inside the store (CopyObject). The copy has `object` beside its
    /// bytes, and the source's tags if that names none.
    ///
    /// # Errors
    /// Those of all writes; `PreconditionFailed` and `NotFound` of the source.
    pub async fn copy(
        &self,
        source: &CopySource,
        size: u64,
        key: &str,
        object: &NewObject,
        condition: Option<&Condition>,
    ) -> Result<Written, ObjectError> {
        let (object, mark) = &marked(self.door.next_mark(), object);
        let own = Own { mark: mark.clone(), size, checksum: None };
        let copy = |condition: Option<Condition>| async move {
            let mut is_unknown = false;
            let attempt = || self.client.copy(source, key, Some(object), condition.as_ref());
            let copied = self.send_noting(Operation::CopyObject, (key, size), attempt, &mut is_unknown).await;
            self.note_late(key, mark.as_ref(), is_unknown, condition.as_ref(), &copied);
            copied
        };
        Ok(self.own(key, &own, condition, copy).await?)
    }

    /// As [`copy`](Self::copy), and the copy has all that the source has beside its bytes, except the storage class
    /// and the encryption. So it can't have a mark, and the caller has to find out what became of a lost answer.
    ///
    /// # Errors
    /// Those of `copy`, and whether the copy may be made all the same.
    pub async fn copy_as_it_is(
        &self,
        source: &CopySource,
        size: u64,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<Written, Failure> {
        let attempt = || self.client.copy(source, key, None, condition);
        self.send(Operation::CopyObject, (key, size), attempt).await
    }

    /// Deletes a version, if it is still what is at its key (DeleteObject with `If-Match`). Where the store knows no
    /// conditions, a HEAD looks first, and what is written between the two is lost.
    ///
    /// # Errors
    /// Those of all writes.
    pub async fn delete(&self, object: &ObjectId) -> Result<Deleted, ObjectError> {
        if !self.door.deletes_unseen.load(Ordering::Relaxed) {
            match self.delete_if(object.key(), Some(object.etag())).await {
                Ok(()) => return Ok(Deleted::Gone),
                Err(Failure { error, may_be_done }) => match error.kind() {
                    ErrorKind::NotFound => return Ok(Deleted::Gone),
                    // An earlier attempt may have deleted it, and somebody has made another one since.
                    ErrorKind::PreconditionFailed if may_be_done => return Ok(Deleted::Gone),
                    ErrorKind::PreconditionFailed => return Ok(Deleted::Replaced),
                    ErrorKind::Unsupported => self.door.deletes_unseen.store(true, Ordering::Relaxed),
                    _ => return Err(error),
                },
            }
        }
        match self.head(object.key()).await? {
            None => Ok(Deleted::Gone),
            Some(found) if found.etag != *object.etag() => Ok(Deleted::Replaced),
            Some(_) => self.delete_whatever(object.key()).await.map(|()| Deleted::Gone),
        }
    }

    /// Deletes whatever is at `key`, if anything is.
    ///
    /// # Errors
    /// Those of all writes.
    pub async fn delete_whatever(&self, key: &str) -> Result<(), ObjectError> {
        match self.delete_if(key, None).await.map_err(ObjectError::from) {
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }

    async fn delete_if(&self, key: &str, only: Option<&ETag>) -> Result<(), Failure> {
        let mut is_unknown = false;
        let attempt = || self.client.delete(key, only);
        let deleted = self.send_noting(Operation::DeleteObject, (key, 0), attempt, &mut is_unknown).await;
        if is_unknown || deleted.as_ref().is_ok_and(|deletion| deletion.may_come_again) {
            self.door.late.note(key, None, only);
        }
        deleted.map(drop)
    }

    /// Gives an object another key by one request (RenameObject). Only directory buckets can.
    ///
    /// # Errors
    /// Those of all writes; `Unsupported` from all stores that can't.
    pub async fn rename(
        &self,
        source: &ObjectId,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<(), ObjectError> {
        // The store knows the rename by this, and a second attempt succeeds again.
        let token = format!("{:016x}{:016x}", self.door.random(), self.door.random());
        let attempt = || self.client.rename(source, key, condition, &token);
        Ok(self.send(Operation::RenameObject, (key, 0), attempt).await?)
    }

    /// All that a HEAD says of the object at `key`, without the mark of its write.
    ///
    /// # Errors
    /// Those of [`describe`](ObjectWriter::describe).
    pub async fn describe(&self, key: &str) -> Result<Description, ObjectError> {
        let mut found = self.describe_marked(key).await?;
        found.object.metadata.remove(MARK);
        Ok(found)
    }

    async fn describe_marked(&self, key: &str) -> Result<Description, ObjectError> {
        Ok(self.send(Operation::HeadObject, (key, 0), || self.client.describe(key)).await?)
    }

    /// The tags of the object at `key` (GetObjectTagging).
    ///
    /// # Errors
    /// Those of [`tags`](ObjectWriter::tags).
    pub async fn tags(&self, key: &str) -> Result<Option<String>, ObjectError> {
        Ok(self.send(Operation::GetObjectTagging, (key, 0), || self.client.tags(key)).await?)
    }

    /// One page of the uploads to keys that begin with `prefix` (ListMultipartUploads).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list_uploads(
        &self,
        prefix: &str,
        after: Option<&UploadId>,
    ) -> Result<UploadsPage, ObjectError> {
        let attempt = || self.client.list_uploads(prefix, after);
        Ok(self.send(Operation::ListMultipartUploads, (prefix, 0), attempt).await?)
    }

    /// All parts that the store has of an upload (ListParts, page by page).
    ///
    /// # Errors
    /// Those of [`list_parts`](ObjectWriter::list_parts).
    pub async fn list_parts(&self, upload: &UploadId) -> Result<Vec<WrittenPart>, ObjectError> {
        let mut all = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let attempt = || self.client.list_parts(upload, number);
            let page = self.send(Operation::ListParts, (&upload.key, 0), attempt).await?;
            all.extend(page.parts);
            // A page that does not go on would be asked for again and again.
            after = page.next.filter(|next| *next > number);
        }
        Ok(all)
    }

    /// Notes a write with this mark if an attempt at it has no answer: the store may still carry that out.
    fn note_late(
        &self,
        key: &str,
        mark: Option<&Mark>,
        is_unknown: bool,
        condition: Option<&Condition>,
        written: &Result<Written, Failure>,
    ) {
        let may_come = is_unknown || written.as_ref().is_ok_and(|written| written.may_come_again);
        if mark.is_some() && may_come {
            self.door.late.note(key, mark.cloned(), condition.and_then(Condition::etag));
        }
    }

    /// Makes a write, and finds out what became of it. One that failed may be done all the same. Where its condition
    /// does not hold because an earlier write of this mount was carried out late, it is made again and replaces that.
    async fn own<F>(
        &self,
        key: &str,
        own: &Own,
        condition: Option<&Condition>,
        write: impl Fn(Option<Condition>) -> F,
    ) -> Result<Written, Failure>
    where
        F: Future<Output = Result<Written, Failure>>,
    {
        let (mut condition, mut is_again) = (condition.cloned(), false);
        loop {
            let failure = match write(condition.clone()).await {
                Err(failure) => failure,
                written => return written,
            };
            let is_refused = condition.is_some() && *failure.error.kind() == ErrorKind::PreconditionFailed;
            let may_be_late = is_refused && !is_again && self.door.late.may_come(key);
            if !failure.may_be_done && !may_be_late {
                return Err(failure);
            }
            match self.describe_marked(key).await {
                Ok(found) if failure.may_be_done && own.is(&found) => {
                    let error = &failure.error;
                    tracing::info!(key, %error, "the answer to a write was lost, and the write was done");
                    return Ok(Written {
                        etag: found.meta.etag,
                        checksum: found.checksum,
                        may_come_again: true,
                    });
                }
                Ok(found) if may_be_late && self.door.late.is_one(key, &found) => {
                    tracing::info!(
                        key,
                        "replaces an earlier write of this mount, which the store has done late"
                    );
                    (condition, is_again) = (Some(Condition::Matches(found.meta.etag)), true);
                }
                Ok(_) | Err(_) => return Err(failure),
            }
        }
    }
}
