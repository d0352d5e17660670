//! Answering requests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use s3mount_object::{ChecksumAlgorithm, ObjectChecksum, UploadPart};

use crate::list::{Query, page, unordered_page};
use crate::object::Object;
use crate::server::answer::{Answer, Refusal, refuse};
use crate::server::body::Reply;
use crate::server::control::control;
use crate::server::directory_bucket;
use crate::server::fault::{FaultKind, Operation};
use crate::server::received::{self, Received, Taking, check_length};
use crate::server::request::{Target, Wanted, credential, header, range};
use crate::server::sessions::{STORAGE_CLASS, is_directory_bucket};
use crate::server::shared::Shared;
use crate::server::stats::UnderWay;
use crate::server::write_headers::{self, checksum, insert};
use crate::server::writes::{self, source};
use crate::server::{multipart, upload_xml, xml};
use crate::sums::{ChecksumType, Kept, Sum, Value};
use crate::uploads::Uploads;

const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// S3 refuses requests whose time differs by as much, in seconds.
const MOST_SKEW_S: u64 = 15 * 60;

/// Marks an answer whose connection is reset in the middle of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResetConnection;

/// The connection is reset without an answer.
#[derive(Debug)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a fault breaks the connection")
    }
}

impl std::error::Error for Broken {}

