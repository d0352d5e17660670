//! Requests about metadata: sent as they are, their small bodies collected on the heap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::channel::oneshot;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::http::request_response::{Header, Message};
use mountpoint_s3_crt::s3::client::{
    MetaRequest, MetaRequestOptions, MetaRequestResult, MetaRequestType, RequestMetrics,
};
use s3mount_object::{ErrorKind, ObjectError};

use crate::CrtClient;
use crate::answer::Answer;
use crate::error::{crt_error, failed};

/// No listing is longer: 1,000 keys of 1,024 bytes, each byte escaped.
///
/// It bounds what is copied and parsed, and not what the CRT collects before. A `Default` request of the
/// CRT appends all of the body to a buffer that grows (`s_s3_meta_request_incoming_body` in aws-c-s3), and
/// calls back for headers and body when the last byte has come
/// (`s_s3_meta_request_default_request_finished`). So nobody could cancel it in time. `GetObject`
/// requests have a buffer of a fixed size, but send `Range` and take no answer without `Content-Range`,
/// which a listing does not have. What bounds a body without end is the time limit of an attempt.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Headers and body of an answer, as the callbacks leave them.
type Collected = Arc<Mutex<(Answer, Vec<u8>)>>;

/// Cancels a request whose answer nobody waits for any more.
pub(crate) struct CancelOnDrop(pub(crate) Option<MetaRequest>);

impl CancelOnDrop {
    /// The request has come to its end.
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

/// Counts an answer that asks to slow down.
pub(crate) fn note_refusal(refused: &AtomicU64, metrics: &RequestMetrics) {
    if matches!(metrics.status_code(), Some(429 | 503)) {
        refused.fetch_add(1, Ordering::Relaxed);
    }
}

impl CrtClient {
    /// A request with the headers that every request has.
    pub(crate) fn message(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Message, CrtError> {
        let mut message = Message::new_request(&self.allocator)?;
        message.set_request_method(method)?;
        message.set_request_path(path)?;
        message.add_header(&Header::new("Host", &self.endpoint.host))?;
        message.add_header(&Header::new("User-Agent", &self.user_agent))?;
        message.add_header(&Header::new("Accept", "application/xml, */*"))?;
        for (name, value) in headers {
            message.add_header(&Header::new(name, value))?;
        }
        Ok(message)
    }

    /// Counts the answers that ask to slow down, also of attempts that the CRT makes again.
    fn count_refusals(&self) -> impl Fn(&RequestMetrics) + Send + use<> {
        let refused = self.refused.clone();
        move |metrics| note_refusal(&refused, metrics)
    }

    /// Sends one request as it is; returns the headers and the body of a good answer.
    pub(crate) async fn send(
        &self,
        operation: &'static str,
        target: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(Answer, Vec<u8>), ObjectError> {
        let sent = Instant::now();
        let result = self.send_once(operation, target, method, path, headers).await;
        self.signer.judge(sent, result)
    }

    async fn send_once(
        &self,
        operation: &'static str,
        target: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(Answer, Vec<u8>), ObjectError> {
        self.keep_warm();
        let collected = Arc::new(Mutex::new((Answer::default(), Vec::new())));
        let (sent, finished) = self
            .send_default(operation, self.message(method, path, headers), &collected)
            .map_err(|error| crt_error(operation, target, error))?;
        let Ok(result) = finished.await else {
            return Err(ObjectError::new(ErrorKind::Cancelled, operation, target));
        };
        sent.done();
        if result.is_err() {
            return Err(failed(operation, target, &self.endpoint.signing_region, &result));
        }
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *collected))
    }

    fn send_default(
        &self,
        operation: &'static str,
        message: Result<Message, CrtError>,
        collected: &Collected,
    ) -> Result<(CancelOnDrop, oneshot::Receiver<MetaRequestResult>), CrtError> {
        let (on_headers, on_body) = (collected.clone(), collected.clone());
        let (finish, finished) = oneshot::channel();
        let mut options = MetaRequestOptions::new();
        options
            .request_type(MetaRequestType::Default)
            .operation_name(operation)
            .message(message?)
            .endpoint(self.endpoint.uri.clone())
            .signing_config(self.signer.signing())
            .on_headers(move |headers, status| {
                let mut collected = on_headers.lock().unwrap_or_else(PoisonError::into_inner);
                *collected = (Answer::new(headers, status), Vec::new());
            })
            .on_body(move |_, bytes| {
                let (_, body) = &mut *on_body.lock().unwrap_or_else(PoisonError::into_inner);
                if body.len() + bytes.len() <= MAX_BODY_BYTES {
                    body.extend_from_slice(bytes);
                }
            })
            .on_telemetry(self.count_refusals())
            .on_finish(move |result| {
                // Nobody waits any more: then nobody has to be told.
                let _ = finish.send(result);
            });
        Ok((CancelOnDrop(Some(self.client.make_meta_request(options)?)), finished))
    }
}
