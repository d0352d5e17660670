//! A client that counts and times the requests to another client.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_metrics::Registry;
use s3mount_object::{
    BucketInfo, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient, ObjectError,
    ObjectId, ObjectMeta, PartBuffer, UploadParts,
};
use tokio::time::Instant;

use crate::metrics::{Operation, Outcome, RequestMetrics};

/// Passes all requests on to a client, and counts them by operation and status.
#[derive(Debug)]
pub struct MeasuredClient {
    client: Arc<dyn ObjectClient>,
    metrics: Arc<RequestMetrics>,
}

/// A request under way. If it is dropped before its end, it counts as cancelled.
struct Request<'a> {
    metrics: &'a RequestMetrics,
    operation: Operation,
    began: Instant,
    outcome: Outcome,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.at(self.operation).dec();
        self.metrics.requests.at((self.operation, self.outcome)).inc();
        if self.outcome == Outcome::Ok {
            self.metrics.times.at(self.operation).note_time(self.began.elapsed());
        }
    }
}

impl MeasuredClient {
    /// Counts the requests to `client`.
    pub fn new(client: Arc<dyn ObjectClient>) -> Self {
        Self { client, metrics: Arc::default() }
    }

    /// The metrics in which it counts.
    pub fn metrics(&self) -> &RequestMetrics {
        &self.metrics
    }

    /// Shows its metrics in `registry`.
    pub fn register(&self, registry: &Registry) {
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        registry.add(self.metrics.clone(), move || metrics.throttled.set(client.refused_requests()));
    }

    fn measure<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        answer: BoxFuture<'a, Result<T, ObjectError>>,
    ) -> BoxFuture<'a, Result<T, ObjectError>> {
        let metrics = &*self.metrics;
        async move {
            metrics.in_flight.at(operation).inc();
            let mut request =
                Request { metrics, operation, began: Instant::now(), outcome: Outcome::Cancelled };
            let result = answer.await;
            request.outcome = match &result {
                Ok(_) => Outcome::Ok,
                Err(error) => Outcome::from(error.kind()),
            };
            result
        }
        .boxed()
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for MeasuredClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.measure(Operation::Get, self.client.get_object(request, into))
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.measure(Operation::Head, self.client.head_object(key))
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        self.measure(Operation::Head, self.client.checksum(object))
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        self.measure(Operation::Attributes, self.client.upload_parts(object, after))
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        self.measure(Operation::List, self.client.list_objects(request))
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        self.measure(Operation::HeadBucket, self.client.head_bucket())
    }

    fn refused_requests(&self) -> u64 {
        self.client.refused_requests()
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
    use crate::metrics::{Operation, Outcome};

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
            tokio::join!(answer, async { assert_eq!(metrics.in_flight.at(Operation::HeadBucket).get(), 1) })
        });
        waited.await.expect_err("it never answers");
        for (operation, outcome) in [
            (Operation::List, Outcome::Ok),
            (Operation::Head, Outcome::Throttled),
            (Operation::HeadBucket, Outcome::Cancelled),
        ] {
            assert_eq!(metrics.requests.at((operation, outcome)).get(), 1, "{operation:?} {outcome:?}");
            assert_eq!(metrics.in_flight.at(operation).get(), 0);
        }
        let times = [Operation::List, Operation::Head, Operation::HeadBucket]
            .map(|operation| metrics.times.at(operation).get());
        assert_eq!(times.each_ref().map(|times| times.count()), [1, 0, 0], "only what was answered is timed");
        assert_eq!(times[0].sum, 40_000_000);
        assert_eq!(client.refused_requests(), 7);
    }
}
