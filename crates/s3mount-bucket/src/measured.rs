//! A client that counts and times the requests to another client.

mod writer;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_metrics::{Event, Recorder, Registry, RequestEvent};
use s3mount_object::{
    BucketInfo, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient, ObjectError,
    ObjectId, ObjectMeta, PartBuffer, UploadParts,
};
use tokio::time::Instant;

use crate::metrics::{Outcome, ReadOperation, RequestMetrics, WriteOperation, WriteRequestMetrics};

/// Passes all requests on to a client, and counts them by operation and status.
#[derive(Debug)]
pub struct MeasuredClient<C: ?Sized = dyn ObjectClient> {
    client: Arc<C>,
    metrics: Arc<RequestMetrics>,
    writes: Arc<WriteRequestMetrics>,
    recorder: Arc<Recorder>,
}

/// What a request counts as, and where.
#[derive(Clone, Copy)]
enum Counted<'a> {
    Read(&'a RequestMetrics, ReadOperation),
    Write(&'a WriteRequestMetrics, WriteOperation),
}

impl Counted<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Read(_, operation) => operation.name(),
            Self::Write(_, operation) => operation.name(),
        }
    }

    fn begin(self) {
        match self {
            Self::Read(metrics, operation) => metrics.in_flight.at(operation).inc(),
            Self::Write(metrics, operation) => metrics.in_flight.at(operation).inc(),
        }
    }

    fn end(self, outcome: Outcome, took: Duration) {
        let is_ok = outcome == Outcome::Ok;
        match self {
            Self::Read(metrics, operation) => {
                metrics.in_flight.at(operation).dec();
                metrics.requests.at((operation, outcome)).inc();
                is_ok.then(|| metrics.times.at(operation).note_time(took));
            }
            Self::Write(metrics, operation) => {
                metrics.in_flight.at(operation).dec();
                metrics.requests.at((operation, outcome)).inc();
                is_ok.then(|| metrics.times.at(operation).note_time(took));
            }
        }
    }
}

/// What a request asks for, while somebody listens to the recorder.
struct Subject {
    key: Arc<str>,
    start: u64,
    len: u64,
}

/// A request under way. If it is dropped before its end, it counts as cancelled.
struct Request<'a> {
    counted: Counted<'a>,
    recorder: &'a Recorder,
    subject: Option<Box<Subject>>,
    first_byte: Option<Duration>,
    began: Instant,
    outcome: Outcome,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.counted.end(self.outcome, self.began.elapsed());
        if let Some(subject) = self.subject.take() {
            let Subject { key, start, len } = *subject;
            self.recorder.note(&Event::Request(RequestEvent {
                operation: self.counted.name(),
                status: self.outcome.name(),
                key,
                start,
                len,
                began: self.began.into_std(),
                first_byte: self.first_byte,
                took: self.began.elapsed(),
            }));
        }
    }
}

impl<C: ObjectClient + ?Sized> MeasuredClient<C> {
    /// Counts the requests to `client`.
    pub fn new(client: Arc<C>) -> Self {
        Self { client, metrics: Arc::default(), writes: Arc::default(), recorder: Arc::default() }
    }

    /// The metrics in which it counts.
    pub fn metrics(&self) -> &RequestMetrics {
        &self.metrics
    }

    /// Where it notes each request while somebody listens.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Shows its metrics in `registry`.
    pub fn register(&self, registry: &Registry)
    where
        C: 'static,
    {
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        registry.add(self.metrics.clone(), move || metrics.throttled.set(client.refused_requests()));
    }

    /// Shows the metrics of requests that change objects in `registry`.
    pub fn register_writes(&self, registry: &Registry) {
        registry.add(self.writes.clone(), || {});
    }

    /// What a request asks for, if somebody listens.
    fn subject(&self, key: &str, start: u64, len: u64) -> Option<Box<Subject>> {
        self.recorder.is_on().then(|| Box::new(Subject { key: Arc::from(key), start, len }))
    }

