//! The shared cache that the flags ask for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use s3mount_bucket::WritableBucket;
use s3mount_crt::{CrtClient, CrtConfig};
use s3mount_object::ErrorKind;
use s3mount_shared::SharedConfig;

use super::source::{self, Source};
use super::store::Store;
use crate::flags::mount::MountArgs;

/// The share of the memory limit that blocks may take which wait to be uploaded. The blocks of all GETs in
/// flight fit in, so that this mount can promise them to others.
const QUEUE_SHARE: u64 = 2;

/// The connections to the shared bucket: for 128 GETs of small pieces and 16 uploads at once.
const CONNECTIONS: u32 = 144;

/// The time that the shared bucket may take for its first answer. A mount does not wait longer for it, because
/// it works without.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A bucket that the mounts of a fleet share.
#[derive(Clone, Debug)]
pub struct SharedCache {
    store: Store,
    pub config: SharedConfig,
}

/// Where the flag says that the shared cache is.
#[derive(Debug)]
struct Place<'a> {
    source: Source,
    endpoint: Option<&'a str>,
    region: Option<&'a str>,
    profile: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// Reads `s3://BUCKET[/PREFIX][?NAME=VALUE[&NAME=VALUE]]`. Values are taken as they are, without escapes.
    fn parse(named: &'a str) -> anyhow::Result<Self> {
        ensure!(
            named.starts_with("s3://"),
            "--shared-cache {named:?} is not a bucket; write s3://BUCKET or s3://BUCKET/PREFIX"
        );
        let (bucket, query) = named.split_once('?').unwrap_or((named, ""));
        let mut place =
            Self { source: source::parse(bucket, None)?, endpoint: None, region: None, profile: None };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let known = match name {
                "endpoint" => &mut place.endpoint,
                "region" => &mut place.region,
                "profile" => &mut place.profile,
                _ => bail!(
                    "--shared-cache {named:?}: {name:?} is none of endpoint, region and profile; write, for \
                           instance, s3://BUCKET?endpoint=http://HOST:9000"
                ),
            };
            ensure!(!value.is_empty(), "--shared-cache {named:?}: {name} needs a value: {name}=...");
            ensure!(known.is_none(), "--shared-cache {named:?}: {name} is there twice");
            *known = Some(value);
        }
        Ok(place)
    }
}

/// The settings of the shared cache, if the flags ask for one.
pub(crate) fn shared(
    args: &MountArgs,
    store: &Store,
    memory_limit_bytes: u64,
) -> anyhow::Result<Option<SharedCache>> {
    let Some(named) = &args.shared_cache else { return Ok(None) };
    let place = Place::parse(named)?;
    let cache = store.shared_cache(&place.source.bucket, place.endpoint, place.region, place.profile)?;
    let config = SharedConfig {
        prefix: place.source.prefix,
        source_endpoint: store.endpoint_name().to_owned(),
        source_bucket: store.bucket.clone(),
        queue_bytes: memory_limit_bytes / QUEUE_SHARE,
    };
    Ok(Some(SharedCache { store: cache, config }))
}

impl SharedCache {
    /// The bucket, by a client with so many event loops. A bucket that does not answer now may answer later, so that
    /// is only logged.
    ///
    /// # Errors
    /// When the bucket does not exist, is in another region than the flag says, or when its client can't be
    /// made.
    pub async fn connect(&self, event_loops: u16) -> anyhow::Result<WritableBucket> {
        // Blocks have checksums of their own.
        let crt = CrtConfig { verify: false, event_loops, ..self.store.crt_config(CONNECTIONS)? };
        let bucket = &self.store.bucket;
        let why = match tokio::time::timeout(CONNECT_LIMIT, CrtClient::connect(crt.clone())).await {
            Ok(Ok((client, _))) => return Ok(WritableBucket::new(Arc::new(client), CONNECTIONS as usize)),
            Ok(Err(error)) => match error.kind() {
                ErrorKind::NoSuchBucket => bail!(
                    "--shared-cache: there is no bucket {bucket:?} at {}; make it, or name the endpoint of its store: \
                     s3://{bucket}?endpoint=URL",
                    self.store.shown()
                ),
                ErrorKind::WrongRegion(region) => bail!(
                    "--shared-cache: the bucket {bucket:?} is in another region; let the query of its URL say region={}",
                    region.as_deref().unwrap_or("REGION")
                ),
                _ => error.to_string(),
            },
            Err(_) => format!("no answer within {CONNECT_LIMIT:?}"),
        };
        tracing::warn!(why, bucket, "the shared cache does not answer: the mount begins without it");
        Ok(WritableBucket::new(Arc::new(CrtClient::new(crt)?), CONNECTIONS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_query_says_where_the_bucket_is() {
        let place =
            Place::parse("s3://near/team?endpoint=http://minio:9000/a?b=c&profile=p").expect("a place");
        assert_eq!((place.source.bucket.as_str(), place.source.prefix.as_str()), ("near", "team/"));
        assert_eq!(
            (place.endpoint, place.region, place.profile),
            (Some("http://minio:9000/a?b=c"), None, Some("p"))
        );
        let place = Place::parse("s3://near").expect("a place");
        assert_eq!((place.endpoint, place.region, place.profile), (None, None, None));
        for (named, expected) in [
            ("near", "write s3://BUCKET"),
            ("s3://near?endpiont=x", "\"endpiont\" is none of endpoint, region and profile"),
            ("s3://near?region", "region needs a value: region=..."),
            ("s3://near?region=a&region=b", "region is there twice"),
        ] {
            let error = Place::parse(named).expect_err(named).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
