//! Joins the layers together: store, memory, prefetcher, filesystem, kernel.
#![expect(unsafe_code, reason = "the end of a process that drops nothing")]

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use s3mount_bucket::{Bucket, Class};
use s3mount_cache::DiskCache;
use s3mount_fs::{Filesystem, FsConfig, Writes};
use s3mount_fuse::Mount;
use s3mount_listed::Named;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_metrics::Registry;
use s3mount_prefetch::{Prefetcher, Tiers};
use s3mount_settings::resolved::{self, Config};
use s3mount_shared::SharedTier;
use s3mount_system::connections::connections;
use s3mount_system::metrics::DaemonMetrics;
use s3mount_system::mounts::{MountedAt, by_id};
use s3mount_system::{cpu_time, metrics_server, open_files, terminal, threads};
use s3mount_write::{Journal, WriteConfig, Writer};
use tokio::runtime::Runtime;

use super::asked::{Ending, Signals, wait};
use super::audit_log::AuditLog;
use super::changes::Changes;
use super::checks::Given;
use super::client::Client;
use super::conditions::Question;
use super::control_socket::ControlSocket;
use super::holder;
use super::journal::{self, Leftovers};
use super::keeper::{self, Keeper};
use super::layers::{beside_pool, fs_config, fuse_config, prefetch_config, rates, write_config};
use super::manager;
use super::names;
use super::otlp::Exporter;
use super::outbox;
use super::taking_down::take_down;
use super::warden;

/// The time that readers may take to close their files after the mount was unmounted.
const GRACE: Duration = Duration::from_secs(2);

