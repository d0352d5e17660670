//! What a directory bucket of S3 Express One Zone does otherwise. The name of such a bucket ends in `--x-s3`.
//!
//! Where AWS says so: API reference of CreateSession (sessions, and what they may leave out), of CopyObject,
//! HeadBucket and UploadPartCopy (which are signed without a session), of ListObjectsV2 (prefix, delimiter,
//! StartAfter), of ListMultipartUploads (prefix, no upload-id-marker), of CompletedPart (part numbers), of
//! RenameObject (no key that ends in `/`), and the user guide's "Differences for directory buckets" (order, `ETag`s,
//! storage class, no tags).

use std::time::SystemTime;

use hyper::header::HeaderMap;
use hyper::{Request, Response};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::list::is_directory_prefix;
use crate::server::answer::{Answer, Refusal, refuse};
use crate::server::body::Reply;
use crate::server::fault::Operation;
use crate::server::received::Received;
use crate::server::request::{Target, credential, header};
use crate::server::sessions::{STORAGE_CLASS, is_directory_bucket};
use crate::server::shared::Shared;
use crate::server::stats::UnderWay;
use crate::server::xml;

/// CreateSession.
pub(crate) fn create_session(
    shared: &Shared,
    target: &Target,
    headers: &HeaderMap,
    under_way: UnderWay,
) -> Answer {
    if !is_directory_bucket(&target.bucket) {
        return Err(refuse(405, "MethodNotAllowed", "The bucket is no directory bucket."));
    }
    if credential(headers).is_none() {
        return Err(refuse(403, "AccessDenied", "Access Denied"));
    }
    let (token, life) = (shared.opaque_tag(), shared.sessions.life());
    let access_key = format!("SESSION{}", &token[..8]);
    let expires = OffsetDateTime::from(SystemTime::now() + life).format(&Rfc3339).unwrap_or_default();
    let body = format!(
        "{}<CreateSessionResult xmlns=\"{}\"><Credentials><SessionToken>{token}</SessionToken>\
         <SecretAccessKey>secret</SecretAccessKey><AccessKeyId>{access_key}</AccessKeyId>\
         <Expiration>{expires}</Expiration></Credentials></CreateSessionResult>",
        xml::HEAD,
        xml::NAMESPACE
    );
    shared.sessions.begin(&target.bucket, &access_key, token);
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}

/// Whether a request is signed with a session, and not with the caller's own credentials.
pub(crate) fn needs_session(target: &Target) -> bool {
    is_directory_bucket(&target.bucket)
        && !matches!(
            target.operation,
            Operation::CreateSession
                | Operation::HeadBucket
                | Operation::CopyObject
                | Operation::UploadPartCopy
                | Operation::Other
        )
}

/// Refuses what a directory bucket does not do.
pub(crate) fn check(shared: &Shared, target: &Target, request: &Request<Received>) -> Result<(), Refusal> {
    if !is_directory_bucket(&target.bucket) {
        return Ok(());
    }
    let headers = request.headers();
    if needs_session(target) {
        shared.sessions.check(&target.bucket, headers)?;
    }
    let text = |name: &str| target.query.get(name).map_or("", String::as_str);
    let invalid = |message: &str| Err(refuse(400, "InvalidArgument", message));
    let lacking = |message: &str| Err(refuse(501, "NotImplemented", message));
    match target.operation {
        Operation::ListObjects if text("list-type") != "2" => {
            lacking("Directory buckets have no ListObjects.")
        }
        Operation::ListObjects if !text("start-after").is_empty() => {
            invalid("StartAfter is not supported for directory buckets.")
        }
        Operation::ListObjects | Operation::ListMultipartUploads if !is_directory_prefix(text("prefix")) => {
            invalid("The prefix has to end in the delimiter.")
        }
        Operation::ListObjects if !["", "/"].contains(&text("delimiter")) => {
            invalid("The delimiter has to be /.")
        }
        Operation::ListMultipartUploads if !text("upload-id-marker").is_empty() => {
            invalid("UploadIdMarker is not supported for directory buckets.")
        }
        Operation::RenameObject
            if target.key.ends_with('/') || header(headers, "x-amz-rename-source").ends_with('/') =>
        {
            invalid("A key that ends in a slash is not renamed.")
        }
        Operation::Other if target.query.contains_key("tagging") => {
            lacking("Directory buckets have no tags.")
        }
        Operation::PutObject | Operation::CreateMultipartUpload | Operation::CopyObject => {
            check_new_object(target, headers)
        }
        _ => Ok(()),
    }
}

/// Refuses what an object of a directory bucket can't have.
fn check_new_object(target: &Target, headers: &HeaderMap) -> Result<(), Refusal> {
    if !["", STORAGE_CLASS].contains(&header(headers, "x-amz-storage-class")) {
        return Err(refuse(400, "InvalidStorageClass", "The storage class you specified is not valid"));
    }
    if !header(headers, "x-amz-tagging").is_empty() {
        return Err(refuse(501, "NotImplemented", "Directory buckets have no tags."));
    }
    // A session without encryption was created, and its uploads have to be encrypted alike.
    let is_upload = target.operation != Operation::CopyObject;
    if is_upload && !header(headers, "x-amz-server-side-encryption").is_empty() {
        return Err(refuse(400, "InvalidRequest", "The encryption is not that of the session."));
    }
    Ok(())
}
