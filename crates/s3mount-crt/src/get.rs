//! The GET, the only request whose answer carries the bytes of an object.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::channel::oneshot;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::s3::client::{MetaRequestOptions, MetaRequestResult, MetaRequestType};
use s3mount_object::{
    ErrorKind, GetAnswer, GetObject, ObjectError, Origin, PartBuffer, S3Detail, UserMetadata,
};

use crate::CrtClient;
use crate::answer::{Answer, user_metadata};
use crate::checksum;
use crate::error::{NO_ETAG, crt_error, failed};
use crate::pool::LendingPool;
use crate::request::CancelOnDrop;
use crate::session::Session;
use crate::xml::etag;

const OPERATION: &str = "GetObject";

/// Which version a GET accepts, and what it keeps of the answer's headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The version that the request names.
    Named,
    /// Whichever is there, together with its metadata. The ETag of the request counts for nothing.
    Latest,
}

/// The result of a GET.
pub(crate) struct Fetched {
    pub(crate) bytes: Bytes,
    first_byte: Duration,
    /// Whether the bytes are the whole object, and match the checksum that came with them.
    is_compared: bool,
    /// Empty for a GET of a named version.
    pub(crate) metadata: UserMetadata,
}

/// The kind of error, and why the answer does not match the request.
type Refusal = (ErrorKind, String);

/// How a GET ends.
enum End {
    /// The CRT has finished the request.
    Finished(MetaRequestResult),
    /// The headers of the answer show that its body can't be used.
    Refused(Refusal),
}

/// What the CRT's callbacks have stored for the caller that waits for the part.
struct PendingPart {
    answer: Answer,
    first_byte: Duration,
    body: Option<Bytes>,
    metadata: UserMetadata,
    /// The store sent more bytes than the part has.
    excess: bool,
    /// **Invariant:** the callback that ends the part first takes the sender.
    end: Option<oneshot::Sender<End>>,
}

fn lock(part: &Mutex<PendingPart>) -> MutexGuard<'_, PendingPart> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(part: &Mutex<PendingPart>, end: End) {
    // Send without the lock: the caller that waits takes the lock next.
    let sender = lock(part).end.take();
    if let Some(sender) = sender {
        // Sending fails if the caller no longer waits for the part. That is no error.
        let _ = sender.send(end);
    }
}

/// Takes a lent buffer back if the CRT never asked for it.
struct TakeBack<'a>(&'a LendingPool, u64);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.0.take_back(self.1);
    }
}

/// The mismatch in the headers of a successful answer, if any. A store that does not know `If-Match` answers with
/// whatever version is there now.
fn mismatch(answer: &Answer, request: &GetObject, version: Version) -> Option<Refusal> {
    let asked = etag(request.object.etag().as_str());
    match answer.etag.as_deref().map(etag) {
        Some(now) if now == asked || version == Version::Latest => {}
        Some(now) => {
            return Some((ErrorKind::PreconditionFailed, format!("{asked} was asked for, {now} came")));
        }
        None => return Some((ErrorKind::NoEtag, NO_ETAG.to_owned())),
    }
    (!answer.is_range(request.range)).then(|| {
        let came = answer.content_range.as_deref().unwrap_or("no range");
        (ErrorKind::Integrity, format!("{} was asked for, {came:?} came", request.range))
    })
}

