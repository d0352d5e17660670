//! A bucket whose requests cost nearly nothing. With it, a measurement shows what all layers above the client
//! cost.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    BucketInfo, ETag, ErrorKind, GetAnswer, GetObject, ListObjects, ListPage, ListedObject, ObjectClient,
    ObjectError, ObjectId, ObjectMeta, Origin, PartBuffer,
};

use crate::lent::Lent;
use crate::list::{Query, page};

/// An [`ObjectClient`] that answers at once. A GET returns the lent buffer as it is, so not a byte is moved.
/// GETs succeed for each key and version.
#[derive(Debug)]
pub struct NullClient(BTreeMap<String, u64>);

impl NullClient {
    /// A bucket that holds objects with these keys and sizes.
    pub fn new(objects: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self(objects.into_iter().collect())
    }

    /// The version of the object `key`. All objects have the same ETag.
    pub fn object(&self, key: &str) -> ObjectId {
        ObjectId::new(key, meta(0).etag)
    }
}

fn meta(size: u64) -> ObjectMeta {
    ObjectMeta {
        etag: ETag::new("\"null\""),
        size,
        last_modified: SystemTime::UNIX_EPOCH,
        storage_class: None,
    }
}

impl ObjectClient for NullClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        let len = usize::try_from(request.range.len()).unwrap_or(usize::MAX);
        async move {
            if len == 0 || len > (*into).as_ref().len() {
                return Err(ObjectError::new(ErrorKind::Rejected, "GetObject", request.object.key()));
            }
            let bytes = Bytes::from_owner(Lent(into)).slice(..len);
            Ok(GetAnswer { bytes, origin: Origin::Store, is_compared: false, first_byte: None })
        }
        .boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            let size = self.0.get(key).copied();
            size.map(meta).ok_or_else(|| ObjectError::new(ErrorKind::NotFound, "HeadObject", key))
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        async move {
            let query = Query::new(request);
            let page = page(&self.0, &query);
            let listed = |(key, size): (&String, &u64)| ListedObject { key: key.clone(), meta: meta(*size) };
            Ok(ListPage {
                objects: page.objects.into_iter().map(listed).collect(),
                common_prefixes: page.prefixes,
                next: page.next,
            })
        }
        .boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async { Ok(BucketInfo { region: None }) }.boxed()
    }
}
