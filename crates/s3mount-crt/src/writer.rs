//! How the client implements [`ObjectWriter`]: each request is one `Default` request of the CRT.
//!
//! Each has the name that S3 has for its operation. By these names the CRT knows that an answer with status
//! 200 may still be an error, and that the body of CompleteMultipartUpload is no object. The CRT reads a body
//! where it lies, also when it sends the request again, and drops it when the request has ended.

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    Body, ByteRange, Completion, Condition, CopySource, Deletion, Description, ETag, ErrorKind, GetObject,
    LatestAnswer, NewObject, ObjectError, ObjectId, ObjectWriter, PartBuffer, PutAnswer, PutObject, S3Detail,
    UploadId, UploadsPage, Written, WrittenPart, WrittenParts,
};

use crate::CrtClient;
use crate::answer::{Answer, metadata_headers};
use crate::encoding::encode_path;
use crate::get::{Fetched, Version};
use crate::object_headers::{Headers, condition, new_object};
use crate::request::Call;
use crate::upload_xml::{complete_body, copy_result, parts_page, tags, upload_id, uploads_page, written};
use crate::xml::{XmlError, etag};

/// The most entries of a page that S3 sends.
const PAGE: &str = "1000";

impl CrtClient {
    /// Sends a request that writes.
    async fn write(
        &self,
        operation: &'static str,
        key: &str,
        method: &str,
        path: &str,
        headers: Headers,
        body: Option<Bytes>,
    ) -> Result<(Answer, Vec<u8>), ObjectError> {
        let mut headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let length = body.as_ref().map(|body| body.len().to_string());
        headers.extend(length.as_ref().map(|length| ("Content-Length", length.as_str())));
        let body = body.filter(|body| !body.is_empty());
        self.call(Call { operation, target: key, method, path, headers: &headers, body, describes: false })
            .await
    }

    /// The path of an object with a query, whose values are encoded already.
    fn path(&self, key: &str, query: &str) -> String {
        format!("{}?{query}", self.endpoint.object_path(key))
    }

    /// The headers of a new object. In a directory bucket no object has tags.
    fn new_object(&self, object: &NewObject) -> Headers {
        match (&self.sessions, &object.tags) {
            (Some(_), Some(_)) => new_object(&NewObject { tags: None, ..object.clone() }),
            _ => new_object(object),
        }
    }

    /// The headers that name the source of a copy.
    fn source(&self, source: &CopySource) -> Headers {
        let bucket = source.bucket.as_deref().unwrap_or(&self.bucket);
        let path = format!("{}/{}", encode_path(bucket), encode_path(source.object.key()));
        let version = etag(source.object.etag().as_str()).as_str().to_owned();
        let mut headers =
            vec![("x-amz-copy-source".to_owned(), path), ("x-amz-copy-source-if-match".to_owned(), version)];
        let owner = self.expected_bucket_owner.clone().filter(|_| source.bucket.is_none());
        headers.extend(owner.map(|owner| ("x-amz-source-expected-bucket-owner".to_owned(), owner)));
        headers
    }
}

/// The error for an answer that can't be used.
fn odd(operation: &'static str, key: &str, answer: &Answer) -> impl FnOnce(XmlError) -> ObjectError + use<> {
    let detail = S3Detail { request_id: answer.request_id.clone(), ..S3Detail::default() };
    let error = ObjectError::new(ErrorKind::Integrity, operation, key).with_detail(detail);
    move |why| error.with_source(why)
}

