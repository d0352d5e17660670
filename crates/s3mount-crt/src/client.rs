//! How the client is built, and how it implements [`ObjectClient`] for the layers above.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mountpoint_s3_crt::common::allocator::Allocator;
use s3mount_object::{
    BucketInfo, ErrorKind, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ObjectClient,
    ObjectError, ObjectId, ObjectMeta, PartBuffer, S3Detail, UploadParts,
};

use crate::answer::Answer;
use crate::attempts::Attempts;
use crate::checksum;
use crate::clock::ClockSkew;
use crate::directory_bucket;
use crate::endpoint::Endpoint;
use crate::error::NO_ETAG;
use crate::keep_alive::KeepAlive;
use crate::session::Sessions;
use crate::signer::Signer;
use crate::transport::{FIRST_REGION, Transport};
use crate::xml::{etag, list_page, object_attributes};
use crate::{Credentials, CrtConfig};

/// An S3 client for one bucket.
pub struct CrtClient {
    pub(crate) transport: Transport,
    pub(crate) allocator: Allocator,
    pub(crate) endpoint: Endpoint,
    pub(crate) signer: Signer,
    /// The sessions, if the bucket is a directory bucket.
    pub(crate) sessions: Option<Sessions>,
    pub(crate) verify: bool,
    pub(crate) user_agent: String,
    pub(crate) keep_alive: Arc<KeepAlive>,
    /// Whether a request may stay under way to keep its connections.
    pub(crate) keeps_connections: bool,
    /// Counts of all attempts at requests.
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) bucket: String,
    pub(crate) expected_bucket_owner: Option<String>,
    pub(crate) requester_pays: bool,
    pub(crate) clock: ClockSkew,
}

impl fmt::Debug for CrtClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrtClient")
            .field("bucket", &self.bucket)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl CrtClient {
    /// Makes a client and asks the store for the bucket. If the configuration names no region, the client
    /// uses the region that the store names.
    ///
    /// A refusal by the store does not fail this call: the answer to a HEAD has no body, so it does not say
    /// why the store refuses. The answer to the first listing says why.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) and [`head_bucket`](ObjectClient::head_bucket).
    pub async fn connect(mut config: CrtConfig) -> Result<(Self, BucketInfo), ObjectError> {
        let client = Self::new(config.clone())?;
        let elsewhere = match client.head_bucket().await {
            Err(error) => match error.kind() {
                ErrorKind::WrongRegion(Some(region)) if config.region.is_none() => region.clone(),
                ErrorKind::Forbidden | ErrorKind::Rejected => {
                    return Ok((client, BucketInfo { region: None }));
                }
                _ => return Err(error),
            },
            Ok(info) => match &info.region {
                Some(region) if config.region.is_none() && *region != client.endpoint.signing_region => {
                    region.clone()
                }
                Some(_) | None => return Ok((client, info)),
            },
        };
        tracing::debug!(region = %elsewhere, "the bucket is in another region");
        config.region = Some(elsewhere);
        let client = Self::new(config)?;
        match client.head_bucket().await {
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Rejected) => {
                Ok((client, BucketInfo { region: None }))
            }
            result => result.map(|info| (client, info)),
        }
    }

    /// How many seconds the store's clock is ahead of the machine's, as the last answer to a request other than
    /// GetObject has shown; negative if it is behind. `None` if no answer had a time.
    pub fn clock_skew_s(&self) -> Option<i64> {
        self.clock.get()
    }

    /// The region for which its requests are signed.
    pub fn region(&self) -> &str {
        &self.endpoint.signing_region
    }

    /// Makes a client, and sends no request. The client's threads start here, so a process that forks must
    /// fork before.
    ///
    /// # Errors
    /// `Rejected` for an endpoint that is not a URL; `Tls` for a CA bundle that can't be read;
    /// `NoCredentials` for a profile that does not exist.
    pub fn new(config: CrtConfig) -> Result<Self, ObjectError> {
        let allocator = Allocator::default();
        // No endpoint knows the regions of directory buckets, but their names do.
        let zonal = directory_bucket::region(&config.bucket).filter(|_| config.endpoint_url.is_none());
        let region = config.region.as_deref().or(zonal.as_deref()).unwrap_or(FIRST_REGION);
        let endpoint = Endpoint::new(&config, region, &allocator)?;
        let sessions = endpoint.has_sessions.then(Sessions::default);
        if sessions.is_some() && matches!(config.credentials, Credentials::Anonymous) {
            let error = ObjectError::new(ErrorKind::NoCredentials, "CreateSession", &config.bucket);
            return Err(error.with_source("a directory bucket takes no requests without credentials"));
        }
        let transport = match &config.transport {
            Some(transport) => transport.clone(),
            None => Transport::new(&config.transport_config())?,
        };
        let signer = Signer::new(&config, &endpoint, transport.network(), transport.tls(), &allocator)?;
        let (keep_alive, keeps_connections) = transport.keep_alive();
        let CrtConfig { bucket, user_agent, verify, .. } = config;
        let CrtConfig { expected_bucket_owner, requester_pays, .. } = config;
        let attempts = Arc::default();
        Ok(Self {
            transport,
            allocator,
            endpoint,
            signer,
            sessions,
            verify,
            user_agent,
            keep_alive,
            keeps_connections,
            attempts,
            bucket,
            expected_bucket_owner,
            requester_pays,
            clock: ClockSkew::new(),
        })
    }
}