/// Mounts, calls `ready` when the mount answers, and returns when the mount has ended: by SIGHUP, SIGINT, SIGQUIT or
/// SIGTERM, or because somebody unmounted it.
///
/// `place` is where.
pub(crate) fn mount(
    config: &Config,
    place: Given,
    keeper: Option<&Keeper>,
    ready: impl FnOnce(),
) -> anyhow::Result<ExitCode> {
    let taken = match &place {
        Given::Kept(kept) => Some(kept.open()?),
        Given::Device(_) | Given::Folder(_) => None,
    };
    let max_connections = open_files::make_room(config.max_connections)?;
    cpu_time::make_room();
    let config = &Config { max_connections, ..config.clone() };
    // Writes that wait for memory have their bytes in the heap, up to 1 MiB each. When all writes of a large file
    // waited, and each had fresh pages, 4 GiB took 1.40 CPU s/GiB, and 1.07 without this.
    if config.writes.is_none() {
        s3mount_memory::keep_heap_small();
    } else {
        s3mount_memory::share_heaps();
    }
    // The heap is set up before any thread has begun.
    threads::check(config.threads, config.event_loops)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.threads)
        .thread_name("s3mount")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let disk = config.cache.as_ref().map(DiskCache::open).transpose()?;
    for note in disk.iter().flat_map(DiskCache::notes) {
        tracing::warn!("{note}");
    }
    let is_taken = taken.is_some();
    let named = config.names_from.as_ref().map(|from| match &place {
        // What has become of the list, and of the index at its path, does not matter.
        Given::Kept(kept) => {
            let (file, id) = kept.index()?;
            let failed = || format!("the index of the names in {} can't be read on", from.shown());
            Named::reopen(file, id, &from.dir).with_context(failed)
        }
        Given::Device(_) | Given::Folder(_) => names::find(from, config, runtime.handle()),
    });
    let named = named.transpose()?;
    if let (Some(keeper), Some(named), false) = (keeper, &named, is_taken) {
        keeper
            .keep_index(named.index.descriptor(), named.index.id())
            .context("cannot give the index of names to its keeper")?;
    }
    let regions = taken.as_ref().and_then(|(_, left, _)| left.region().map(str::to_owned));
    let index = named.as_ref().map(|named| &*named.index);
    let client = match is_taken {
        true => runtime.block_on(Client::connect_again(config, index, regions))?,
        false => runtime.block_on(Client::connect(config, index))?,
    };
    let regions = client.regions();
    let changes = Changes::find(config, &regions, is_taken, &runtime)?;
    let question = match &client {
        Client::Bucket(bucket) if !is_taken => Question::ask(config, bucket.clone(), &runtime),
        Client::Bucket(_) | Client::Folders(_) => None,
    };
    let beside = beside_pool(config);
    let budget =
        MemoryBudget::between(config.memory_floor_bytes - beside, config.memory_limit_bytes - beside);
    let pool = BufferPool::new(budget).context("cannot reserve memory")?;
    let connections = usize::try_from(config.max_connections).unwrap_or(usize::MAX);
    let store = client.open(connections, rates(config), named);
    let shared = shared_tier(config, &runtime, store.reader.clone(), &pool)?;
    let tiers = Tiers { disk, shared, kept: config.kept.clone() };
    let (reader, prefetch) = (store.reader.clone(), prefetch_config(config));
    let prefetcher = Prefetcher::with_tiers(reader, pool.clone(), tiers, prefetch, runtime.handle());
    let mounted_at = taken.as_ref().map_or_else(SystemTime::now, |(_, _, session)| session.mounted_at);
    let fs_config = FsConfig { mounted_at, ..fs_config(config) };
    let mut fs = Filesystem::new(store.names.clone(), prefetcher.clone(), fs_config, runtime.handle());
    let (mut handover, mut state, mut left) = (None, None, None);
    if let Some((kept, before, session)) = taken {
        (handover, left) = (Some(kept), Some((before, session)));
    } else if keeper.is_some() {
        let (new, file) = keeper::new_state()?;
        (handover, state) = (Some(new), Some(file));
    }
    if let Some(handover) = handover {
        if let Some(text) = &config.file {
            handover.set_settings(text.as_bytes());
        }
        // That of a multi-region access point stands for all of them.
        if !regions.contains('*') {
            handover.set_region(&regions);
        }
        let has_spool = config.writes.as_ref().is_some_and(|writes| writes.spool.is_some());
        if let Some(keeper) = keeper.filter(|_| has_spool) {
            handover.keep_files(Arc::new(keeper.clone()));
        }
        fs = fs.with_handover(Arc::new(handover));
    }
    let family = fs.handover().map(|handover| handover.family());
    let (mut journal, mut leftovers, mut waiting) = (Journal::default(), None, Vec::new());
    if let (Some(writes), Some(shown), Some(bucket)) = (&config.writes, config.shown.bucket(), &store.writer)
    {
        journal = journal::open(&writes.journal, &shown.store, family)?;
        let max_requests = bucket.limits().most(Class::Write);
        let given = WriteConfig { journal: journal.clone(), max_requests, ..write_config(config, writes) };
        leftovers = writes.journal.dir.clone().map(|dir| Leftovers {
            dir,
            store: shown.store.clone(),
            bucket: bucket.clone(),
            timeout: config.read_timeout,
            may_rename: writes.rights.folder_rename_limit > 0,
        });
        let readers = prefetcher.clone();
        let reclaim = move || readers.reclaim();
        let writer = Writer::with(bucket.clone(), pool, given, runtime.handle(), reclaim);
        writer.register(fs.registry());
        store.register_writes(fs.registry());
        let resolved::writes::WriteConfig { rights, publishes_on_fsync, append_delay, .. } = *writes;
        let object = writes.object.clone();
        let mut outbox = None;
        if let Some(behind) = &writes.outbox {
            let (opened, left) =
                outbox::open(behind, &shown.to_string(), shown.store.address().endpoint_url.as_deref())?;
            (outbox, waiting) = (Some((opened, s3mount_fs::family_of(&left, bucket.random()))), left);
        }
        fs = fs.with_writes(Writes { writer, rights, object, append_delay, outbox, publishes_on_fsync });
        if writes.has_folder_markers {
            fs = fs.with_folder_markers();
        }
    }
    if let Some(bucket) = store.writer.as_ref().filter(|_| config.keeps_attributes) {
        fs = fs.with_attributes(bucket.clone());
    }
    let fs = Arc::new(fs.with_recorder(store.recorder()).with_list_count(store.list_count()));
    runtime.block_on(fs.take_left(waiting));
    store.register(fs.registry());
    register_process(fs.registry());
    let control = config
        .control_socket
        .as_deref()
        .map(|path| ControlSocket::listen(path, config.allow_other, fs.clone(), runtime.handle()));
    let _control = control.transpose()?;
    if let Some(address) = config.metrics_listen {
        let fs = fs.clone();
        let show = move || {
            // Brings the gauges up to date.
            fs.metrics();
            std::future::ready(fs.registry().snapshot().prometheus())
        };
        metrics_server::listen(address, show, runtime.handle())?;
    }
    let exporter = config.otlp_endpoint.as_ref();
    let exporter = exporter.map(|endpoint| Exporter::start(endpoint, config, fs.clone(), runtime.handle()));
    let exporter = exporter.transpose()?;
    // The signals must be caught before there is a mount. A signal whose default action ends the daemon would
    // leave a mount without a daemon.
    let mut signals = Signals::new(&runtime).context("cannot listen to signals")?;
    let audit =
        config.audit_log.as_ref().map(|target| AuditLog::open(target, is_taken)).transpose()?.map(Arc::new);
    let fuse = fuse_config(config, audit.clone());
    if let Some(leftovers) = leftovers.as_ref().filter(|leftovers| is_taken && leftovers.may_rename) {
        leftovers.hand_renames(&fs);
    }
    let mount = match place {
        Given::Kept(kept) => {
            let (left, session) = left.context("a kept mount has a state")?;
            // Somebody may have moved it.
            let now = session.mount.and_then(by_id).map(|mount| mount.dir);
            let dir = now.as_deref().or(config.target.dir());
            state = Some(kept.state);
            // From the first request that is read here, only this daemon can go on.
            if let Some(keeper) = keeper.filter(|_| !session.can_resend()) {
                keeper.forget();
            }
            s3mount_fuse::take_over(fs.clone(), kept.device, (&session, left), dir, &fuse, runtime.handle())
        }
        Given::Device(device) => s3mount_fuse::serve_device(fs.clone(), device, &fuse, runtime.handle()),
        Given::Folder(point) => s3mount_fuse::mount(fs.clone(), point, &fuse, runtime.handle()),
    };
    let mut mount = mount.with_context(|| format!("cannot mount at {}", config.target))?;
    if let Some(changes) = changes {
        changes.follow(&fs, &runtime);
    }
    // What the keeper is given when this daemon makes way, where the kernel sends no request again.
    let mut at_the_end = None;
    if let Some(keeper) = keeper {
        keeper.introduce(&mount);
        match mount.take_device().zip(state) {
            Some(kept) if !mount.can_resend() => {
                tell_only_planned(config, is_taken);
                at_the_end = Some((keeper, kept));
            }
            Some((device, state)) if !is_taken => {
                let kept = keeper.keep(device.as_fd(), state.as_fd());
                kept.context("cannot give the mount to the process that keeps it")?;
            }
            Some(_) | None => {}
        }
    }
    let is_kept = keeper.is_some() && at_the_end.is_none();
    // A mount that another process has made has its own.
    let began = mount.id().and_then(by_id);
    // Whoever keeps the mount has started this process.
    let holder = keeper.map(|_| std::os::unix::process::parent_id());
    let is_patient = is_kept && matches!(keeper, Some(Keeper::Holder(_)));
    let warden = began.as_ref().map(|began| warden::start(began, holder.filter(|_| is_kept), is_patient));
    if let Some(Err(error)) = &warden {
        tracing::warn!(%error, "no warden could be started: if this daemon is killed, programs may hang until \
            `umount --force` is called");
    }
    if let Some(question) = question {
        question.tell(&runtime);
    }
    ready();
    if is_taken {
        keeper::log_end_before();
    }
    if let Some(leftovers) = leftovers {
        leftovers.put_in_order(fs.clone(), runtime.handle());
    }
    tracing::info!(source = %config.shown, dir = %config.target, "mounted");
    let give = || {
        at_the_end
            .as_ref()
            .map_or(Ok(()), |(keeper, (device, state))| keeper.keep(device.as_fd(), state.as_fd()))
    };
    let ending = runtime.block_on(wait(&mut mount, &mut signals, holder, give));
    if ending == Ending::MakesWay {
        tracing::info!("this daemon makes way for another one");
        if let Some(keeper) = keeper {
            keeper.tell_way();
        }
        if let Some(Ok(warden)) = warden.filter(|_| !is_kept) {
            warden::dismiss(warden);
        }
        audit.iter().for_each(|audit| audit.flush());
        // Nothing is dropped: a request that is dropped is answered with EIO, and the next daemon is to answer it.
        // SAFETY: it ends the process.
        unsafe { nix::libc::_exit(holder::REPLACE.into()) };
    }
    drop(at_the_end);
    let result = end(&runtime, mount, began.as_ref(), ending);
    if let (Ok(()), Some(Ok(warden))) = (&result, warden) {
        // From now on the number of the mount may be that of another one.
        warden::dismiss(warden);
    }
    let result = result.and(end_writes(&runtime, &fs, config.read_timeout));
    if let Some(keeper) = keeper {
        // All is done that another daemon could do.
        keeper.forget();
    }
    journal.close();
    audit.iter().for_each(|audit| audit.flush());
    if let Some(exporter) = exporter {
        runtime.block_on(exporter.finish());
    }
    let metrics = prefetcher.metrics();
    let (reads, read_bytes) = (metrics.reads.get(), metrics.read_bytes.get());
    let (gets, fetched_bytes) = (metrics.get_requests.get(), metrics.fetched_bytes.get());
    tracing::info!(reads, read_bytes, gets, fetched_bytes, "unmounted");
    // The process must not wait for GETs whose answers nobody needs any more.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

