//! The clients of what a mount shows: that of a bucket, or those of several, which share their event loops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use s3mount_bucket::{
    Bucket, BucketFolder, BucketFolders, MeasuredClient, Outcome, Rates, ReadOperation, RequestMetrics,
    WritableBucket,
};
use s3mount_crt::{CrtClient, CrtConfig, Transport};
use s3mount_listed::{Index, ListedClient, Named};
use s3mount_metrics::{Recorder, Registry};
use s3mount_settings::flags::mount::Verify;
use s3mount_settings::resolved::shown::{Shown, Subtree};
use s3mount_settings::resolved::{self, Config};
use s3mount_system::terminal;

use super::holder;

/// How soon a daemon that goes on with a mount tries again to make a client of its store, and how often it is looked
/// whether it is asked to end meanwhile.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The clients of what a mount shows.
pub(super) enum Client {
    /// That of the only bucket.
    Bucket(Arc<CrtClient>),
    /// Those of several, by the names of their folders.
    Folders(BTreeMap<String, BucketFolder<CrtClient>>),
}

impl Client {
    /// Makes the clients of a new mount, and asks each bucket whether it may be listed. If the names are those of an index,
    /// the bucket is asked for none.
    ///
    /// # Errors
    /// When a bucket may not be listed, or does not answer.
    pub(super) async fn connect(config: &Config, names: Option<&Index>) -> anyhow::Result<Self> {
        match &config.shown {
            Shown::Bucket(subtree) => {
                Ok(Self::Bucket(Arc::new(connect(config, subtree, None, names).await?)))
            }
            Shown::Folders(folders) => {
                let transport = transport(config, folders)?;
                let one = async |(name, shown): (&String, &Subtree)| {
                    let client = Arc::new(connect(config, shown, Some(transport.clone()), None).await?);
                    let prefix = shown.prefix.clone();
                    anyhow::Ok((name.clone(), BucketFolder { client, prefix }))
                };
                Ok(Self::Folders(try_join_all(folders.iter().map(one)).await?.into_iter().collect()))
            }
        }
    }