/// Answers one request.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Broken> {
    if request.uri().path().starts_with("/_test/") {
        return Ok(control(shared, request).await);
    }
    let target = Target::new(request.method(), request.uri(), request.headers());
    let under_way = shared.counters.request(target.operation);
    let request_id = format!("{:016X}", shared.next_request.fetch_add(1, Ordering::Relaxed));
    let is_head = request.method() == Method::HEAD;
    let fault = shared.faults.strike(target.operation, target.name());
    let broken = || {
        shared.counters.error(target.operation);
        Err(Broken)
    };
    if fault == Some(FaultKind::Reset) {
        return broken();
    }
    let Some(request) = receive(shared, &target, request, fault.as_ref(), &under_way).await else {
        return broken();
    };
    let answer = match fault.clone() {
        Some(FaultKind::Status(status, code)) => Err(refuse(status, code, "a fault of the test server")),
        Some(FaultKind::Redirect(status, _)) => {
            Err(refuse(status, "PermanentRedirect", "a fault of the test server"))
        }
        Some(FaultKind::Clock(ahead_s)) if ahead_s.unsigned_abs() >= MOST_SKEW_S => {
            Err(refuse(403, "RequestTimeTooSkewed", "The difference between the clocks is too large."))
        }
        None if !shared.limiter.takes(shared.shape().requests_per_second) => {
            Err(refuse(503, "SlowDown", "Please reduce your request rate."))
        }
        Some(FaultKind::Body(text)) => Ok(Response::new(Reply::bytes(text, Some(under_way)))),
        Some(FaultKind::Late(ms)) => {
            let shared = shared.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                // Nobody waits for the answer.
                let _ = answer(&shared, &target, &request, under_way, None);
            });
            return Err(Broken);
        }
        fault => {
            wait(shared, &target, request.headers(), fault.as_ref()).await;
            let answer = answer(shared, &target, &request, under_way, fault.as_ref());
            if fault == Some(FaultKind::LostAnswer) {
                return broken();
            }
            answer
        }
    };
    let mut response = answer.unwrap_or_else(|refusal| {
        shared.counters.error(target.operation);
        let Refusal { status, code, message, extra } = refusal;
        let resource = format!("/{}/{}", target.bucket, target.key);
        let body = xml::error(&code, &message, &resource, &request_id, &extra);
        let body = if is_head { Bytes::new() } else { body.into() };
        let mut response = Response::new(Reply::bytes(body, None));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        response
    });
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("s3mount-test-server"));
    let mut insert =
        |name, value: &str| HeaderValue::from_str(value).map(|value| headers.insert(name, value));
    // Both values are ASCII: the region comes from the test, and the id is hexadecimal.
    let region = match &fault {
        Some(FaultKind::Redirect(_, region)) => region,
        _ => &shared.region,
    };
    let _ = (insert(REQUEST_ID, &request_id), insert(REGION, region));
    match fault {
        Some(FaultKind::ShortBody) => response.body_mut().break_half_way(),
        Some(FaultKind::ResetBody) => {
            response.body_mut().break_half_way();
            response.extensions_mut().insert(ResetConnection);
        }
        Some(FaultKind::StallBody(ms)) => response.body_mut().stall_half_way(Duration::from_millis(ms)),
        Some(FaultKind::Trickle(rate)) => response.body_mut().trickle(rate),
        Some(FaultKind::HalfBody) => response.body_mut().halve(),
        Some(FaultKind::FlipBit) => response.body_mut().flip_bit(),
        Some(FaultKind::Clock(ahead_s)) => {
            let by = Duration::from_secs(ahead_s.unsigned_abs());
            let now = SystemTime::now();
            let date = httpdate::fmt_http_date(if ahead_s < 0 { now - by } else { now + by });
            let _ =
                HeaderValue::from_str(&date).map(|date| response.headers_mut().insert(header::DATE, date));
        }
        // S3 sends this header sometimes. AWS's clients ignore it.
        Some(FaultKind::Status(503, _)) => {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    Ok(response)
}

/// Receives the body of a request, if it has one.
async fn receive(
    shared: &Shared,
    target: &Target,
    request: Request<Incoming>,
    fault: Option<&FaultKind>,
    under_way: &UnderWay,
) -> Option<Request<Received>> {
    let (head, body) = request.into_parts();
    if !matches!(head.method, Method::PUT | Method::POST) {
        return Some(Request::from_parts(head, Received::nothing()));
    }
    let is_upload = matches!(target.operation, Operation::PutObject | Operation::UploadPart);
    if is_upload && check_length(&head.headers).is_err() {
        // The answer says so, and the body stays where it is.
        return Some(Request::from_parts(head, Received::nothing()));
    }
    let taking = Taking {
        bytes_per_second: shared.shape().bytes_per_second,
        drops: is_upload && shared.drops_uploads,
        needs_md5: is_upload && !shared.has_opaque_etags(&target.bucket),
        sum: multipart::sum(shared, target),
    };
    let received = received::receive(&head.headers, body, taking, fault, under_way).await?;
    Some(Request::from_parts(head, received))
}

/// The number of bytes that a copy copies.
fn copied_bytes(shared: &Shared, headers: &header::HeaderMap) -> u64 {
    let size = source(shared, headers).map_or(0, |object| object.size);
    match range(header(headers, "x-amz-copy-source-range"), size) {
        Wanted::Part(part) => part.end - part.start,
        Wanted::Whole | Wanted::Unsatisfiable => size,
    }
}

/// Waits as long as the shape and the fault say, and while the server is frozen.
async fn wait(shared: &Shared, target: &Target, headers: &header::HeaderMap, fault: Option<&FaultKind>) {
    let shape = shared.shape();
    let latency = match target.operation {
        Operation::ListObjects | Operation::ListMultipartUploads => shape.list_latency(),
        Operation::CopyObject | Operation::UploadPartCopy => shape.copy_time(copied_bytes(shared, headers)),
        _ => shape.first_byte_latency(),
    };
    let stall = match fault {
        Some(FaultKind::Stall(ms)) => Duration::from_millis(*ms),
        _ => Duration::ZERO,
    };
    let _copying = match target.operation {
        Operation::CopyObject | Operation::UploadPartCopy => {
            Some(shared.copies.begin(shape.copies_at_once).await)
        }
        _ => None,
    };
    if !(latency + stall).is_zero() {
        tokio::time::sleep(latency + stall).await;
    }
    let thaws = shared.thaws.load(Ordering::Relaxed);
    let is_frozen = || {
        shared.frozen.load(Ordering::Relaxed)
            || fault == Some(&FaultKind::Freeze) && shared.thaws.load(Ordering::Relaxed) == thaws
    };
    while is_frozen() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Refuses a request that its signer is not allowed to send.
fn check(shared: &Shared, target: &Target, request: &Request<Received>) -> Result<(), Refusal> {
    let credential = credential(request.headers());
    let known = shared.access_key.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(known) = known.filter(|_| !directory_bucket::needs_session(target)) {
        match credential {
            None => return Err(refuse(403, "AccessDenied", "Access Denied")),
            Some((key, _)) if key != known => {
                let message = "The AWS Access Key Id you provided does not exist in our records.";
                return Err(refuse(403, "InvalidAccessKeyId", message));
            }
            Some(_) => {}
        }
    }
    if let Some((_, region)) = credential
        && shared.strict_region
        && region != shared.region
    {
        if request.method() == Method::HEAD {
            return Err(refuse(301, "PermanentRedirect", "The bucket is in another region"));
        }
        let message = format!("the region '{region}' is wrong; expecting '{}'", shared.region);
        let extra = format!("<Region>{}</Region>", shared.region);
        return Err(Refusal { extra, ..refuse(400, "AuthorizationHeaderMalformed", message) });
    }
    let headers = request.headers();
    let is_owner =
        |name: &str| shared.owner.as_ref().is_none_or(|owner| header(headers, name) == owner.as_str());
    let is_copy = headers.contains_key("x-amz-copy-source");
    if !is_owner("x-amz-expected-bucket-owner")
        || is_copy && !is_owner("x-amz-source-expected-bucket-owner")
        || shared.requester_pays && header(headers, "x-amz-request-payer") != "requester"
    {
        return Err(refuse(403, "AccessDenied", "Access Denied"));
    }
    // A request for the bucket itself, such as a HEAD, has no prefix. So a policy that is scoped to a prefix
    // refuses it, too.
    let is_outside =
        |prefix: &String| !target.bucket.is_empty() && !target.name().starts_with(prefix.as_str());
    if shared.denies(target.name()) || shared.allowed.as_ref().is_some_and(is_outside) {
        return Err(refuse(403, "AccessDenied", "Access Denied"));
    }
    Ok(())
}

fn answer(
    shared: &Shared,
    target: &Target,
    request: &Request<Received>,
    under_way: UnderWay,
    fault: Option<&FaultKind>,
) -> Answer {
    check(shared, target, request)?;
    if target.bucket.is_empty() {
        let buckets = shared.read();
        return Ok(Response::new(Reply::bytes(xml::buckets(buckets.keys()), Some(under_way))));
    }
    let is_new =
        target.operation == Operation::Other && target.key.is_empty() && request.method() == Method::PUT;
    if !is_new && !shared.read().contains_key(&target.bucket) {
        return Err(refuse(404, "NoSuchBucket", "The specified bucket does not exist"));
    }
    directory_bucket::check(shared, target, request)?;
    let headers = request.headers();
    match target.operation {
        Operation::CreateSession => directory_bucket::create_session(shared, target, headers, under_way),
        Operation::GetObject => get(shared, target, headers, under_way, fault),
        Operation::HeadObject => head(shared, &find(shared, target)?, headers),
        Operation::GetObjectAttributes => attributes(shared, &find(shared, target)?, headers, under_way),
        Operation::ListObjects => list(shared, target, under_way),
        Operation::HeadBucket => Ok(Response::new(Reply::bytes("", None))),
        Operation::PutObject => writes::put(shared, target, request),
        Operation::DeleteObject => writes::delete(shared, target, headers),
        Operation::DeleteObjects => writes::delete_many(shared, target, request, under_way),
        Operation::CopyObject => writes::copy(shared, target, headers, under_way),
        Operation::RenameObject => writes::rename(shared, target, headers),
        Operation::CreateMultipartUpload => multipart::create(shared, target, headers, under_way),
        Operation::UploadPart => multipart::put_part(shared, target, request),
        Operation::UploadPartCopy => multipart::copy_part(shared, target, headers, under_way),
        Operation::CompleteMultipartUpload => multipart::complete(shared, target, request, under_way),
        Operation::AbortMultipartUpload => multipart::abort(shared, target),
        Operation::ListMultipartUploads => multipart::list(shared, target, under_way),
        Operation::ListParts => multipart::list_parts(shared, target, under_way),
        Operation::Other if is_new => {
            shared.write().entry(target.bucket.clone()).or_default();
            Ok(Response::new(Reply::bytes("", None)))
        }
        Operation::Other if target.query.contains_key("location") => {
            Ok(Response::new(Reply::bytes(xml::location(&shared.region), Some(under_way))))
        }
        Operation::Other if request.method() == Method::GET && target.query.contains_key("tagging") => {
            let tags = find(shared, target)?.beside.tags.unwrap_or_default();
            Ok(Response::new(Reply::bytes(upload_xml::tagging(&tags), Some(under_way))))
        }
        Operation::Other => Err(refuse(501, "NotImplemented", "The test server does not know this.")),
    }
}

fn find(shared: &Shared, target: &Target) -> Result<Object, Refusal> {
    let buckets = shared.read();
    let object = buckets.get(&target.bucket).and_then(|keys| keys.get(&target.key));
    let mut object =
        object.cloned().ok_or_else(|| refuse(404, "NoSuchKey", "The specified key does not exist."))?;
    if is_directory_bucket(&target.bucket) {
        object.beside.storage_class = Some(STORAGE_CLASS.to_owned());
    }
    Ok(object)
}

/// An answer with the headers that a GET and a HEAD share.
fn describe(object: &Object, etag: &str) -> Response<Reply> {
    let mut response = Response::new(Reply::bytes("", None));
    let headers = response.headers_mut();
    insert(headers, "etag", etag);
    insert(headers, "last-modified", &httpdate::fmt_http_date(object.modified.max(UNIX_EPOCH)));
    insert(headers, "accept-ranges", "bytes");
    write_headers::describe(object, headers);
    response
}

fn precondition(object: &Object, headers: &header::HeaderMap) -> Result<(), Refusal> {
    let wanted = header(headers, header::IF_MATCH);
    if !wanted.is_empty() && wanted != "*" && wanted != object.etag {
        let message = "At least one of the pre-conditions you specified did not hold";
        return Err(refuse(412, "PreconditionFailed", message));
    }
    Ok(())
}

/// Adds the checksum of an object to its answer, if the server keeps one and the request asks for it.
fn add_checksum(
    shared: &Shared,
    object: &Object,
    request: &header::HeaderMap,
    response: &mut Response<Reply>,
) -> Result<(), Refusal> {
    let Some(algorithm) = shared.checksum.filter(|_| header(request, CHECKSUM_MODE) == "ENABLED") else {
        return Ok(());
    };
    if let Some(kept) = &object.kept {
        checksum(kept, response.headers_mut());
        return Ok(());
    }
    let failed = |error: std::io::Error| refuse(500, "InternalError", error.to_string());
    let name = match algorithm {
        ChecksumAlgorithm::Crc64Nvme => HeaderName::from_static("x-amz-checksum-crc64nvme"),
        ChecksumAlgorithm::Crc32c => HeaderName::from_static("x-amz-checksum-crc32c"),
        ChecksumAlgorithm::Crc32 => HeaderName::from_static("x-amz-checksum-crc32"),
    };
    let (text, kind) = match shared.part_len(object) {
        // S3 sends the checksum of the parts' checksums here. No client of this server uses its value.
        Some(len) => (format!("AAAAAA==-{}", object.size.div_ceil(len)), "COMPOSITE"),
        None => (object.checksum(algorithm).map_err(failed)?.to_base64(), "FULL_OBJECT"),
    };
    // Base64 is ASCII.
    let _ = HeaderValue::from_str(&text).map(|value| response.headers_mut().insert(name, value));
    let header = HeaderName::from_static("x-amz-checksum-type");
    response.headers_mut().insert(header, HeaderValue::from_static(kind));
    Ok(())
}

/// Answers with a page of the parts in which an object was uploaded.
fn attributes(shared: &Shared, object: &Object, headers: &header::HeaderMap, under_way: UnderWay) -> Answer {
    let number = |name: &'static str, default| header(headers, name).parse().unwrap_or(default);
    let (most, marker) = (number("x-amz-max-parts", 1000).min(1000), number("x-amz-part-number-marker", 0));
    let kept = object.kept.as_ref().filter(|kept| kept.kind == ChecksumType::Composite);
    if let Some(Kept { sum: Sum::Crc(algorithm), parts, .. }) = kept {
        let part = |(value, len): &(Value, u64)| UploadPart {
            len: *len,
            checksum: ObjectChecksum { algorithm: *algorithm, value: value.crc() },
        };
        let parts: Vec<_> = parts.iter().map(part).collect();
        let body = xml::attributes(&object.etag, &parts, marker, most);
        return Ok(Response::new(Reply::bytes(body, Some(under_way))));
    }
    let parts = match (shared.part_len(object), shared.checksum) {
        (Some(len), Some(algorithm)) => object.parts(algorithm, len),
        _ => Ok(Vec::new()),
    };
    let parts = parts.map_err(|error| refuse(500, "InternalError", error.to_string()))?;
    let body = xml::attributes(&object.etag, &parts, marker, most);
    Ok(Response::new(Reply::bytes(body, Some(under_way))))
}

fn head(shared: &Shared, object: &Object, headers: &header::HeaderMap) -> Answer {
    precondition(object, headers)?;
    let mut response = describe(object, &object.etag);
    add_checksum(shared, object, headers, &mut response)?;
    response.headers_mut().insert(header::CONTENT_LENGTH, object.size.into());
    Ok(response)
}

fn get(
    shared: &Shared,
    target: &Target,
    headers: &header::HeaderMap,
    under_way: UnderWay,
    fault: Option<&FaultKind>,
) -> Answer {
    let object = find(shared, target)?;
    precondition(&object, headers)?;
    if object.beside.storage_class.as_deref() == Some("GLACIER") {
        let message = "The operation is not valid for the object's storage class";
        return Err(refuse(403, "InvalidObjectState", message));
    }
    if header(headers, header::IF_NONE_MATCH) == object.etag {
        let mut response = describe(&object, &object.etag);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let wanted = match fault {
        Some(FaultKind::WholeObject) => Wanted::Whole,
        _ => range(header(headers, header::RANGE), object.size),
    };
    let (status, part) = match wanted {
        Wanted::Whole => (StatusCode::OK, 0..object.size),
        Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Wanted::Unsatisfiable => {
            return Err(refuse(416, "InvalidRange", "The requested range is not satisfiable"));
        }
    };
    shared.counters.range(&target.key, part.clone());
    let etag = if fault == Some(&FaultKind::WrongEtag) { "\"another\"" } else { &object.etag };
    let mut response = describe(&object, etag);
    *response.status_mut() = status;
    if status == StatusCode::PARTIAL_CONTENT {
        let shift = if fault == Some(&FaultKind::WrongRange) { part.end - part.start } else { 0 };
        let text = format!("bytes {}-{}/{}", part.start + shift, part.end - 1 + shift, object.size);
        let value = HeaderValue::from_str(&text).map_err(|_| refuse(500, "InternalError", text))?;
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    if part == (0..object.size) {
        add_checksum(shared, &object, headers, &mut response)?;
    }
    let rate = shared.shape().bytes_per_second;
    let end = if fault == Some(&FaultKind::DoubleBody) {
        (part.end + (part.end - part.start)).min(object.size)
    } else {
        part.end
    };
    *response.body_mut() = Reply::object(object, part.start, end, rate, under_way);
    Ok(response)
}

fn list(shared: &Shared, target: &Target, under_way: UnderWay) -> Answer {
    let text = |name: &str| target.query.get(name).filter(|value| !value.is_empty()).cloned();
    let v2 = text("list-type").as_deref() == Some("2");
    let max_keys = text("max-keys").map_or(Ok(1000), |keys| keys.parse::<usize>());
    let max_keys = max_keys.map_err(|_| refuse(400, "InvalidArgument", "max-keys is not a number"))?;
    let after = match text("continuation-token") {
        Some(token) => Some(
            xml::read_token(&token)
                .ok_or_else(|| refuse(400, "InvalidArgument", "The continuation token is wrong"))?,
        ),
        None => text(if v2 { "start-after" } else { "marker" }),
    };
    let query = Query {
        prefix: text("prefix").unwrap_or_default(),
        delimiter: text("delimiter"),
        after,
        max_keys: max_keys.min(1000),
        keeps_prefixes: false,
    };
    let url = text("encoding-type").as_deref() == Some("url");
    let uploads = shared.uploads().get(&target.bucket).map(Uploads::keys);
    let buckets = shared.read();
    let keys = buckets.get(&target.bucket).ok_or_else(|| refuse(404, "NoSuchBucket", "It is gone"))?;
    let page = match is_directory_bucket(&target.bucket) {
        true => unordered_page(keys, &uploads.unwrap_or_default(), &query),
        false => page(keys, &query),
    };
    let body = xml::listing(&target.bucket, &query, &page, url, v2);
    let mut response = Response::new(Reply::bytes(body, Some(under_way)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(response)
}
