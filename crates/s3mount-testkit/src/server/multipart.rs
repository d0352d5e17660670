//! Answers to requests for uploads in parts.

use hyper::header::HeaderMap;
use hyper::{Request, Response};
use s3mount_object::ChecksumAlgorithm;

use crate::object::now;
use crate::server::answer::{Answer, refuse};
use crate::server::body::Reply;
use crate::server::read_xml::parts;
use crate::server::received::{Received, check_length};
use crate::server::request::{Target, Wanted, header, range};
use crate::server::sessions::is_directory_bucket;
use crate::server::shared::Shared;
use crate::server::stats::UnderWay;
use crate::server::upload_xml;
use crate::server::write_headers::{
    check_condition, empty, encryption, insert, new_object, refuse_conditions, text,
};
use crate::server::writes::{source, tag_of};
use crate::sums::{ChecksumType, Sum, Value};
use crate::uploads::{MAX_PART, Part, Refused, Upload, Uploads, Whole, refused};

/// What the query of a request to an upload says: the upload's id, and the number of a part.
fn upload_id(target: &Target) -> &str {
    target.query.get("uploadId").map_or("", String::as_str)
}

fn number(target: &Target) -> Result<u32, Refused> {
    let number = target.query.get("partNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
    Uploads::check_number(number).map(|()| number)
}

/// CreateMultipartUpload.
pub(crate) fn create(shared: &Shared, target: &Target, headers: &HeaderMap, under_way: UnderWay) -> Answer {
    let invalid = |message| refuse(400, "InvalidRequest", message);
    let mut upload = Upload::new(new_object(headers));
    if let Some(name) = text(headers, "x-amz-checksum-algorithm") {
        upload.sum =
            Sum::named(&name).ok_or_else(|| invalid("Checksum algorithm provided is unsupported."))?;
        upload.demands_sums = true;
        upload.kind = match (upload.sum, header(headers, "x-amz-checksum-type")) {
            (Sum::DEFAULT, "" | "FULL_OBJECT") | (Sum::Crc(_), "FULL_OBJECT") => ChecksumType::FullObject,
            (Sum::Crc(ChecksumAlgorithm::Crc64Nvme), _) | (_, "FULL_OBJECT") => {
                return Err(invalid("The checksum type can't be used with the checksum algorithm."));
            }
            _ => ChecksumType::Composite,
        };
    }
    let beside = upload.beside.clone();
    let id = shared.uploads().entry(target.bucket.clone()).or_default().create(&target.key, upload);
    let body = upload_xml::initiated(&target.bucket, &target.key, &id);
    let mut response = Response::new(Reply::bytes(body, Some(under_way)));
    encryption(&beside, response.headers_mut());
    Ok(response)
}

/// The kind of checksum of the upload that a request is for.
pub(crate) fn sum(shared: &Shared, target: &Target) -> Option<Sum> {
    let uploads = shared.uploads();
    let upload = uploads.get(&target.bucket)?.get(&target.key, upload_id(target)).ok()?;
    Some(upload.sum)
}

fn add(shared: &Shared, target: &Target, part: Part) -> Result<(), Refused> {
    let mut uploads = shared.uploads();
    let uploads = uploads.entry(target.bucket.clone()).or_default();
    uploads.put(&target.key, upload_id(target), number(target)?, part)
}

/// The kind of checksum of an upload, and whether each part has to bring one.
fn demands(shared: &Shared, target: &Target) -> Result<(Sum, bool), Refused> {
    let mut uploads = shared.uploads();
    let uploads = uploads.entry(target.bucket.clone()).or_default();
    uploads.get(&target.key, upload_id(target)).map(|upload| (upload.sum, upload.demands_sums))
}

/// UploadPart.
pub(crate) fn put_part(shared: &Shared, target: &Target, request: &Request<Received>) -> Answer {
    let (headers, body) = (request.headers(), request.body());
    number(target)?;
    check_length(headers)?;
    let (sum, demands_sums) = demands(shared, target)?;
    match body.brought(headers) {
        Some((brought, _)) if brought == sum => {}
        None if !demands_sums => {}
        brought => {
            let brought = brought.map_or("null", |(sum, _)| sum.name());
            let message = format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {brought}",
                sum.name()
            );
            return Err(refuse(400, "InvalidRequest", message));
        }
    }
    body.check(headers)?;
    let value = body.sum(sum).cloned().ok_or_else(|| refuse(500, "InternalError", "no checksum"))?;
    let tag = body.tag().unwrap_or_else(|| shared.opaque_tag());
    let mut response = empty();
    insert(response.headers_mut(), "etag", &format!("\"{tag}\""));
    if shared.checksum.is_some() {
        insert(response.headers_mut(), sum.header(), &value.base64());
    }
    add(shared, target, Part { content: body.content.clone(), len: body.len, tag, value, modified: now() })?;
    Ok(response)
}

