//! A driver of the Container Storage Interface: Kubernetes mounts buckets as volumes of pods.
//!
//! The driver answers gRPC on a Unix socket. It mounts nothing by itself: it runs s3mount for each volume of a node, and
//! shows the mount to each pod by a bind mount. What it has done is in records on the disk ([`mounts`]), so that a driver
//! that was killed, or replaced, goes on where the one before has ended.
#![expect(clippy::disallowed_methods, reason = "a driver waits for other processes")]

mod controller;
mod credentials;
mod driver;
mod environment;
mod files;
mod host;
mod metrics;
mod mounts;
mod node;
mod programs;
mod protocol;
mod server;
mod shares;
mod volume;
mod words;

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::unistd::geteuid;
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::memory;
use s3mount_system::metrics_server;
use tokio::signal::unix::{SignalKind, signal};

use self::driver::Driver;
use self::host::Host;
use self::mounts::{Mounts, NodeMemory};
use self::programs::Programs;
use self::volume::Defaults;

/// How often daemons outside of the driver's container get its credentials anew. Kubernetes renews the tokens of service
/// accounts some minutes before they end.
const COPY_PAUSE: Duration = Duration::from_secs(30);

/// How often the memory of the node is divided anew. A mount that begins to read waits so long for more than its floor.
const DIVIDE_PAUSE: Duration = Duration::from_secs(1);

/// How often it is looked whether mounts have ended that no pod uses.
const END_PAUSE: Duration = Duration::from_secs(2);

/// When it is looked a second time whether daemons run another program. Each pause after that is twice the one before, up
/// to the longest: a program may have a file open for writing for days.
const UPGRADE_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_UPGRADE_PAUSE: Duration = Duration::from_secs(600);

/// The flags of `s3mount csi`.
#[derive(Clone, Debug, clap::Args)]
pub struct CsiArgs {
    /// Socket to answer at, such as unix:///csi/csi.sock.
    #[arg(long, value_name = "URL", env = "CSI_ENDPOINT", value_parser = server::socket_path)]
    endpoint: PathBuf,

    /// Name of this node in the cluster.
    #[arg(long, value_name = "ID", env = "CSI_NODE_ID")]
    node_id: String,

    /// Folder for mounts, and for what the driver knows of them.
    ///
    /// With --on-host, a folder of the machine; nothing of the container has to lead there.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/s3mount-csi")]
    state_dir: PathBuf,

    /// Mount outside of this container, so that mounts outlive it.
    ///
    /// Daemons are then processes of the machine, in its namespaces, each in a control group of its own with the
    /// memory of its volume. A new version of the driver takes their mounts over. The container needs hostPID, and has to
    /// be privileged.
    #[arg(long)]
    on_host: bool,

    /// --memory-limit of volumes that do not name one.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory_limit: Size,

    /// Memory of all volumes of this node together, divided among them by use.
    ///
    /// A volume's --memory-limit is then this size, unless it names its own, and what it has of it changes each second: a
    /// mount that reads has what the others do not use. Each has at least --memory-floor. A volume for which that is no
    /// longer there is refused. Each daemon takes up to 64MiB beside it, and what --metadata-limit allows for names.
    #[arg(long, value_name = "SIZE")]
    node_memory: Option<Size>,

    /// The part of --node-memory that each volume has in any case; half as much again if it is written.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", requires = "node_memory")]
    memory_floor: Size,

    /// Serve the metrics of all mounts over HTTP at this address and port, for Prometheus.
    ///
    /// http://ADDRESS:PORT/metrics shows what .s3mount/metrics of each mount shows, with the labels mount, source and
    /// volume, and s3mount_csi_mount_up, which is 0 for a mount that does not answer.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,

    /// Give the driver's own credentials also to volumes that a pod describes by itself.
    ///
    /// Whoever may make pods then reads all buckets that the driver may read.
    #[arg(long)]
    lend_credentials: bool,
}

/// Answers the calls of Kubernetes until SIGTERM or SIGINT. Mounts stay.
///
/// # Errors
/// Those of beginning: a folder or a socket that can't be made, namespaces that can't be entered.
pub fn run(args: &CsiArgs) -> anyhow::Result<()> {
    anyhow::ensure!(geteuid().is_root(), "s3mount csi mounts volumes for all users: run it as root");
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
    let dir = std::path::absolute(&args.state_dir).context("cannot find the folder of --state-dir")?;
    let host = Host::new(args.on_host)?;
    let programs = Programs::install(&host, &dir)?;
    memory::limit(Some(args.memory_limit))?;
    let node_memory = args
        .node_memory
        .map(|bytes| NodeMemory::new(bytes, args.memory_floor, args.memory_limit))
        .transpose()?;
    let mounts = Mounts::new(dir, host, programs, (args.memory_limit, node_memory))?;
    if let Err(error) = mounts.tidy() {
        tracing::warn!("what a driver before this one has left stays: {error:#}");
    }
    let defaults = Defaults { lends_credentials: args.lend_credentials };
    let driver = Arc::new(Driver::new(args.node_id.clone(), defaults, mounts));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    if args.on_host {
        runtime.spawn(upgrade(driver.clone()));
    }
    let copier = driver.clone();
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(COPY_PAUSE).await;
            let driver = copier.clone();
            let copied = tokio::task::spawn_blocking(move || driver.mounts.renew_files());
            if let Ok(Err(error)) = copied.await {
                tracing::warn!("daemons have no newer credentials: {error:#}");
            }
        }
    });
    runtime.spawn(end_unused(driver.clone()));
    if args.node_memory.is_some() {
        runtime.spawn(divide(driver.clone()));
    }
    if let Some(address) = args.metrics_listen {
        let driver = driver.clone();
        metrics_server::listen(address, move || show(driver.clone()), runtime.handle())?;
    }
    let served = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let ended = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        server::serve(driver, &args.endpoint, ended).await
    });
    runtime.shutdown_background();
    served
}

/// Has daemons of other programs replaced, as long as the driver lives.
async fn upgrade(driver: Arc<Driver>) {
    let mut pause = UPGRADE_PAUSE;
    loop {
        let driver = driver.clone();
        // Daemons whose files are open for writing may take their time.
        let upgraded = tokio::task::spawn_blocking(move || driver.mounts.upgrade());
        if let Ok(Err(error)) = upgraded.await {
            tracing::warn!("daemons of another version go on: {error:#}");
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_UPGRADE_PAUSE.min(pause * 2);
    }
}

/// Divides the memory of the node among its mounts, as long as the driver lives.
async fn divide(driver: Arc<Driver>) {
    loop {
        tokio::time::sleep(DIVIDE_PAUSE).await;
        let driver = driver.clone();
        let divided = tokio::task::spawn_blocking(move || driver.mounts.divide_memory());
        if let Ok(Err(error)) = divided.await {
            tracing::warn!("the memory of the node stays divided as it is: {error:#}");
        }
    }
}

/// Takes down mounts that no pod uses, as long as the driver lives.
async fn end_unused(driver: Arc<Driver>) {
    loop {
        if let Err(error) = driver.end_unused().await {
            tracing::warn!("mounts that no pod uses stay: {error:#}");
        }
        tokio::time::sleep(END_PAUSE).await;
    }
}

/// The metrics of all mounts.
async fn show(driver: Arc<Driver>) -> String {
    let asked = tokio::task::spawn_blocking(move || driver.mounts.metrics());
    match asked.await.context("a thread of the driver has ended").flatten() {
        Ok(mounts) => metrics::page(&mounts),
        Err(error) => {
            tracing::warn!("the metrics can't be shown: {error:#}");
            String::new()
        }
    }
}