    fn measure<'a, T: Send + 'a>(
        &'a self,
        operation: ReadOperation,
        key: &str,
        answer: BoxFuture<'a, Result<T, ObjectError>>,
    ) -> BoxFuture<'a, Result<T, ObjectError>> {
        self.measure_as(self.read(operation), self.subject(key, 0, 0), answer, |_| None)
    }

    fn read(&self, operation: ReadOperation) -> Counted<'_> {
        Counted::Read(&self.metrics, operation)
    }

    fn measure_as<'a, T: Send + 'a>(
        &'a self,
        counted: Counted<'a>,
        subject: Option<Box<Subject>>,
        answer: BoxFuture<'a, Result<T, ObjectError>>,
        first_byte: fn(&T) -> Option<Duration>,
    ) -> BoxFuture<'a, Result<T, ObjectError>> {
        let recorder = &*self.recorder;
        async move {
            counted.begin();
            let (began, outcome) = (Instant::now(), Outcome::Cancelled);
            let mut request = Request { counted, recorder, subject, first_byte: None, began, outcome };
            let result = answer.await;
            request.outcome = match &result {
                Ok(answer) => {
                    request.first_byte = first_byte(answer);
                    Outcome::Ok
                }
                Err(error) => Outcome::from(error.kind()),
            };
            result
        }
        .boxed()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<C: ObjectClient + ?Sized> ObjectClient for MeasuredClient<C> {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        let range = request.range;
        let subject = self.subject(request.object.key(), range.start(), range.len());
        self.measure_as(
            self.read(ReadOperation::Get),
            subject,
            self.client.get_object(request, into),
            |answer| answer.first_byte,
        )
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.measure(ReadOperation::Head, key, self.client.head_object(key))
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        self.measure(ReadOperation::Head, object.key(), self.client.checksum(object))
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        self.measure(ReadOperation::Attributes, object.key(), self.client.upload_parts(object, after))
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        let subject = self.subject(&request.prefix, 0, 0);
        self.measure_as(self.read(ReadOperation::List), subject, self.client.list_objects(request), |_| None)
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        self.measure(ReadOperation::HeadBucket, "", self.client.head_bucket())
    }

    fn refused_requests(&self) -> u64 {
        self.client.refused_requests()
    }

    fn repeated_requests(&self) -> u64 {
        self.client.repeated_requests()
    }

    fn lists_in_order(&self) -> bool {
        self.client.lists_in_order()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use s3mount_object::{
        BucketInfo, ErrorKind, GetAnswer, GetObject, ListObjects, ListPage, ObjectClient, ObjectError,
        ObjectMeta, PartBuffer,
    };
    use tokio::time::{sleep, timeout};

    use super::MeasuredClient;
    use crate::metrics::{Outcome, ReadOperation};

    /// Lists in 40 ms, throttles HEADs, and never answers for the bucket.
    #[derive(Debug)]
    struct Scripted;

    impl ObjectClient for Scripted {
        fn get_object(
            &self,
            _: GetObject,
            _: Box<dyn PartBuffer>,
        ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
            unreachable!("nothing is read here")
        }

        fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
            async move { Err(ObjectError::new(ErrorKind::Throttled, "HeadObject", key)) }.boxed()
        }

        fn list_objects(&self, _: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
            sleep(Duration::from_millis(40)).map(|()| Ok(ListPage::default())).boxed()
        }

        fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
            std::future::pending().boxed()
        }

        fn refused_requests(&self) -> u64 {
            7
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_count_by_what_became_of_them() {
        let client = MeasuredClient::new(Arc::new(Scripted));
        let metrics = client.metrics();
        client.list_objects(ListObjects::default()).await.expect("a page");
        client.head_object("k").await.expect_err("it throttles");
        let waited = timeout(Duration::from_secs(1), async {
            let answer = client.head_bucket();
            tokio::join!(answer, async {
                assert_eq!(metrics.in_flight.at(ReadOperation::HeadBucket).get(), 1);
            })
        });
        waited.await.expect_err("it never answers");
        for (operation, outcome) in [
            (ReadOperation::List, Outcome::Ok),
            (ReadOperation::Head, Outcome::Throttled),
            (ReadOperation::HeadBucket, Outcome::Cancelled),
        ] {
            assert_eq!(metrics.requests.at((operation, outcome)).get(), 1, "{operation:?} {outcome:?}");
            assert_eq!(metrics.in_flight.at(operation).get(), 0);
        }
        let times = [ReadOperation::List, ReadOperation::Head, ReadOperation::HeadBucket]
            .map(|operation| metrics.times.at(operation).get());
        assert_eq!(times.each_ref().map(|times| times.count()), [1, 0, 0], "only what was answered is timed");
        assert_eq!(times[0].sum, 40_000_000);
        assert_eq!(client.refused_requests(), 7);
    }
}