impl CrtClient {
    /// Like [`get_object`](s3mount_object::ObjectClient::get_object). Also returns the time until the first
    /// byte of the answer: the wait for a connection, the request, and the store's work.
    ///
    /// # Errors
    /// The errors of `get_object`.
    pub async fn get_object_timed(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> Result<(Bytes, Duration), ObjectError> {
        let fetched = self.get_version(request, Version::Named, into).await?;
        Ok((fetched.bytes, fetched.first_byte))
    }

    /// [`get_object`](s3mount_object::ObjectClient::get_object) itself.
    pub(crate) async fn get_named(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> Result<GetAnswer, ObjectError> {
        let Fetched { bytes, first_byte, is_compared, .. } =
            self.get_version(request, Version::Named, into).await?;
        Ok(GetAnswer { bytes, origin: Origin::Store, is_compared, first_byte: Some(first_byte) })
    }

    /// Like [`get_object`](s3mount_object::ObjectClient::get_object), also for a version that is not known.
    pub(crate) async fn get_version(
        &self,
        request: GetObject,
        version: Version,
        into: Box<dyn PartBuffer>,
    ) -> Result<Fetched, ObjectError> {
        self.signer.prepare().await?;
        let session = self.session(OPERATION).await?;
        let sent = Instant::now();
        let result = self.get_once(request, version, session.as_ref(), into).await;
        self.judge(sent, session.as_ref(), result)
    }

    async fn get_once(
        &self,
        request: GetObject,
        version: Version,
        session: Option<&Session>,
        into: Box<dyn PartBuffer>,
    ) -> Result<Fetched, ObjectError> {
        let (key, range) = (request.object.key(), request.range);
        if range.len() == 0 || range.len() > (*into).as_ref().len() as u64 {
            return Err(ObjectError::new(ErrorKind::Rejected, OPERATION, key)
                .with_source("the range is empty, or longer than the buffer that was brought"));
        }
        if version == Version::Named && request.object.etag().as_str().trim_matches('"').is_empty() {
            // The listing had no ETag either. Any version would match, and parts of several versions could be
            // mixed.
            return Err(ObjectError::new(ErrorKind::NoEtag, OPERATION, key).with_source(NO_ETAG));
        }
        self.keep_connections();
        let (sender, ended) = oneshot::channel();
        let part = Arc::new(Mutex::new(PendingPart {
            answer: Answer::default(),
            first_byte: Duration::ZERO,
            body: None,
            metadata: UserMetadata::new(),
            excess: false,
            end: Some(sender),
        }));
        let id = self.transport.next_id();
        self.transport.pool().lend(id, into);
        let taken_back = TakeBack(self.transport.pool(), id);
        let sent = self
            .send_get(&request, version, session, id, &part)
            .map_err(|error| crt_error(OPERATION, key, error))?;
        let refuse = |answer: &Answer, (kind, why): Refusal| {
            let detail = S3Detail {
                status: u16::try_from(answer.status).ok(),
                request_id: answer.request_id.clone(),
                ..S3Detail::default()
            };
            Err(ObjectError::new(kind, OPERATION, key).with_detail(detail).with_source(why))
        };
        let result = match ended.await {
            Ok(End::Finished(result)) => result,
            // `sent` is dropped here, which cancels the request.
            Ok(End::Refused(refusal)) => return refuse(&lock(&part).answer, refusal),
            Err(oneshot::Canceled) => {
                return Err(ObjectError::new(ErrorKind::Cancelled, OPERATION, key));
            }
        };
        sent.done();
        drop(taken_back);
        if result.is_err() {
            return Err(failed(OPERATION, key, &self.endpoint.signing_region, &result));
        }
        let part = &mut *lock(&part);
        let body = part.body.take().unwrap_or_default();
        if let Some(refusal) = mismatch(&part.answer, &request, version) {
            return refuse(&part.answer, refusal);
        }
        if part.excess || body.len() as u64 != range.len() {
            let more = if part.excess { "more than " } else { "" };
            let why = format!("{range} was asked for, {more}{} bytes came", body.len());
            return refuse(&part.answer, (ErrorKind::Integrity, why));
        }
        let checksum = part.answer.checksum.as_ref().filter(|_| part.answer.is_whole(range));
        if let Some(checksum) = checksum
            && !checksum.is_of(&body).map_err(|error| crt_error(OPERATION, key, error))?
        {
            let why = format!("the bytes of {range} do not have the checksum that the store keeps of them");
            return refuse(&part.answer, (ErrorKind::Integrity, why));
        }
        let is_compared = checksum.is_some_and(checksum::Checksum::is_readable);
        let metadata = std::mem::take(&mut part.metadata);
        Ok(Fetched { bytes: body, first_byte: part.first_byte, is_compared, metadata })
    }

    /// Sends the GET with the id `id`. Its callbacks fill `part`.
    fn send_get(
        &self,
        request: &GetObject,
        version: Version,
        session: Option<&Session>,
        id: u64,
        part: &Arc<Mutex<PendingPart>>,
    ) -> Result<CancelOnDrop, CrtError> {
        let GetObject { object, range } = request;
        let (http_range, path) = (range.to_http(), self.endpoint.object_path(object.key()));
        let if_match = etag(object.etag().as_str());
        let mut headers = vec![("Range", http_range.as_str())];
        headers.extend((version == Version::Named).then_some(("If-Match", if_match.as_str())));
        // A store sends checksums of whole objects only, so only a range from the object's first byte can
        // have one.
        headers.extend((self.verify && range.start() == 0).then_some(checksum::MODE));
        let [on_headers, on_body, on_telemetry, on_finish] = [(); 4].map(|()| part.clone());
        let (asked, attempts) = (request.clone(), self.attempts.clone());
        let was_made = AtomicBool::new(false);
        let mut options = MetaRequestOptions::new();
        options
            .request_type(MetaRequestType::GetObject)
            .message(self.message("GET", &path, &headers, session)?)
            .endpoint(self.endpoint.uri.clone())
            .signing_config(self.signing(session))
            .part_size(range.len())
            .custom_id(id)
            .on_headers(move |headers, status| {
                let answer = Answer::new(headers, status);
                let refusal =
                    (200..300).contains(&status).then(|| mismatch(&answer, &asked, version)).flatten();
                let metadata = (version == Version::Latest).then(|| user_metadata(headers));
                let mut part = lock(&on_headers);
                (part.answer, part.metadata) = (answer, metadata.unwrap_or_default());
                drop(part);
                if let Some(refusal) = refusal {
                    // The part ends here and not at the end of the request: the CRT believes a wrong
                    // Content-Range, and would fetch the bytes of the requested range that the wrong range
                    // lacks.
                    end(&on_headers, End::Refused(refusal));
                }
            })
            .on_body(move |_, buffer| {
                // The owned buffer holds the CRT's ticket, which keeps the lent buffer with us. A buffer
                // without a ticket is not from our pool, so its bytes have to be copied.
                let bytes = match buffer.to_owned_buffer() {
                    Some(owned) => Bytes::from_owner(owned),
                    None => Bytes::copy_from_slice(buffer),
                };
                let mut part = lock(&on_body);
                if part.end.is_none() {
                    // The answer was refused already. The bytes are freed after the lock is released.
                } else if part.body.is_none() {
                    part.body = Some(bytes);
                    return;
                } else {
                    part.excess = true;
                }
                drop(part);
            })
            // The CRT calls back with headers and body only when the whole part is here. Only telemetry has
            // the time of the first byte.
            .on_telemetry(move |metrics| {
                attempts.note(&was_made, metrics);
                if let Some(received) = metrics.receive_start_timestamp_ns() {
                    let waited = received.saturating_sub(metrics.start_timestamp_ns());
                    lock(&on_telemetry).first_byte = Duration::from_nanos(waited);
                }
            })
            .on_finish(move |result| end(&on_finish, End::Finished(result)));
        Ok(CancelOnDrop(Some(self.transport.send(options)?)))
    }
}
