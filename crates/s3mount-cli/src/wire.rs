//! Putting the layers together: store, memory, prefetcher, filesystem, kernel.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_fs::{Filesystem, FsConfig};
use s3mount_fuse::{FuseConfig, Mount};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, ListObjects, ObjectClient, ObjectError};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;

/// How long the store may take to answer for the first time.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// What a store's silence may mean. A certificate that is not trusted is one of them, because s2n
/// waits for up to 30 s before it says so.
const SILENCE: &str = "check the network, and whether its certificate needs --ca-bundle FILE";

/// How long readers may take to let go of a mount that is coming down.
const GRACE: Duration = Duration::from_secs(2);

/// Mounts, calls `ready` when the mount answers, and stays until it is unmounted, by SIGINT or
/// SIGTERM or from outside.
pub(crate) fn mount(config: &Config, ready: impl FnOnce()) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.threads)
        .thread_name("s3mount")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let client = runtime.block_on(connect(config))?;
    let budget = MemoryBudget::new(config.memory_limit_bytes);
    let pool = BufferPool::new(budget).context("cannot set memory aside")?;
    let prefetcher = Prefetcher::new(client.clone(), pool, prefetch_config(config), runtime.handle());
    let fs = Arc::new(Filesystem::new(client, prefetcher.clone(), fs_config(config)));
    let mount = s3mount_fuse::mount(fs, &config.dir, &fuse_config(config), runtime.handle().clone())
        .with_context(|| format!("cannot mount at {}", config.dir.display()))?;
    ready();
    tracing::info!(bucket = config.bucket, prefix = config.prefix, dir = %config.dir.display(), "mounted");
    let result = serve(&runtime, mount);
    tracing::info!(stats = ?prefetcher.stats(), "unmounted");
    // GETs that nobody waits for any more must not hold the process up.
    runtime.shutdown_background();
    result
}

/// Waits for the end of the mount.
fn serve(runtime: &Runtime, mut mount: Mount) -> anyhow::Result<()> {
    let asked_to_end = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let asked = tokio::select! {
            () = mount.ended() => false,
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        anyhow::Ok(asked)
    })?;
    if !asked_to_end {
        return mount.join().context("the FUSE session failed");
    }
    let is_down = mount.unmount().context("cannot unmount")?;
    let ended = runtime.block_on(async { tokio::time::timeout(GRACE, mount.ended()).await.is_ok() });
    if !is_down && !ended {
        tracing::warn!("files are still open; their readers will get ENOTCONN");
    }
    Ok(())
}

/// Makes the client and has the store answer: what will not work is said before there is a mount.
async fn connect(config: &Config) -> anyhow::Result<Arc<CrtClient>> {
    let attempt = async {
        let (client, _) = CrtClient::connect(crt_config(config)).await?;
        let first =
            ListObjects { prefix: config.prefix.clone(), max_keys: Some(1), ..ListObjects::default() };
        let page = client.list_objects(first).await?;
        Ok((client, page.objects.is_empty()))
    };
    let (client, is_empty) = tokio::time::timeout(CONNECT_LIMIT, attempt)
        .await
        .map_err(|_| anyhow!("{} gave no answer within {CONNECT_LIMIT:?}; {SILENCE}", store(config)))?
        .map_err(|error| explain(config, error))?;
    if is_empty && !config.prefix.is_empty() {
        tracing::warn!(
            "there is no key below the prefix {:?} of bucket {:?}: the mount is empty",
            config.prefix,
            config.bucket
        );
    }
    Ok(Arc::new(client))
}

fn store(config: &Config) -> &str {
    config.endpoint_url.as_deref().unwrap_or("S3")
}

