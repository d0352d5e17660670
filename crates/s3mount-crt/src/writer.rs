//! How the client implements [`ObjectWriter`].

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    ByteRange, ETag, ErrorKind, GetObject, LatestAnswer, ObjectError, ObjectId, ObjectWriter, PartBuffer,
    PutAnswer, PutObject,
};

use crate::CrtClient;
use crate::answer::metadata_headers;
use crate::get::{Fetched, Version};
use crate::request::Call;

impl ObjectWriter for CrtClient {
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>> {
        async move {
            let PutObject { key, bytes, metadata, only_new } = request;
            let (length, kept) = (bytes.len().to_string(), metadata_headers(&metadata));
            let mut headers = vec![("Content-Length", length.as_str())];
            headers.extend(kept.iter().map(|(name, value)| (name.as_str(), *value)));
            headers.extend(only_new.then_some(("If-None-Match", "*")));
            let path = self.endpoint.object_path(&key);
            let body = Some(bytes).filter(|bytes: &Bytes| !bytes.is_empty());
            let (operation, target) = ("PutObject", key.as_str());
            let call = Call { operation, target, method: "PUT", path: &path, headers: &headers, body };
            match self.call(call).await {
                Ok(_) => Ok(PutAnswer::Written),
                Err(error) if only_new && is_there(&error) => Ok(PutAnswer::Exists),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>> {
        async move {
            let request = GetObject { object: ObjectId::new(key, ETag::new("")), range };
            let Fetched { bytes, metadata, .. } = self.get_version(request, Version::Latest, into).await?;
            Ok(LatestAnswer { bytes, metadata })
        }
        .boxed()
    }
}

/// Whether an upload failed because another object is there (412), or is written there at this moment (409).
fn is_there(error: &ObjectError) -> bool {
    *error.kind() == ErrorKind::PreconditionFailed || error.detail().status == Some(409)
}