/// The shared tier, if the flags ask for one.
fn shared_tier(
    config: &Config,
    runtime: &Runtime,
    source: Bucket,
    pool: &BufferPool,
) -> anyhow::Result<Option<SharedTier>> {
    let Some(shared) = &config.shared_cache else { return Ok(None) };
    let blocks = runtime.block_on(shared.connect(config.event_loops.shared))?;
    Ok(Some(SharedTier::new(shared.config.clone(), blocks, source, pool.clone(), runtime.handle())))
}

/// Adds the metrics of the process to `registry`.
fn register_process(registry: &Registry) {
    let metrics = Arc::new(DaemonMetrics::default());
    let shown = metrics.clone();
    registry.add(metrics, move || shown.connections.set_len(connections()));
}

/// Says of a mount whose kernel sends no request again what it does not survive.
fn tell_only_planned(config: &Config, is_taken: bool) {
    const TEXT: &str = "this kernel is older than Linux 6.9: another daemon goes on with the mount after `s3mount upgrade`, \
        and not after a crash";
    if is_taken {
        return;
    }
    tracing::warn!("{TEXT}");
    if !config.foreground {
        terminal::notice(&format!("warning: {TEXT}"));
    }
}

/// Ends the mount.
fn end(runtime: &Runtime, mut mount: Mount, began: Option<&MountedAt>, ending: Ending) -> anyhow::Result<()> {
    manager::stopping();
    if ending == Ending::Unmounted {
        take_down_what_is_left(&mount, began);
        return mount.join().context("the FUSE session failed");
    }
    take_down(&mount, began)?;
    // A mount that another process has mounted is left to it.
    let is_ours = mount.id().is_some();
    let ended = runtime.block_on(async { tokio::time::timeout(GRACE, mount.ended()).await.is_ok() });
    if is_ours && !ended {
        tracing::warn!("files are still open; their readers will get ENOTCONN");
    }
    Ok(())
}

/// A FUSE session also ends when its connection is aborted through /sys/fs/fuse/connections. Then the mount
/// is still there and answers ENOTCONN, so this unmounts it.
fn take_down_what_is_left(mount: &Mount, began: Option<&MountedAt>) {
    match take_down(mount, began) {
        Ok(true) => tracing::warn!("the connection was aborted; the mount was taken down"),
        Ok(false) => {}
        Err(error) => tracing::error!("the connection was aborted: {error:#}"),
    }
}

/// Waits until all files that were written and closed are in the bucket, however the mount has ended, but no longer
/// than `limit`.
fn end_writes(runtime: &Runtime, fs: &Arc<Filesystem>, limit: Duration) -> anyhow::Result<()> {
    match runtime.block_on(fs.end_writes_within(limit)) {
        0 => Ok(()),
        lost => anyhow::bail!("{lost} files were not written to the bucket; the log says which and why"),
    }
}
