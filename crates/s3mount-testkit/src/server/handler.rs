//! Answering requests.

use std::borrow::Cow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use s3mount_object::{ChecksumAlgorithm, NewObject, UserMetadata};

use crate::list::{Query, page};
use crate::object::Object;
use crate::server::body::Reply;
use crate::server::control::control;
use crate::server::fault::{FaultKind, Operation};
use crate::server::request::{Target, Wanted, credential, dechunk, header, is_chunked, range};
use crate::server::shared::Shared;
use crate::server::stats::UnderWay;
use crate::server::xml;

const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The header of each entry of the user's metadata begins so.
const METADATA_PREFIX: &str = "x-amz-meta-";

const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

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

/// An error that the server answers with.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) extra: String,
}

pub(crate) fn refuse(status: u16, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Refusal {
    Refusal { status, code: code.into(), message: message.into(), extra: String::new() }
}

type Answer = Result<Response<Reply>, Refusal>;

/// Answers one request.
pub(crate) async fn handle(shared: &Shared, request: Request<Incoming>) -> Result<Response<Reply>, Broken> {
    if request.uri().path().starts_with("/_test/") {
        return Ok(control(shared, request).await);
    }
    let target = Target::new(request.method(), request.uri(), request.headers());
    let under_way = shared.counters.request(target.operation);
    let request_id = format!("{:016X}", shared.next_request.fetch_add(1, Ordering::Relaxed));
    let is_head = request.method() == Method::HEAD;
    let fault = shared.faults.strike(target.operation, target.name());
    let answer = match fault.clone() {
        Some(FaultKind::Reset) => {
            shared.counters.error(target.operation);
            return Err(Broken);
        }
        Some(FaultKind::Status(status, code)) => Err(refuse(status, code, "a fault of the test server")),
        Some(FaultKind::Redirect(status, _)) => {
            Err(refuse(status, "PermanentRedirect", "a fault of the test server"))
        }
        None if !shared.limiter.takes(shared.shape().requests_per_second) => {
            Err(refuse(503, "SlowDown", "Please reduce your request rate."))
        }
        Some(FaultKind::Body(text)) => Ok(Response::new(Reply::bytes(text, Some(under_way)))),
        fault => {
            wait(shared, target.operation, fault.as_ref()).await;
            answer(shared, &target, request, under_way, fault.as_ref()).await
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
        // S3 sends this header sometimes. AWS's clients ignore it.
        Some(FaultKind::Status(503, _)) => {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    Ok(response)
}

/// Waits as long as the shape and the fault say, and while the server is frozen.
async fn wait(shared: &Shared, operation: Operation, fault: Option<&FaultKind>) {
    let shape = shared.shape();
    let latency = match operation {
        Operation::ListObjects => shape.list_latency(),
        _ => shape.first_byte_latency(),
    };
    let stall = match fault {
        Some(FaultKind::Stall(ms)) => Duration::from_millis(*ms),
        _ => Duration::ZERO,
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
fn check(shared: &Shared, target: &Target, request: &Request<Incoming>) -> Result<(), Refusal> {
    let credential = credential(request.headers());
    let known = shared.access_key.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(known) = known {
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
    let is_denied = |prefix: &String| target.name().starts_with(prefix.as_str());
    // A request for the bucket itself, such as a HEAD, has no prefix. So a policy that is scoped to a prefix
    // refuses it, too.
    let is_outside =
        |prefix: &String| !target.bucket.is_empty() && !target.name().starts_with(prefix.as_str());
    if shared.denied.iter().any(is_denied) || shared.allowed.as_ref().is_some_and(is_outside) {
        return Err(refuse(403, "AccessDenied", "Access Denied"));
    }
    Ok(())
}

async fn answer(
    shared: &Shared,
    target: &Target,
    request: Request<Incoming>,
    under_way: UnderWay,
    fault: Option<&FaultKind>,
) -> Answer {
    check(shared, target, &request)?;
    if target.bucket.is_empty() {
        let buckets = shared.read();
        return Ok(Response::new(Reply::bytes(xml::buckets(buckets.keys()), Some(under_way))));
    }
    let is_new = target.operation == Operation::Other && request.method() == Method::PUT;
    if !is_new && !shared.read().contains_key(&target.bucket) {
        return Err(refuse(404, "NoSuchBucket", "The specified bucket does not exist"));
    }
    match target.operation {
        Operation::GetObject => get(shared, target, &request, under_way, fault),
        Operation::HeadObject => head(shared, &find(shared, target)?, request.headers()),
        Operation::GetObjectAttributes => {
            attributes(shared, &find(shared, target)?, request.headers(), under_way)
        }
        Operation::ListObjects => list(shared, target, under_way),
        Operation::HeadBucket => Ok(Response::new(Reply::bytes("", None))),
        Operation::PutObject => put(shared, target, request).await,
        Operation::DeleteObject => {
            shared.write().get_mut(&target.bucket).and_then(|keys| keys.remove(&target.key));
            let mut response = Response::new(Reply::bytes("", None));
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Operation::Other if is_new => {
            shared.write().entry(target.bucket.clone()).or_default();
            Ok(Response::new(Reply::bytes("", None)))
        }
        Operation::Other if target.query.contains_key("location") => {
            Ok(Response::new(Reply::bytes(xml::location(&shared.region), Some(under_way))))
        }
        Operation::Other => Err(refuse(501, "NotImplemented", "The test server does not know this.")),
    }
}

fn find(shared: &Shared, target: &Target) -> Result<Object, Refusal> {
    let buckets = shared.read();
    let object = buckets.get(&target.bucket).and_then(|keys| keys.get(&target.key));
    object.cloned().ok_or_else(|| refuse(404, "NoSuchKey", "The specified key does not exist."))
}

/// An answer with the headers that a GET and a HEAD share.
fn describe(object: &Object, etag: &str) -> Response<Reply> {
    let mut response = Response::new(Reply::bytes("", None));
    let headers = response.headers_mut();
    let mut insert = |name: HeaderName, value: &str| {
        // All these values are ASCII, because the server itself wrote them.
        let _ = HeaderValue::from_str(value).map(|value| headers.insert(name, value));
    };
    insert(header::ETAG, etag);
    insert(header::LAST_MODIFIED, &httpdate::fmt_http_date(object.modified.max(UNIX_EPOCH)));
    insert(header::ACCEPT_RANGES, "bytes");
    insert(header::CONTENT_TYPE, "binary/octet-stream");
    for (name, value) in &object.beside.metadata {
        let name = HeaderName::try_from(format!("{METADATA_PREFIX}{name}"));
        // Both came in a header.
        let _ = name.map(|name| insert(name, value));
    }
    if let Some(class) = &object.beside.storage_class {
        insert(HeaderName::from_static("x-amz-storage-class"), class);
    }
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
    request: &Request<Incoming>,
    under_way: UnderWay,
    fault: Option<&FaultKind>,
) -> Answer {
    let object = find(shared, target)?;
    precondition(&object, request.headers())?;
    if object.beside.storage_class.as_deref() == Some("GLACIER") {
        let message = "The operation is not valid for the object's storage class";
        return Err(refuse(403, "InvalidObjectState", message));
    }
    if header(request.headers(), header::IF_NONE_MATCH) == object.etag {
        let mut response = describe(&object, &object.etag);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let wanted = match fault {
        Some(FaultKind::WholeObject) => Wanted::Whole,
        _ => range(header(request.headers(), header::RANGE), object.size),
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
        add_checksum(shared, &object, request.headers(), &mut response)?;
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
    let buckets = shared.read();
    let keys = buckets.get(&target.bucket).ok_or_else(|| refuse(404, "NoSuchBucket", "It is gone"))?;
    let body = xml::listing(&target.bucket, &query, &page(keys, &query), url, v2);
    let mut response = Response::new(Reply::bytes(body, Some(under_way)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(response)
}

async fn put(shared: &Shared, target: &Target, request: Request<Incoming>) -> Answer {
    let chunked = is_chunked(request.headers());
    let only_new = header(request.headers(), header::IF_NONE_MATCH) == "*";
    if only_new && shared.refuses_conditions {
        let message = "A header you provided implies functionality that is not implemented";
        return Err(refuse(501, "NotImplemented", message));
    }
    let metadata = user_metadata(request.headers());
    let body = request.into_body().collect().await;
    let body = body.map_err(|error| refuse(400, "IncompleteBody", error.to_string()))?.to_bytes();
    let body = if chunked {
        dechunk(&body).ok_or_else(|| refuse(400, "IncompleteBody", "the chunks are malformed"))?.into()
    } else {
        body
    };
    let beside = NewObject { metadata, ..NewObject::default() };
    let object = Object { beside, ..Object::bytes(body) };
    let mut response = Response::new(Reply::bytes("", None));
    // An ETag of this server is hexadecimal.
    let _ = HeaderValue::from_str(&object.etag).map(|etag| response.headers_mut().insert(header::ETAG, etag));
    let mut buckets = shared.write();
    let keys = buckets.entry(target.bucket.clone()).or_default();
    if only_new && keys.contains_key(&target.key) {
        let message = "At least one of the pre-conditions you specified did not hold";
        return Err(refuse(412, "PreconditionFailed", message));
    }
    keys.insert(target.key.clone(), object);
    Ok(response)
}

/// The user's metadata in the headers of an upload. A header's name is in lower case here.
fn user_metadata(headers: &header::HeaderMap) -> UserMetadata {
    let entry = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().strip_prefix(METADATA_PREFIX)?.to_owned(), value.to_str().ok()?.to_owned()))
    };
    headers.iter().filter_map(entry).collect()
}
