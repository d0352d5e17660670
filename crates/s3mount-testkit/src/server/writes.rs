//! Answers to requests that write objects whole: puts, copies, deletions and renames.

use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use md5::{Digest as _, Md5};
use percent_encoding::percent_decode_str;
use s3mount_object::NewObject;

use crate::object::{Object, now};
use crate::server::answer::{Answer, refuse};
use crate::server::body::Reply;
use crate::server::read_xml::deletions;
use crate::server::received::{Received, check_length};
use crate::server::request::{Target, header};
use crate::server::sessions::is_directory_bucket;
use crate::server::shared::Shared;
use crate::server::stats::UnderWay;
use crate::server::upload_xml;
use crate::server::write_headers::{
    check_condition, checksum, copy_source, empty, encryption, insert, new_object, text,
};
use crate::sums::{ChecksumType, Kept, Sum, hex};
use crate::uploads::{MAX_PART, Refused, precondition_failed, refused};

/// PutObject.
pub(crate) fn put(shared: &Shared, target: &Target, request: &Request<Received>) -> Answer {
    let (headers, body) = (request.headers(), request.body());
    check_length(headers)?;
    body.check(headers)?;
    let (sum, _) = body.brought(headers).unwrap_or((Sum::DEFAULT, ""));
    let kept = body.sum(sum).map(|value| Kept::whole(sum, value)).filter(|_| shared.checksum.is_some());
    // A checksum that the upload did not bring is computed when somebody asks for it.
    let brought = kept.clone().filter(|_| body.brought(headers).is_some());
    let etag = format!("\"{}\"", body.tag().unwrap_or_else(|| shared.opaque_tag()));
    let (beside, content) = (new_object(headers), body.content.clone());
    let object = Object { beside, kept: brought, ..Object::new(content, body.len, etag, now()) };
    let mut response = empty();
    insert(response.headers_mut(), "etag", &object.etag);
    kept.iter().for_each(|kept| checksum(kept, response.headers_mut()));
    encryption(&object.beside, response.headers_mut());
    let mut buckets = shared.write();
    let keys = buckets.entry(target.bucket.clone()).or_default();
    check_condition(keys.get(&target.key), headers, shared.refuses_conditions)?;
    keys.insert(target.key.clone(), object);
    Ok(response)
}