/// UploadPartCopy.
pub(crate) fn copy_part(
    shared: &Shared,
    target: &Target,
    headers: &HeaderMap,
    under_way: UnderWay,
) -> Answer {
    number(target)?;
    let (sum, _) = demands(shared, target)?;
    let from = source(shared, headers)?;
    let wanted = match header(headers, "x-amz-copy-source-range") {
        "" => 0..from.size,
        text => match range(text, u64::MAX) {
            Wanted::Part(part) if part.end <= from.size => part,
            _ => {
                let message = "Range specified is not valid for source object";
                return Err(refuse(400, "InvalidArgument", message));
            }
        },
    };
    let len = wanted.end - wanted.start;
    if len > MAX_PART {
        let message = "The specified copy source is larger than the maximum allowable size: 5368709120";
        return Err(refuse(400, "InvalidRequest", message));
    }
    let failed = |error: std::io::Error| refuse(500, "InternalError", error.to_string());
    let tag = tag_of(shared, &target.bucket, &from, wanted.clone()).map_err(failed)?;
    let value = match sum {
        Sum::Crc(algorithm) => {
            let crc = from.checksum_of(algorithm, wanted.start, wanted.end).map_err(failed)?;
            Value::of_crc(algorithm, crc.value)
        }
        Sum::Sha1 | Sum::Sha256 => {
            let (mut running, mut at) = (sum.start(), wanted.start);
            while at < wanted.end {
                let piece = from.read(at, (wanted.end - at).min(1 << 20) as usize).map_err(failed)?;
                running.update(&piece);
                at += piece.len() as u64;
            }
            running.finish()
        }
    };
    let text = value.base64();
    let part = Part { content: from.content.range(wanted), len, tag: tag.clone(), value, modified: now() };
    let body = upload_xml::copied_part(&tag, part.modified, (sum, &text));
    add(shared, target, part)?;
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}

/// CompleteMultipartUpload.
pub(crate) fn complete(
    shared: &Shared,
    target: &Target,
    request: &Request<Received>,
    under_way: UnderWay,
) -> Answer {
    let headers = request.headers();
    refuse_conditions(headers, shared.refuses_conditions)?;
    let named = parts(request.body().bytes())?;
    let is_consecutive = named.iter().zip(1..).all(|(named, number)| named.number == number);
    if is_directory_bucket(&target.bucket) && !is_consecutive {
        return Err(refuse(400, "InvalidPart", "The part numbers have to be consecutive, from 1 on."));
    }
    let value = Sum::ALL.into_iter().find_map(|sum| Some((sum, text(headers, sum.header())?)));
    let size = text(headers, "x-amz-mp-object-size").and_then(|size| size.parse().ok());
    let whole = Whole { size, kind: text(headers, "x-amz-checksum-type"), value };
    let mut uploads = shared.uploads();
    let uploads = uploads.entry(target.bucket.clone()).or_default();
    let object = uploads.join(&target.key, upload_id(target), &named, &whole, shared.rules)?;
    let kept = object.kept.as_ref().filter(|_| shared.checksum.is_some());
    let body = upload_xml::completed(&target.bucket, &target.key, &object.etag, kept);
    let mut response = Response::new(Reply::bytes(body, Some(under_way)));
    encryption(&object.beside, response.headers_mut());
    let mut buckets = shared.write();
    let keys = buckets.entry(target.bucket.clone()).or_default();
    check_condition(keys.get(&target.key), headers, false)?;
    keys.insert(target.key.clone(), object);
    uploads.abort(&target.key, upload_id(target))?;
    Ok(response)
}

/// AbortMultipartUpload.
pub(crate) fn abort(shared: &Shared, target: &Target) -> Answer {
    let mut uploads = shared.uploads();
    uploads.entry(target.bucket.clone()).or_default().abort(&target.key, upload_id(target))?;
    let mut response = empty();
    *response.status_mut() = hyper::StatusCode::NO_CONTENT;
    Ok(response)
}

/// The most entries that a page may have.
fn most(target: &Target, name: &str) -> Result<usize, Refused> {
    let most = target.query.get(name).map_or(Ok(1000), |most| most.parse::<usize>());
    most.map(|most| most.min(1000)).map_err(|_| refused(400, "InvalidArgument", "The limit is not a number"))
}

/// ListMultipartUploads.
pub(crate) fn list(shared: &Shared, target: &Target, under_way: UnderWay) -> Answer {
    let text = |name: &str| target.query.get(name).map_or("", String::as_str);
    if !text("delimiter").is_empty() {
        return Err(refuse(501, "NotImplemented", "The test server rolls up no uploads."));
    }
    let after = Some((text("key-marker"), text("upload-id-marker"))).filter(|(key, _)| !key.is_empty());
    let mut uploads = shared.uploads();
    let uploads = uploads.entry(target.bucket.clone()).or_default();
    let (page, has_more) = uploads.list(text("prefix"), after, most(target, "max-uploads")?);
    let url = text("encoding-type") == "url";
    let body = upload_xml::uploads(&target.bucket, text("prefix"), &page, has_more, url);
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}

/// ListParts.
pub(crate) fn list_parts(shared: &Shared, target: &Target, under_way: UnderWay) -> Answer {
    let mut uploads = shared.uploads();
    let uploads = uploads.entry(target.bucket.clone()).or_default();
    let upload = uploads.get(&target.key, upload_id(target))?;
    let after: u32 = target.query.get("part-number-marker").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut behind = upload.parts.range(after.saturating_add(1)..);
    let page: Vec<_> = behind.by_ref().take(most(target, "max-parts")?).collect();
    let has_more = behind.next().is_some();
    let body = upload_xml::parts(&target.bucket, &target.key, upload_id(target), upload.sum, &page, has_more);
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}