/// What went wrong, with which value, and what to do.
fn explain(config: &Config, error: ObjectError) -> anyhow::Error {
    let (bucket, store) = (&config.bucket, store(config));
    let detail = error.detail();
    let said = [&detail.code, &detail.message].map(|text| text.as_deref().unwrap_or_default()).join(": ");
    let said = if said == ": " { "access denied".to_owned() } else { said };
    let text = match error.kind() {
        ErrorKind::NoSuchBucket | ErrorKind::NotFound => format!(
            "bucket {bucket:?} does not exist at {store}; check its name, and --endpoint-url if it is not at AWS"
        ),
        ErrorKind::WrongRegion(Some(region)) => {
            format!("bucket {bucket:?} is in region {region:?}; pass --region {region}")
        }
        ErrorKind::WrongRegion(None) => format!(
            "bucket {bucket:?} is not in region {:?}; pass its own with --region",
            config.region.as_deref().unwrap_or("us-east-1")
        ),
        ErrorKind::Forbidden => format!(
            "{store} refuses access to bucket {bucket:?} ({said}); the credentials need s3:ListBucket and \
             s3:GetObject for it, and a public bucket needs --no-sign-request"
        ),
        ErrorKind::BadCredentials => format!(
            "{store} does not accept the credentials for bucket {bucket:?} ({said}); renew them, or choose others \
             with --profile"
        ),
        ErrorKind::NoCredentials => format!(
            "no credentials for bucket {bucket:?}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a \
             profile with --profile, or pass --no-sign-request for a public bucket"
        ),
        ErrorKind::Tls => format!(
            "no TLS with {store}; an http:// server needs http:// in --endpoint-url, and a certificate of your own \
             authority needs --ca-bundle FILE"
        ),
        // What a server without TLS makes of a handshake: it hangs up.
        ErrorKind::Network if store.starts_with("https://") => format!(
            "cannot reach {store} for bucket {bucket:?}; check --endpoint-url (a server without TLS takes http://) \
             and the network"
        ),
        ErrorKind::Network | ErrorKind::TimedOut => {
            format!("cannot reach {store} for bucket {bucket:?}; check --endpoint-url and the network")
        }
        _ => format!("{store} does not serve bucket {bucket:?}"),
    };
    anyhow::Error::new(error).context(text)
}

fn crt_config(config: &Config) -> CrtConfig {
    let credentials = match (&config.profile, config.no_sign_request) {
        (_, true) => Credentials::Anonymous,
        (Some(profile), false) => Credentials::Profile(profile.clone()),
        (None, false) => Credentials::Chain,
    };
    CrtConfig {
        region: config.region.clone(),
        endpoint_url: config.endpoint_url.clone(),
        force_path_style: config.force_path_style,
        credentials,
        ca_bundle: config.ca_bundle.clone(),
        max_connections: config.max_connections,
        event_loop_threads: u16::try_from(config.threads / 2).unwrap_or(u16::MAX).max(1),
        ..CrtConfig::new(&config.bucket)
    }
}

fn prefetch_config(config: &Config) -> PrefetchConfig {
    let default = PrefetchConfig::default();
    PrefetchConfig {
        hedge_share: if config.no_hedging { 0.0 } else { default.hedge_share },
        part_bytes: config.part_bytes,
        initial_window_bytes: config.initial_window_bytes,
        max_window_bytes: config.max_window_bytes,
        random_read_bytes: config.random_read_bytes,
        read_timeout: config.read_timeout,
        max_ahead_requests: usize::try_from(config.max_connections).unwrap_or(usize::MAX),
        ..default
    }
}

fn fs_config(config: &Config) -> FsConfig {
    FsConfig {
        prefix: config.prefix.clone(),
        uid: config.uid,
        gid: config.gid,
        dir_mode: config.dir_mode,
        file_mode: config.file_mode,
        metadata_ttl: config.metadata_ttl.0,
        direct_io: config.direct_io.clone(),
        timeout: config.read_timeout,
    }
}

fn fuse_config(config: &Config) -> FuseConfig {
    FuseConfig {
        fs_name: format!("s3://{}/{}", config.bucket, config.prefix),
        allow_other: config.allow_other,
        allow_root: config.allow_root,
        threads: config.threads,
        read_ahead_bytes: config.read_ahead_bytes,
    }
}