/// DeleteObject.
pub(crate) fn delete(shared: &Shared, target: &Target, headers: &HeaderMap) -> Answer {
    let mut buckets = shared.write();
    if let Some(keys) = buckets.get_mut(&target.bucket) {
        check_condition(keys.get(&target.key), headers, shared.refuses_conditions)?;
        keys.remove(&target.key);
    }
    let mut response = empty();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// DeleteObjects.
pub(crate) fn delete_many(
    shared: &Shared,
    target: &Target,
    request: &Request<Received>,
    under_way: UnderWay,
) -> Answer {
    let (headers, body) = (request.headers(), request.body());
    body.check(headers)?;
    if body.brought(headers).is_none() && header(headers, "content-md5").is_empty() {
        return Err(refuse(400, "InvalidRequest", "Missing required header for this request: Content-MD5"));
    }
    let wanted = deletions(body.bytes())?;
    let mut buckets = shared.write();
    let keys = buckets.get_mut(&target.bucket).ok_or_else(|| refuse(404, "NoSuchBucket", "It is gone"))?;
    let mut results = Vec::new();
    for (key, etag) in wanted.keys {
        let is_denied = shared.denies(&key);
        let is_other = etag.is_some_and(|etag| {
            keys.get(&key).is_none_or(|object| object.etag.trim_matches('"') != etag.trim_matches('"'))
        });
        let result = match (is_denied, is_other) {
            (true, _) => Err("AccessDenied"),
            (false, true) => Err("PreconditionFailed"),
            (false, false) => {
                keys.remove(&key);
                Ok(())
            }
        };
        results.push((key, result));
    }
    let body = upload_xml::deleted(&results, wanted.is_quiet);
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}

/// The object that a copy is made of.
pub(crate) fn source(shared: &Shared, headers: &HeaderMap) -> Result<Object, Refused> {
    let (bucket, key) = copy_source(headers)?;
    if shared.denies(&key) {
        return Err(refused(403, "AccessDenied", "Access Denied"));
    }
    let buckets = shared.read();
    let keys = buckets.get(&bucket);
    let keys = keys.ok_or(refused(404, "NoSuchBucket", "The specified bucket does not exist"))?;
    let object = keys.get(&key).ok_or(refused(404, "NoSuchKey", "The specified key does not exist."))?;
    let is_version = |name: &str| {
        let wanted = header(headers, name).trim_matches('"');
        (!wanted.is_empty()).then(|| wanted == "*" || wanted == object.etag.trim_matches('"'))
    };
    if is_version("x-amz-copy-source-if-match") == Some(false)
        || is_version("x-amz-copy-source-if-none-match") == Some(true)
    {
        return Err(precondition_failed());
    }
    if object.beside.storage_class.as_deref() == Some("GLACIER") {
        let message = "The operation is not valid for the object's storage class";
        return Err(refused(403, "InvalidObjectState", message));
    }
    Ok(object.clone())
}

/// The tag of content that the store already has: MD5, where tags are MD5s and the content is not computed.
pub(crate) fn tag_of(
    shared: &Shared,
    bucket: &str,
    object: &Object,
    range: std::ops::Range<u64>,
) -> std::io::Result<String> {
    if shared.has_opaque_etags(bucket) {
        return Ok(shared.opaque_tag());
    }
    if let Some(tag) = object.content.computed_tag(&range) {
        return Ok(tag);
    }
    let (mut digest, mut at) = (Md5::new(), range.start);
    while at < range.end {
        let piece = object.read(at, usize::try_from(range.end - at).unwrap_or(usize::MAX).min(1 << 20))?;
        digest.update(&piece);
        at += piece.len() as u64;
    }
    Ok(hex(&digest.finalize()))
}

/// CopyObject.
pub(crate) fn copy(shared: &Shared, target: &Target, headers: &HeaderMap, under_way: UnderWay) -> Answer {
    let from = source(shared, headers)?;
    if from.size > MAX_PART {
        let message = "The specified copy source is larger than the maximum allowable size: 5368709120";
        return Err(refuse(400, "InvalidRequest", message));
    }
    let given = new_object(headers);
    let replaces = header(headers, "x-amz-metadata-directive").eq_ignore_ascii_case("REPLACE");
    let is_itself = copy_source(headers)? == (target.bucket.clone(), target.key.clone());
    if is_itself && !replaces && given.storage_class.is_none() && given.encryption.is_none() {
        let message = "This copy request is illegal because it is trying to copy an object to itself without \
            changing the object's metadata, storage class or encryption attributes.";
        return Err(refuse(400, "InvalidRequest", message));
    }
    let beside = match replaces {
        true => given.clone(),
        false => NewObject {
            storage_class: given.storage_class.clone(),
            encryption: given.encryption.clone(),
            ..from.beside.clone()
        },
    };
    let is_tagged = header(headers, "x-amz-tagging-directive").eq_ignore_ascii_case("REPLACE");
    let tags = if is_tagged { given.tags } else { from.beside.tags.clone() };
    let tag = if shared.has_opaque_etags(&target.bucket) || from.etag.contains('-') {
        let tag = tag_of(shared, &target.bucket, &from, 0..from.size);
        format!("\"{}\"", tag.map_err(|error| refuse(500, "InternalError", error.to_string()))?)
    } else {
        from.etag.clone()
    };
    let kept = from.kept.clone().filter(|kept| kept.kind == ChecksumType::FullObject);
    let beside = NewObject { tags, ..beside };
    let object = Object { beside, kept, ..Object::new(from.content, from.size, tag, now()) };
    let body = upload_xml::copied("CopyObjectResult", &object.etag, object.modified, object.kept.as_ref());
    let mut response = Response::new(Reply::bytes(body, Some(under_way)));
    encryption(&object.beside, response.headers_mut());
    let mut buckets = shared.write();
    let keys = buckets.entry(target.bucket.clone()).or_default();
    check_condition(keys.get(&target.key), headers, shared.refuses_conditions)?;
    keys.insert(target.key.clone(), object);
    Ok(response)
}

/// RenameObject.
pub(crate) fn rename(shared: &Shared, target: &Target, headers: &HeaderMap) -> Answer {
    if !is_directory_bucket(&target.bucket) {
        let message = "A header you provided implies functionality that is not implemented";
        return Err(refuse(501, "NotImplemented", message));
    }
    let from = header(headers, "x-amz-rename-source").trim_start_matches('/');
    let from = percent_decode_str(from).decode_utf8_lossy().into_owned();
    let mut renames = shared.renames();
    if let Some(token) = text(headers, "x-amz-client-token") {
        match renames.get(&token) {
            Some((before, to)) if *before == from && *to == target.key => return Ok(empty()),
            Some(_) => {
                let message = "The request is a retry, but its parameters are others.";
                return Err(refuse(400, "IdempotentParameterMismatch", message));
            }
            None => {}
        }
    }
    let mut buckets = shared.write();
    let keys = buckets.entry(target.bucket.clone()).or_default();
    let object = keys.get(&from).ok_or_else(|| refuse(404, "NoSuchKey", "The source does not exist."))?;
    let wanted = header(headers, "x-amz-rename-source-if-match").trim_matches('"');
    if !wanted.is_empty() && wanted != object.etag.trim_matches('"') {
        return Err(precondition_failed().into());
    }
    check_condition(keys.get(&target.key), headers, false)?;
    if let Some(object) = keys.remove(&from) {
        keys.insert(target.key.clone(), object);
    }
    if let Some(token) = text(headers, "x-amz-client-token") {
        renames.insert(token, (from, target.key.clone()));
    }
    Ok(empty())
}
