//! A bucket that costs nothing, to see what everything above it costs.

use std::time::SystemTime;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    BucketInfo, ETag, ErrorKind, GetObject, ListObjects, ListPage, ListedObject, ObjectClient, ObjectError,
    ObjectId, ObjectMeta, PartBuffer,
};

use crate::lent::Lent;

/// An [`ObjectClient`] that answers at once. Its objects hold whatever the lent buffers hold: not a
/// byte is moved.
#[derive(Debug)]
pub struct NullClient(Vec<(String, u64)>);

impl NullClient {
    /// A bucket of these keys and sizes.
    pub fn new(objects: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self(objects.into_iter().collect())
    }

    /// The version of every one of its objects.
    pub fn object(&self, key: &str) -> ObjectId {
        ObjectId::new(key, ETag::new("null"))
    }

    fn listed(&self, prefix: &str) -> Vec<ListedObject> {
        let meta = |size| ObjectMeta {
            etag: ETag::new("null"),
            size,
            last_modified: SystemTime::UNIX_EPOCH,
            storage_class: None,
        };
        let objects = self.0.iter().filter(|(key, _)| key.starts_with(prefix));
        objects.map(|(key, size)| ListedObject { key: key.clone(), meta: meta(*size) }).collect()
    }
}

impl ObjectClient for NullClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<Bytes, ObjectError>> {
        let len = usize::try_from(request.range.len()).unwrap_or(usize::MAX);
        async move { Ok(Bytes::from_owner(Lent(into)).slice(..len)) }.boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            let found = self.listed(key).into_iter().find(|object| object.key == key);
            let missing = || ObjectError::new(ErrorKind::NotFound, "HeadObject", key);
            found.map(|object| object.meta).ok_or_else(missing)
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        let objects = self.listed(&request.prefix);
        async move { Ok(ListPage { objects, ..ListPage::default() }) }.boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async { Ok(BucketInfo { region: None }) }.boxed()
    }
}