/// The description in the answer to a HEAD.
pub(crate) fn meta(key: &str, answer: Answer) -> Result<ObjectMeta, ObjectError> {
    let request_id = answer.request_id.clone();
    let odd = |why: &str| {
        let detail = S3Detail { request_id: request_id.clone(), ..S3Detail::default() };
        ObjectError::new(ErrorKind::Integrity, "HeadObject", key).with_detail(detail).with_source(why)
    };
    let date = answer.last_modified.as_deref().and_then(|date| httpdate::parse_http_date(date).ok());
    Ok(ObjectMeta {
        etag: etag(&answer.etag.ok_or_else(|| odd(NO_ETAG).with_kind(ErrorKind::NoEtag))?),
        size: answer.content_length.ok_or_else(|| odd("the answer has no Content-Length"))?,
        last_modified: date.unwrap_or(SystemTime::UNIX_EPOCH),
        storage_class: answer.storage_class,
    })
}

impl ObjectClient for CrtClient {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.get_named(request, into).boxed()
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            let (answer, _) =
                self.send("HeadObject", key, "HEAD", &self.endpoint.object_path(key), &[]).await?;
            meta(key, answer)
        }
        .boxed()
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        async move {
            let (key, if_match) = (object.key(), etag(object.etag().as_str()));
            let headers = [checksum::MODE, ("If-Match", if_match.as_str())];
            let path = self.endpoint.object_path(key);
            let (answer, _) = self.send("HeadObject", key, "HEAD", &path, &headers).await?;
            // Not every store knows If-Match.
            if answer.etag.as_deref().map(etag).as_ref() != Some(&if_match) {
                return Err(ObjectError::new(ErrorKind::PreconditionFailed, "HeadObject", key));
            }
            Ok(match answer.crc() {
                Some(whole) => KeptChecksum::Whole(whole),
                None if answer.has_part_checksums => KeptChecksum::OfParts,
                None => KeptChecksum::None,
            })
        }
        .boxed()
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        async move {
            const OPERATION: &str = "GetObjectAttributes";
            let (key, marker) = (object.key(), after.to_string());
            let headers = [
                ("x-amz-object-attributes", "ETag,ObjectParts"),
                ("x-amz-max-parts", "1000"),
                ("x-amz-part-number-marker", marker.as_str()),
            ];
            let path = format!("{}?attributes", self.endpoint.object_path(key));
            let (answer, body) = self.send(OPERATION, key, "GET", &path, &headers).await?;
            let attributes = object_attributes(&body).map_err(|error| {
                let detail = S3Detail { request_id: answer.request_id, ..S3Detail::default() };
                ObjectError::new(ErrorKind::Integrity, OPERATION, key).with_detail(detail).with_source(error)
            })?;
            // S3 documents no If-Match for this request.
            if etag(&attributes.etag) != etag(object.etag().as_str()) {
                return Err(ObjectError::new(ErrorKind::PreconditionFailed, OPERATION, key));
            }
            Ok(attributes.parts)
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        async move {
            let ListObjects { prefix, delimiter, continuation, start_after, max_keys } = request;
            let max_keys = max_keys.map(|keys| keys.to_string());
            let mut query = vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix.as_str())];
            if delimiter {
                query.push(("delimiter", "/"));
            }
            let optional = [
                ("continuation-token", &continuation),
                ("start-after", &start_after),
                ("max-keys", &max_keys),
            ];
            query.extend(optional.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
            // SigV4 signs the query in sorted order. Some stores check the signature against the query in the
            // order in which it was sent.
            query.sort_unstable();
            let path = self.endpoint.bucket_path(&query);
            let (answer, body) = self.send("ListObjectsV2", &prefix, "GET", &path, &[]).await?;
            list_page(&body).map_err(|error| {
                let detail = S3Detail { request_id: answer.request_id, ..S3Detail::default() };
                ObjectError::new(ErrorKind::Integrity, "ListObjectsV2", &prefix)
                    .with_detail(detail)
                    .with_source(error)
            })
        }
        .boxed()
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async move {
            let path = self.endpoint.bucket_path(&[]);
            let (answer, _) = self.send("HeadBucket", &self.bucket, "HEAD", &path, &[]).await?;
            Ok(BucketInfo { region: answer.region })
        }
        .boxed()
    }

    fn refused_requests(&self) -> u64 {
        self.attempts.refused.load(Ordering::Relaxed)
    }

    fn repeated_requests(&self) -> u64 {
        self.attempts.repeated.load(Ordering::Relaxed)
    }

    fn lists_in_order(&self) -> bool {
        self.sessions.is_none()
    }
}