    /// Makes the clients of a mount that a daemon before has served, with these [regions](Self::regions). The store need
    /// not answer yet: programs that use the mount wait for this daemon, and can't even be killed until it answers their
    /// last FLUSH.
    ///
    /// # Errors
    /// Why there are none, once this daemon is asked to end.
    pub(super) async fn connect_again(
        config: &Config,
        names: Option<&Index>,
        regions: Option<String>,
    ) -> anyhow::Result<Self> {
        let mut pause = RETRY_PAUSE;
        loop {
            // Without the regions, the store has to say them.
            let client = match &regions {
                Some(regions) => Self::without_request(config, regions),
                None => Self::connect(config, names).await,
            };
            let error = match client {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            tracing::error!("the mount waits for its store: {error:#}");
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if holder::is_asked_to_end()? {
                    return Err(error.context("asked to end while the mount waited for its store"));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    fn without_request(config: &Config, regions: &str) -> anyhow::Result<Self> {
        let client = |subtree: &Subtree, region: &str, transport| {
            let crt =
                CrtConfig { region: Some(region.to_owned()), ..crt_config(config, subtree, transport)? };
            let client = CrtClient::new(crt).map_err(|error| resolved::store::explain(&subtree.store, error));
            anyhow::Ok(Arc::new(client?))
        };
        match &config.shown {
            Shown::Bucket(subtree) => Ok(Self::Bucket(client(subtree, regions, None)?)),
            Shown::Folders(folders) => {
                let transport = transport(config, folders)?;
                let one = |((name, shown), region): ((&String, &Subtree), &str)| {
                    let client = client(shown, region, Some(transport.clone()))?;
                    Ok((name.clone(), BucketFolder { client, prefix: shown.prefix.clone() }))
                };
                folders
                    .iter()
                    .zip(regions.split(','))
                    .map(one)
                    .collect::<anyhow::Result<_>>()
                    .map(Self::Folders)
            }
        }
    }

    /// The regions of the buckets, separated by commas, for the daemons after this one.
    pub(super) fn regions(&self) -> String {
        match self {
            Self::Bucket(client) => client.region().to_owned(),
            Self::Folders(folders) => {
                folders.values().map(|folder| folder.client.region()).collect::<Vec<_>>().join(",")
            }
        }
    }

    /// What the layers of the mount have of its store, with so many connections. The names are those of the index, if there
    /// is one.
    pub(super) fn open(self, connections: usize, rates: Rates, named: Option<Named>) -> OpenStore {
        match self {
            Self::Bucket(client) => {
                let measured = Arc::new(MeasuredClient::new(client));
                let writer = WritableBucket::new(measured.clone(), connections).with_rates(rates);
                let (reader, names) = match named {
                    // Requests are counted behind it: those that are sent. What the index answers keeps to no rate.
                    Some(named) => {
                        let listed = Arc::new(ListedClient::new(named, measured.clone()));
                        let reader: Bucket = Bucket::new(listed.clone(), connections);
                        let names: Bucket = Bucket::new(listed, connections);
                        (reader.with_rates(rates), names)
                    }
                    None => (writer.reader(), writer.reader()),
                };
                OpenStore { reader, names, writer: Some(writer), counted: Counted::Bucket(measured) }
            }
            Self::Folders(folders) => {
                let measured = Arc::new(MeasuredClient::new(Arc::new(BucketFolders::new(folders))));
                let reader: Bucket = Bucket::new(measured.clone(), connections);
                let reader = reader.with_rates(rates);
                OpenStore { names: reader.clone(), reader, writer: None, counted: Counted::Folders(measured) }
            }
        }
    }
}

/// What the layers of a mount have of its store.
pub(super) struct OpenStore {
    pub(super) reader: Bucket,
    /// Where names come from: the store, or an index.
    pub(super) names: Bucket,
    /// Unset for several buckets, which are only read.
    pub(super) writer: Option<WritableBucket>,
    counted: Counted,
}

/// The client that counts the requests.
#[derive(Clone)]
enum Counted {
    Bucket(Arc<MeasuredClient<CrtClient>>),
    Folders(Arc<MeasuredClient<BucketFolders<CrtClient>>>),
}

impl Counted {
    fn metrics(&self) -> &RequestMetrics {
        match self {
            Self::Bucket(client) => client.metrics(),
            Self::Folders(client) => client.metrics(),
        }
    }
}

impl OpenStore {
    /// Where each request is noted while somebody listens.
    pub(super) fn recorder(&self) -> Arc<Recorder> {
        match &self.counted {
            Counted::Bucket(client) => client.recorder().clone(),
            Counted::Folders(client) => client.recorder().clone(),
        }
    }

    /// What counts the LISTs that the store has answered.
    pub(super) fn list_count(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let counted = self.counted.clone();
        move || counted.metrics().requests.at((ReadOperation::List, Outcome::Ok)).get()
    }

    /// Shows the metrics of requests in `registry`.
    pub(super) fn register(&self, registry: &Registry) {
        match &self.counted {
            Counted::Bucket(client) => client.register(registry),
            Counted::Folders(client) => client.register(registry),
        }
    }

    /// Shows the metrics of requests that change objects in `registry`.
    pub(super) fn register_writes(&self, registry: &Registry) {
        match &self.counted {
            Counted::Bucket(client) => client.register_writes(registry),
            Counted::Folders(client) => client.register_writes(registry),
        }
    }
}

/// Makes the client of a bucket, and says if nothing of it is shown.
///
/// # Errors
/// Why the store does not answer, and what to do.
async fn connect(
    config: &Config,
    subtree: &Subtree,
    transport: Option<Transport>,
    names: Option<&Index>,
) -> anyhow::Result<CrtClient> {
    let Subtree { store, prefix } = subtree;
    let crt = crt_config(config, subtree, transport)?;
    let (client, is_empty) = match names {
        Some(index) => (store.connect_only(crt).await?, !index.has_below(prefix)?),
        None => {
            let (client, page) = store.connect(crt, prefix, 1).await?;
            (client, page.objects.is_empty())
        }
    };
    if is_empty && !prefix.is_empty() {
        let what = match &config.shown {
            Shown::Bucket(_) => "the mount",
            Shown::Folders(_) => "its folder",
        };
        let (bucket, of) = (&store.bucket, if names.is_some() { "in the list of" } else { "of" });
        // The notice is for the user who waits, the log line for somebody who reads the log later.
        let text =
            format!("there is no key below the prefix {prefix:?} {of} bucket {bucket:?}: {what} is empty");
        tracing::warn!("{text}");
        if !config.foreground {
            terminal::notice(&format!("warning: {text}"));
        }
    }
    Ok(client)
}

/// What the clients of several buckets share.
fn transport(config: &Config, folders: &BTreeMap<String, Subtree>) -> anyhow::Result<Transport> {
    let first = folders.values().next().context("there is no bucket")?;
    Ok(Transport::new(&crt_config(config, first, None)?.transport_config())?)
}

fn crt_config(config: &Config, subtree: &Subtree, transport: Option<Transport>) -> anyhow::Result<CrtConfig> {
    Ok(CrtConfig {
        verify: config.verify != Verify::Never,
        event_loops: config.event_loops.source,
        transport,
        ..subtree.store.crt_config(config.max_connections)?
    })
}
