//! The client alone: it fetches the bytes that the plans read into buffers of the pool, and drops them.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, GetObject, ListObjects, ObjectClient, ObjectId};
use s3mount_prefetch::PrefetchConfig;

use crate::reader::Read;
use crate::scenario::{Plan, Work, file_name};

/// Parts in flight of all streams together. More parts bring no more speed on loopback.
const IN_FLIGHT: usize = 16;

/// Does the work that each line of standard input describes, at the endpoint, in the memory and with the certificate that
/// `args` name.
pub(crate) fn serve(args: &[String]) -> anyhow::Result<()> {
    let [endpoint, limit, ca_bundle @ ..] = args else { anyhow::bail!("role-raw ENDPOINT BYTES [CA]") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(endpoint.clone()),
        credentials: Credentials::Anonymous,
        ca_bundle: ca_bundle.first().map(PathBuf::from),
        ..CrtConfig::new("bench")
    };
    let client = Arc::new(CrtClient::new(config)?);
    let pool = BufferPool::new(MemoryBudget::new(limit.parse()?))?;
    for line in std::io::stdin().lock().lines() {
        let work: Work = serde_json::from_str(&line?)?;
        let read = runtime.block_on(fetch_all(&client, &pool, &work))?;
        println!("{}", serde_json::to_string(&read)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

async fn fetch_all(client: &Arc<CrtClient>, pool: &BufferPool, work: &Work) -> anyhow::Result<Read> {
    let start = Instant::now();
    let in_flight = (IN_FLIGHT / work.plans.len()).max(1);
    let plans = work.plans.iter().map(|plan| fetch(client.clone(), pool.clone(), plan.clone(), in_flight));
    futures::future::try_join_all(plans.map(tokio::spawn))
        .await?
        .into_iter()
        .collect::<anyhow::Result<()>>()?;
    let bytes = work.plans.iter().map(Plan::bytes).sum();
    Ok(Read { bytes, seconds: start.elapsed().as_secs_f64(), ..Read::default() })
}

async fn fetch(client: Arc<CrtClient>, pool: BufferPool, plan: Plan, in_flight: usize) -> anyhow::Result<()> {
    let key = file_name(plan.file);
    let listing = ListObjects { prefix: key.clone(), max_keys: Some(1), ..ListObjects::default() };
    let page = client.list_objects(listing).await?;
    let etag = page.objects.into_iter().next().context("the object")?.meta.etag;
    let object = ObjectId::new(&key, etag);
    let part = PrefetchConfig::default().part_bytes;
    let starts = (0..plan.bytes()).step_by(part as usize);
    stream::iter(starts)
        .map(|start| {
            let range = ByteRange::new(start, (start + part).min(plan.bytes()));
            let (client, pool, object) = (client.clone(), pool.clone(), object.clone());
            async move {
                let buffer = pool.buffer(range.len() as usize).await;
                client.get_object(GetObject { object, range }, Box::new(buffer)).await.map(drop)
            }
        })
        .buffered(in_flight)
        .try_collect::<()>()
        .await?;
    Ok(())
}
