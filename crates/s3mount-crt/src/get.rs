//! The one request that carries payload.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::channel::oneshot;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::s3::client::{MetaRequestOptions, MetaRequestResult, MetaRequestType};
use s3mount_object::{ErrorKind, GetObject, ObjectError, PartBuffer, S3Detail};

use crate::CrtClient;
use crate::answer::Answer;
use crate::error::{crt_error, failed};
use crate::pool::LendingPool;
use crate::request::CancelOnDrop;
use crate::xml::etag;

const OPERATION: &str = "GetObject";

/// What the callbacks leave for the one that waits.
#[derive(Debug, Default)]
struct Part {
    answer: Answer,
    body: Option<Bytes>,
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a buffer back that the CRT never asked for.
struct TakeBack<'a>(&'a LendingPool, u64);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.0.take_back(self.1);
    }
}

impl CrtClient {
    /// Reads one part into the lent buffer.
    pub(crate) async fn get_part(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> Result<Bytes, ObjectError> {
        let GetObject { object, range } = &request;
        let (key, range) = (object.key(), *range);
        let part = Arc::new(Mutex::new(Part::default()));
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.pool.lend(id, into);
        let taken_back = TakeBack(&self.pool, id);
        let (sent, finished) = self
            .send_get(&request, id, &part)
            .map_err(|error| crt_error(OPERATION, key, error))?;
        let Ok(result) = finished.await else {
            return Err(ObjectError::new(ErrorKind::Cancelled, OPERATION, key));
        };
        sent.done();
        drop(taken_back);
        if result.is_err() {
            return Err(failed(OPERATION, key, &self.endpoint.signing_region, &result));
        }
        let Part { answer, body } = std::mem::take(&mut *lock(&part));
        let refuse = |kind: ErrorKind, why: String| {
            let detail = S3Detail {
                status: u16::try_from(answer.status).ok(),
                request_id: answer.request_id.clone(),
                ..S3Detail::default()
            };
            Err(ObjectError::new(kind, OPERATION, key)
                .with_detail(detail)
                .with_source(why))
        };
        // Stores that don't know `If-Match` answer with whatever is there now.
        match answer.etag.as_deref().map(etag) {
            Some(now) if now == *object.etag() => {}
            Some(now) => {
                return refuse(
                    ErrorKind::PreconditionFailed,
                    format!("{} was asked for, {now} came", object.etag()),
                );
            }
            None => return refuse(ErrorKind::Integrity, "the answer has no ETag".to_owned()),
        }
        let body = body.unwrap_or_default();
        if !answer.is_range(range) || body.len() as u64 != range.len() {
            let came = answer.content_range.unwrap_or_default();
            return refuse(
                ErrorKind::Integrity,
                format!("{range} was asked for, {} bytes of {came:?} came", body.len()),
            );
        }
        Ok(body)
    }

    /// Sends the GET called `id`; its callbacks fill `part`.
    fn send_get(
        &self,
        request: &GetObject,
        id: u64,
        part: &Arc<Mutex<Part>>,
    ) -> Result<(CancelOnDrop, oneshot::Receiver<MetaRequestResult>), CrtError> {
        let GetObject { object, range } = request;
        let (http_range, path) = (range.to_http(), self.endpoint.object_path(object.key()));
        let headers = [
            ("Range", http_range.as_str()),
            ("If-Match", object.etag().as_str()),
        ];
        let (on_headers, on_body) = (part.clone(), part.clone());
        let (finish, finished) = oneshot::channel();
        let mut options = MetaRequestOptions::new();
        options
            .request_type(MetaRequestType::GetObject)
            .message(self.message("GET", &path, &headers)?)
            .endpoint(self.endpoint.uri.clone())
            .part_size(range.len())
            .custom_id(id)
            .on_headers(move |headers, status| lock(&on_headers).answer = Answer::new(headers, status))
            .on_body(move |_, buffer| {
                // The ticket that keeps the lent buffer with us. Without one (it is not our pool's)
                // the bytes have to be copied.
                let bytes = match buffer.to_owned_buffer() {
                    Some(owned) => Bytes::from_owner(owned),
                    None => Bytes::copy_from_slice(buffer),
                };
                let part = &mut *lock(&on_body);
                part.body = Some(match part.body.take() {
                    None => bytes,
                    // A part is one callback; more than one is a body that is longer than the part.
                    Some(first) => [first, bytes].concat().into(),
                });
            })
            .on_finish(move |result| {
                // Nobody waits any more: then nobody has to be told.
                let _ = finish.send(result);
            });
        Ok((
            CancelOnDrop(Some(self.client.make_meta_request(options)?)),
            finished,
        ))
    }
}
