//! The client of the mounted bucket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use s3mount_crt::{CrtClient, CrtConfig};
use s3mount_listed::Index;
use s3mount_settings::flags::mount::Verify;
use s3mount_settings::resolved::{self, Config};
use s3mount_system::terminal;

use super::holder;

/// How soon a daemon that goes on with a mount tries again to make a client of its store, and how often it is looked
/// whether it is asked to end meanwhile.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Makes a client for a new mount, and says if the mount is empty. If the names are those of an index, the bucket is
/// asked for none.
///
/// # Errors
/// Why the store does not answer, and what to do.
pub(super) async fn first(config: &Config, names: Option<&Index>) -> anyhow::Result<Arc<CrtClient>> {
    let Config { store, prefix, .. } = config;
    let crt = crt_config(config)?;
    let (client, is_empty) = match names {
        Some(index) => (store.connect_only(crt).await?, !index.has_below(prefix)?),
        None => {
            let (client, page) = store.connect(crt, prefix, 1).await?;
            (client, page.objects.is_empty())
        }
    };
    if is_empty && !prefix.is_empty() {
        let bucket = &store.bucket;
        let of = if names.is_some() { "in the list of" } else { "of" };
        // The notice is for the user who waits, the log line for somebody who reads the log later.
        let text =
            format!("there is no key below the prefix {prefix:?} {of} bucket {bucket:?}: the mount is empty");
        tracing::warn!("{text}");
        if !config.foreground {
            terminal::notice(&format!("warning: {text}"));
        }
    }
    Ok(Arc::new(client))
}

fn crt_config(config: &Config) -> anyhow::Result<CrtConfig> {
    Ok(CrtConfig {
        verify: config.verify != Verify::Never,
        event_loops: config.event_loops.source,
        ..config.store.crt_config(config.max_connections)?
    })
}

/// Makes a client for a mount that a daemon before has served. The store need not answer yet: programs that use the mount
/// wait for this daemon, and can't even be killed until it answers their last FLUSH.
///
/// # Errors
/// Why there is none, once this daemon is asked to end.
pub(super) async fn again(config: &Config, region: Option<String>) -> anyhow::Result<Arc<CrtClient>> {
    let mut pause = RETRY_PAUSE;
    loop {
        let client = || {
            let crt = CrtConfig { region: region.clone(), ..crt_config(config)? };
            CrtClient::new(crt).map_err(|error| resolved::store::explain(&config.store, error))
        };
        // Without the region, the store has to say it.
        let client = match (&region, config.names_from.is_some()) {
            (Some(_), _) => client().map(Arc::new),
            (None, true) => config.store.connect_only(crt_config(config)?).await.map(Arc::new),
            (None, false) => first(config, None).await,
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
