//! Requests that only ask.

use bytes::Bytes;
use s3mount_object::{
    ByteRange, ErrorKind, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient, ObjectError,
    ObjectId, ObjectMeta, PartBuffer, UploadParts,
};

use crate::{Bucket, Operation};

impl<C: ObjectClient + ?Sized> Bucket<C> {
    /// The bytes of a range of a version, in the first buffer that `buffer` brings. It is asked for another one for
    /// each attempt, before there is a permit.
    ///
    /// # Errors
    /// Those of [`get_object`](ObjectClient::get_object), and those of `buffer`.
    pub async fn get<B, E, F>(
        &self,
        object: &ObjectId,
        range: ByteRange,
        buffer: impl Fn() -> F,
    ) -> Result<Bytes, E>
    where
        B: PartBuffer,
        E: From<ObjectError>,
        F: Future<Output = Result<B, E>>,
    {
        let mut retries = self.retries(Operation::GetObject, object.key(), range.len());
        loop {
            let into = Box::new(buffer().await?);
            let request = GetObject { object: object.clone(), range };
            match retries.attempt(self.get_within(request, into)).await {
                Ok(answer) => return Ok(answer.bytes),
                Err(error) => retries.pause(error, || true).await?,
            }
        }
    }

    /// What is at `key`, if anything is.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, ObjectError> {
        let attempt = || self.client.head_object(key);
        found(self.send(Operation::HeadObject, (key, 0), attempt).await.map_err(ObjectError::from))
    }

    /// One page of keys.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self, request: &ListObjects) -> Result<ListPage, ObjectError> {
        self.list_while(request, |_| true).await
    }

    /// One page of keys. After an attempt that failed, `goes_on` says whether the page may be asked for again.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list_while(
        &self,
        request: &ListObjects,
        goes_on: impl Fn(&ObjectError) -> bool,
    ) -> Result<ListPage, ObjectError> {
        let mut retries = self.retries(Operation::ListObjectsV2, &request.prefix, 0);
        loop {
            let answer = retries.attempt(self.client.list_objects(request.clone())).await;
            match answer.map_err(of_the_bucket) {
                Ok(page) => return Ok(page),
                Err(error) if !goes_on(&error) => return Err(error),
                Err(error) => retries.pause(error, || true).await?,
            }
        }
    }

    /// The checksum that the store keeps of a version.
    ///
    /// # Errors
    /// Those of [`checksum`](ObjectClient::checksum).
    pub async fn checksum(&self, object: &ObjectId) -> Result<KeptChecksum, ObjectError> {
        let attempt = || self.client.checksum(object);
        Ok(self.send(Operation::HeadObject, (object.key(), 0), attempt).await?)
    }

    /// One page of the parts in which a version was uploaded: those after part number `after`.
    ///
    /// # Errors
    /// Those of [`upload_parts`](ObjectClient::upload_parts).
    pub async fn upload_parts(&self, object: &ObjectId, after: u32) -> Result<UploadParts, ObjectError> {
        let attempt = || self.client.upload_parts(object, after);
        Ok(self.send(Operation::GetObjectAttributes, (object.key(), 0), attempt).await?)
    }

    /// Whether the store lists in the order of keys.
    pub fn lists_in_order(&self) -> bool {
        self.client.lists_in_order()
    }

    /// How many answers asked to slow down.
    pub fn refused_requests(&self) -> u64 {
        self.client.refused_requests()
    }
}

/// A LIST asks for the keys of the bucket. Where none has the prefix, it gets an empty page, so a 404 tells of no key: the
/// bucket is gone, or something else answers in its place.
fn of_the_bucket(error: ObjectError) -> ObjectError {
    match error.kind() {
        ErrorKind::NotFound => error.with_kind(ErrorKind::NoSuchBucket),
        _ => error,
    }
}

/// Nothing, where the store says that there is no object.
pub(crate) fn found<T>(answer: Result<T, ObjectError>) -> Result<Option<T>, ObjectError> {
    match answer {
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}
