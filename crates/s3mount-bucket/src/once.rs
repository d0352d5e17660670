//! Single attempts, for who has a patience of his own: the shared tier, which is left alone where it fails, and second
//! GETs.

use s3mount_object::{
    ByteRange, GetAnswer, GetObject, LatestAnswer, ObjectClient, ObjectError, ObjectMeta, ObjectWriter,
    PartBuffer, PutAnswer, PutObject,
};

use crate::{Bucket, Class, Operation};

impl<C: ObjectClient + ?Sized> Bucket<C> {
    /// One GET, inside of an attempt of [`Retries`](crate::Retries), which has its permit. Where the mount keeps to a
    /// rate, the GET waits here for it, so that it takes as long as over a link of that rate.
    ///
    /// # Errors
    /// Those of [`get_object`](ObjectClient::get_object).
    pub async fn get_within(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> Result<GetAnswer, ObjectError> {
        self.door.lines.before_get(request.range.len()).await;
        self.client.get_object(request, into).await
    }

    /// One GET that no reader waits for.
    ///
    /// # Errors
    /// Those of [`get_object`](ObjectClient::get_object).
    pub async fn get_ahead_once(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> Result<GetAnswer, ObjectError> {
        self.once(Class::Ahead, self.get_within(request, into)).await
    }

    /// One HEAD.
    ///
    /// # Errors
    /// Those of [`head_object`](ObjectClient::head_object).
    pub async fn head_once(&self, key: &str) -> Result<ObjectMeta, ObjectError> {
        self.door.lines.before_request().await;
        self.once(Operation::HeadObject.class(), self.client.head_object(key)).await
    }

    async fn once<T>(
        &self,
        class: Class,
        attempt: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let _permit = self.limits().permit(class).await;
        attempt.await
    }
}

impl<C: ObjectWriter + ?Sized> Bucket<C> {
    /// One GET of whichever version is there, and its metadata.
    ///
    /// # Errors
    /// Those of [`get_latest`](ObjectWriter::get_latest).
    pub async fn get_latest_once(
        &self,
        key: &str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> Result<LatestAnswer, ObjectError> {
        self.door.lines.before_get(range.len()).await;
        self.once(Operation::GetObject.class(), self.client.get_latest(key, range, into)).await
    }

    /// One upload of a whole object, without a mark: whoever wrote it, its bytes are the same.
    ///
    /// # Errors
    /// Those of [`put_object`](ObjectWriter::put_object).
    pub async fn put_once(&self, request: PutObject) -> Result<PutAnswer, ObjectError> {
        self.door.lines.before_body(request.bytes.len() as u64, false).await;
        self.once(Operation::PutObject.class(), self.client.put_object(request)).await
    }
}