/// The version that the headers of an answer name.
fn version(operation: &'static str, key: &str, answer: &Answer) -> Result<ETag, ObjectError> {
    let named = answer.etag.as_deref().map(etag);
    named.ok_or_else(|| odd(operation, key, answer)(XmlError::Missing("ETag")))
}

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
            let (headers, describes) = (&headers[..], false);
            let call = Call { operation, target, method: "PUT", path: &path, headers, body, describes };
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

    fn put<'a>(
        &'a self,
        key: &'a str,
        body: Body,
        object: &'a NewObject,
        only_if: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        async move {
            const OPERATION: &str = "PutObject";
            let mut headers = self.new_object(object);
            headers.extend(condition(only_if));
            headers.extend(body.checksum().map(crate::checksum::header));
            let path = self.endpoint.object_path(key);
            let bytes = Some(body.into_bytes());
            let (answer, _) = self.write(OPERATION, key, "PUT", &path, headers, bytes).await?;
            let etag = version(OPERATION, key, &answer)?;
            Ok(Written { etag, checksum: answer.crc(), may_come_again: answer.is_second })
        }
        .boxed()
    }

    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        object: &'a NewObject,
        has_checksums: bool,
    ) -> BoxFuture<'a, Result<UploadId, ObjectError>> {
        async move {
            const OPERATION: &str = "CreateMultipartUpload";
            let mut headers = self.new_object(object);
            if has_checksums {
                headers.push(("x-amz-checksum-algorithm".to_owned(), "CRC64NVME".to_owned()));
                headers.push(("x-amz-checksum-type".to_owned(), "FULL_OBJECT".to_owned()));
            }
            let path = self.path(key, "uploads");
            let (answer, body) =
                self.write(OPERATION, key, "POST", &path, headers, Some(Bytes::new())).await?;
            let id = upload_id(&body).map_err(odd(OPERATION, key, &answer))?;
            Ok(UploadId { key: key.to_owned(), id })
        }
        .boxed()
    }

    fn put_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        body: Body,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        async move {
            const OPERATION: &str = "UploadPart";
            let (key, len) = (upload.key.as_str(), body.len());
            let headers = body.checksum().map(crate::checksum::header).into_iter().collect();
            let path = self.path(key, &format!("partNumber={number}&uploadId={}", encode_id(upload)));
            let bytes = Some(body.into_bytes());
            let (answer, _) = self.write(OPERATION, key, "PUT", &path, headers, bytes).await?;
            let etag = version(OPERATION, key, &answer)?;
            Ok(WrittenPart { number, etag, len, checksum: answer.crc() })
        }
        .boxed()
    }

    fn copy_part<'a>(
        &'a self,
        upload: &'a UploadId,
        number: u32,
        source: &'a CopySource,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<WrittenPart, ObjectError>> {
        async move {
            const OPERATION: &str = "UploadPartCopy";
            let (key, len) = (upload.key.as_str(), range.len());
            if len == 0 {
                let error = ObjectError::new(ErrorKind::Rejected, OPERATION, key);
                return Err(error.with_source("the range is empty"));
            }
            let mut headers = self.source(source);
            let bytes = format!("bytes={}-{}", range.start(), range.end() - 1);
            headers.push(("x-amz-copy-source-range".to_owned(), bytes));
            let path = self.path(key, &format!("partNumber={number}&uploadId={}", encode_id(upload)));
            let (answer, body) =
                self.write(OPERATION, key, "PUT", &path, headers, Some(Bytes::new())).await?;
            let Written { etag, checksum, .. } = copy_result(&body).map_err(odd(OPERATION, key, &answer))?;
            Ok(WrittenPart { number, etag, len, checksum })
        }
        .boxed()
    }

    fn complete<'a>(
        &'a self,
        upload: &'a UploadId,
        parts: &'a [WrittenPart],
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        async move {
            const OPERATION: &str = "CompleteMultipartUpload";
            let key = upload.key.as_str();
            let mut headers: Headers = condition(completion.condition.as_ref()).into_iter().collect();
            headers.push(("Content-Type".to_owned(), "application/xml".to_owned()));
            let size: u64 = parts.iter().map(|part| part.len).sum();
            headers.push(("x-amz-mp-object-size".to_owned(), size.to_string()));
            if let Some(checksum) = completion.checksum {
                headers.push(crate::checksum::header(checksum));
                headers.push(("x-amz-checksum-type".to_owned(), "FULL_OBJECT".to_owned()));
            }
            let path = self.path(key, &format!("uploadId={}", encode_id(upload)));
            let body = Some(complete_body(parts, completion.checksum.is_some()).into());
            let (answer, body) = self.write(OPERATION, key, "POST", &path, headers, body).await?;
            written(&body).map_err(odd(OPERATION, key, &answer))
        }
        .boxed()
    }

    fn abort<'a>(&'a self, upload: &'a UploadId) -> BoxFuture<'a, Result<(), ObjectError>> {
        async move {
            let path = self.path(&upload.key, &format!("uploadId={}", encode_id(upload)));
            let answer =
                self.write("AbortMultipartUpload", &upload.key, "DELETE", &path, Headers::new(), None).await;
            match answer {
                Err(error) if *error.kind() != ErrorKind::NoSuchUpload => Err(error),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        .boxed()
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a UploadId>,
    ) -> BoxFuture<'a, Result<UploadsPage, ObjectError>> {
        async move {
            const OPERATION: &str = "ListMultipartUploads";
            // A directory bucket lists whole folders, and goes on behind a key.
            let (listed, after_id) = match &self.sessions {
                Some(_) => (&prefix[..prefix.rfind('/').map_or(0, |slash| slash + 1)], None),
                None => (prefix, after.map(|after| after.id.as_str())),
            };
            let mut query = vec![("encoding-type", "url")];
            query.extend(after.map(|after| ("key-marker", after.key.as_str())));
            query.extend([("max-uploads", PAGE), ("prefix", listed)]);
            query.extend(after_id.map(|id| ("upload-id-marker", id)));
            query.push(("uploads", ""));
            let path = self.endpoint.bucket_path(&query);
            let (answer, body) = self.send(OPERATION, prefix, "GET", &path, &[]).await?;
            let mut page = uploads_page(&body).map_err(odd(OPERATION, prefix, &answer))?;
            page.uploads.retain(|upload| upload.upload.key.starts_with(prefix));
            Ok(page)
        }
        .boxed()
    }

    fn list_parts<'a>(
        &'a self,
        upload: &'a UploadId,
        after: u32,
    ) -> BoxFuture<'a, Result<WrittenParts, ObjectError>> {
        async move {
            const OPERATION: &str = "ListParts";
            let id = encode_id(upload);
            let query = format!("max-parts={PAGE}&part-number-marker={after}&uploadId={id}");
            let path = self.path(&upload.key, &query);
            let (answer, body) = self.send(OPERATION, &upload.key, "GET", &path, &[]).await?;
            parts_page(&body).map_err(odd(OPERATION, &upload.key, &answer))
        }
        .boxed()
    }

    fn copy<'a>(
        &'a self,
        source: &'a CopySource,
        key: &'a str,
        object: Option<&'a NewObject>,
        only_if: Option<&'a Condition>,
    ) -> BoxFuture<'a, Result<Written, ObjectError>> {
        async move {
            const OPERATION: &str = "CopyObject";
            let mut headers = self.source(source);
            headers.extend(condition(only_if));
            if let Some(object) = object {
                headers.extend(self.new_object(object));
                headers.push(("x-amz-metadata-directive".to_owned(), "REPLACE".to_owned()));
            }
            // A copy of an object with tags to a directory bucket fails, unless it leaves them away.
            if self.sessions.is_some() || object.is_some_and(|object| object.tags.is_some()) {
                headers.push(("x-amz-tagging-directive".to_owned(), "REPLACE".to_owned()));
            }
            let path = self.endpoint.object_path(key);
            let (answer, body) =
                self.write(OPERATION, key, "PUT", &path, headers, Some(Bytes::new())).await?;
            let copied = copy_result(&body).map_err(odd(OPERATION, key, &answer))?;
            Ok(Written { may_come_again: answer.is_second, ..copied })
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        only: Option<&'a ETag>,
    ) -> BoxFuture<'a, Result<Deletion, ObjectError>> {
        async move {
            let only = only.cloned().map(Condition::Matches);
            let headers = condition(only.as_ref()).into_iter().collect();
            let path = self.endpoint.object_path(key);
            let (answer, _) = self.write("DeleteObject", key, "DELETE", &path, headers, None).await?;
            Ok(Deletion { may_come_again: answer.is_second })
        }
        .boxed()
    }

    fn rename<'a>(
        &'a self,
        source: &'a ObjectId,
        key: &'a str,
        only_if: Option<&'a Condition>,
        token: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        async move {
            const OPERATION: &str = "RenameObject";
            if self.sessions.is_none() {
                // A store that does not know this request takes it for a PutObject without a byte, and
                // replaces what is at the key.
                return Err(ObjectError::new(ErrorKind::Unsupported, OPERATION, key));
            }
            let mut headers: Headers = condition(only_if).into_iter().collect();
            headers.push(("x-amz-rename-source".to_owned(), encode_path(source.key())));
            let version = etag(source.etag().as_str()).as_str().to_owned();
            headers.push(("x-amz-rename-source-if-match".to_owned(), version));
            headers.push(("x-amz-client-token".to_owned(), token.to_owned()));
            let path = self.path(key, "renameObject");
            self.write(OPERATION, key, "PUT", &path, headers, Some(Bytes::new())).await.map(drop)
        }
        .boxed()
    }

    fn tags<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, ObjectError>> {
        async move {
            const OPERATION: &str = "GetObjectTagging";
            if self.sessions.is_some() {
                // Objects of directory buckets have no tags, and S3 refuses the request.
                return Ok(None);
            }
            match self.send(OPERATION, key, "GET", &self.path(key, "tagging"), &[]).await {
                Ok((answer, body)) => tags(&body).map_err(odd(OPERATION, key, &answer)),
                // Some stores answer so for an object without tags.
                Err(error) if error.detail().code.as_deref() == Some("NoSuchTagSet") => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn describe<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Description, ObjectError>> {
        async move {
            let path = self.endpoint.object_path(key);
            let headers = &[crate::checksum::MODE][..];
            let (operation, target, method) = ("HeadObject", key, "HEAD");
            let call = Call { operation, target, method, path: &path, headers, body: None, describes: true };
            let (mut answer, _) = self.call(call).await?;
            let object = answer.object.take().map(|object| *object).unwrap_or_default();
            let (checksum, tag_count) = (answer.crc(), answer.tag_count.unwrap_or_default());
            Ok(Description { meta: crate::client::meta(key, answer)?, object, tag_count, checksum })
        }
        .boxed()
    }
}

/// The id of an upload as it stands in a query.
fn encode_id(upload: &UploadId) -> String {
    crate::encoding::encode(&upload.id)
}

/// Whether an upload failed because another object is there (412), or is written there at this moment (409).
fn is_there(error: &ObjectError) -> bool {
    matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::Conflict)
}
