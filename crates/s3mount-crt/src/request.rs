//! Requests for metadata, and uploads. The CRT sends them unchanged, and the small bodies of their answers are
//! collected on the heap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures::channel::oneshot;
use mountpoint_s3_crt::auth::signing_config::SigningConfig;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::http::request_response::{Header, Headers, Message};
use mountpoint_s3_crt::s3::client::{
    MetaRequest, MetaRequestOptions, MetaRequestResult, MetaRequestType, RequestMetrics,
};
use s3mount_object::{ErrorKind, ObjectError};

use crate::CrtClient;
use crate::answer::Answer;
use crate::error::{crt_error, failed};
use crate::object_headers::described;
use crate::session::Session;

/// The longest body that is kept. No listing is longer: 1,000 keys of 1,024 bytes, each byte escaped.
///
/// This limit bounds what is copied and parsed. It does not bound what the CRT collects before: a `Default` request of
/// the CRT appends the whole body to a buffer that grows (`s_s3_meta_request_incoming_body` in aws-c-s3). The CRT calls
/// back for headers and body when the last byte has come (`s_s3_meta_request_default_request_finished`), so the request
/// could not be cancelled before that. `GetObject` requests have a buffer of a fixed size, but they send `Range` and
/// accept no answer without `Content-Range`, which a listing does not have. The time limit of an attempt bounds a body
/// without end.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The headers and the body of an answer, as the callbacks have stored them.
type Collected = Arc<Mutex<(Answer, Vec<u8>)>>;

/// Cancels a request when its answer is no longer awaited.
pub(crate) struct CancelOnDrop(pub(crate) Option<MetaRequest>);

impl CancelOnDrop {
    /// The request has ended, so there is nothing to cancel.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(request) = &self.0 {
            request.cancel();
        }
    }
}

/// The store's time of the answer.
fn date(headers: &Headers) -> Option<String> {
    headers.get_as_optional_string("Date").ok().flatten()
}

/// One request that is sent unchanged.
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static str,
    /// The key or the prefix, for errors.
    pub(crate) target: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The CRT reads the body where it lies, and drops it when the request has ended.
    pub(crate) body: Option<Bytes>,
    /// Keep the object's metadata in the answer.
    pub(crate) describes: bool,
}

impl CrtClient {
    /// A request with the headers that every request has.
    pub(crate) fn message(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        session: Option<&Session>,
    ) -> Result<Message, CrtError> {
        let mut message = Message::new_request(&self.allocator)?;
        message.set_request_method(method)?;
        message.set_request_path(path)?;
        message.add_header(&Header::new("Host", &self.endpoint.host))?;
        message.add_header(&Header::new("User-Agent", &self.user_agent))?;
        message.add_header(&Header::new("Accept", "application/xml, */*"))?;
        if let Some(owner) = &self.expected_bucket_owner {
            message.add_header(&Header::new("x-amz-expected-bucket-owner", owner))?;
        }
        if self.requester_pays {
            message.add_header(&Header::new("x-amz-request-payer", "requester"))?;
        }
        if let Some(session) = session {
            message.add_header(&Header::new("x-amz-s3session-token", &*session.token))?;
        }
        for (name, value) in headers {
            message.add_header(&Header::new(name, value))?;
        }
        Ok(message)
    }

