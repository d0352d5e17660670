//! The shared cache that the flags ask for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use s3mount_bucket::WritableBucket;
use s3mount_crt::{CrtClient, CrtConfig};
use s3mount_object::ErrorKind;
use s3mount_shared::SharedConfig;

use super::source;
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

/// The settings of the shared cache, if the flags ask for one.
pub(crate) fn shared(
    args: &MountArgs,
    store: &Store,
    memory_limit_bytes: u64,
) -> anyhow::Result<Option<SharedCache>> {
    let Some(named) = &args.shared_cache else { return Ok(None) };
    ensure!(
        named.starts_with("s3://"),
        "--shared-cache {named:?} is not a bucket; write s3://BUCKET or s3://BUCKET/PREFIX"
    );
    let source::Source { bucket, prefix } = source::parse(named, None)?;
    let url = args.shared_cache_endpoint_url.as_deref();
    let cache = store.shared_cache(
        &bucket,
        url,
        args.shared_cache_region.as_deref(),
        args.shared_cache_profile.as_deref(),
    )?;
    let config = SharedConfig {
        prefix,
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
                    "--shared-cache: there is no bucket {bucket:?} at {}; make it, or check \
                     --shared-cache-endpoint-url",
                    self.store.shown()
                ),
                ErrorKind::WrongRegion(region) => bail!(
                    "--shared-cache: the bucket {bucket:?} is in another region; give --shared-cache-region {}",
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