    /// Looks at each attempt that the CRT makes: counts it, and notes in `unanswered` whether no answer told the
    /// attempt's result.
    fn watch(&self, unanswered: &Arc<AtomicBool>) -> impl Fn(&RequestMetrics) + Send + use<> {
        let (attempts, unanswered) = (self.attempts.clone(), unanswered.clone());
        let was_made = AtomicBool::new(false);
        move |metrics| {
            attempts.note(&was_made, metrics);
            if metrics.status_code().is_none_or(|status| status == 500 || status < 100) {
                unanswered.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sends one request unchanged. Returns the headers and the body of a successful answer.
    pub(crate) async fn send(
        &self,
        operation: &'static str,
        target: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(Answer, Vec<u8>), ObjectError> {
        self.call(Call { operation, target, method, path, headers, body: None, describes: false }).await
    }

    /// Like [`send`](Self::send), also for a request with a body.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<(Answer, Vec<u8>), ObjectError> {
        self.signer.prepare().await?;
        let session = self.session(call.operation).await?;
        let sent = Instant::now();
        let result = self.call_once(call, session.as_ref()).await;
        self.judge(sent, session.as_ref(), result)
    }

    /// Looks at the result of a request that was sent at `sent`: the store may have refused the session, or the
    /// credentials.
    pub(crate) fn judge<T>(
        &self,
        sent: Instant,
        session: Option<&Session>,
        result: Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        match (&self.sessions, session) {
            (Some(sessions), Some(session)) => sessions.judge(session, result),
            _ => self.signer.judge(sent, result),
        }
    }

    /// The signing configuration of a request.
    pub(crate) fn signing(&self, session: Option<&Session>) -> SigningConfig {
        session.map_or_else(|| self.signer.signing(), |session| self.signer.signing_by(&session.provider))
    }

    pub(crate) async fn call_once(
        &self,
        call: Call<'_>,
        session: Option<&Session>,
    ) -> Result<(Answer, Vec<u8>), ObjectError> {
        self.keep_connections();
        let (operation, target) = (call.operation, call.target);
        let collected = Arc::new(Mutex::new((Answer::default(), Vec::new())));
        let unanswered = Arc::<AtomicBool>::default();
        let (sent, finished) = self
            .send_default(call, session, &collected, &unanswered)
            .map_err(|error| crt_error(operation, target, error))?;
        let Ok(result) = finished.await else {
            return Err(ObjectError::new(ErrorKind::Cancelled, operation, target));
        };
        sent.done();
        if result.is_err() {
            self.clock.note(result.error_response_headers.as_ref().and_then(date).as_deref());
            let error = failed(operation, target, &self.endpoint.signing_region, &result);
            return Err(if unanswered.load(Ordering::Relaxed) { error.after_lost_answer() } else { error });
        }
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        self.clock.note(collected.0.date.as_deref());
        collected.0.is_second = unanswered.load(Ordering::Relaxed);
        Ok(std::mem::take(&mut *collected))
    }

    fn send_default(
        &self,
        call: Call<'_>,
        session: Option<&Session>,
        collected: &Collected,
        unanswered: &Arc<AtomicBool>,
    ) -> Result<(CancelOnDrop, oneshot::Receiver<MetaRequestResult>), CrtError> {
        let Call { operation, method, path, headers, body, describes, .. } = call;
        let (on_headers, on_body) = (collected.clone(), collected.clone());
        let (finish, finished) = oneshot::channel();
        let mut options = MetaRequestOptions::new();
        options
            .request_type(MetaRequestType::Default)
            .operation_name(operation)
            .message(self.message(method, path, headers, session)?)
            .endpoint(self.endpoint.uri.clone())
            .signing_config(self.signing(session))
            .on_headers(move |headers, status| {
                let object = describes.then(|| Box::new(described(headers)));
                let mut collected = on_headers.lock().unwrap_or_else(PoisonError::into_inner);
                *collected =
                    (Answer { object, date: date(headers), ..Answer::new(headers, status) }, Vec::new());
            })
            .on_body(move |_, bytes| {
                let (_, body) = &mut *on_body.lock().unwrap_or_else(PoisonError::into_inner);
                if body.len() + bytes.len() <= MAX_BODY_BYTES {
                    body.extend_from_slice(bytes);
                }
            })
            .on_telemetry(self.watch(unanswered))
            .on_finish(move |result| {
                // Sending fails if the caller no longer waits for the answer. That is no error.
                let _ = finish.send(result);
            });
        if let Some(body) = body {
            options.request_body(body);
        }
        Ok((CancelOnDrop(Some(self.transport.send(options)?)), finished))
    }
}
