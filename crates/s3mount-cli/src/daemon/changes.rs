//! Hears of the changes of others from a queue.

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use s3mount_changes::{Change, ChangeMetrics, KeyChange, Listener, Queue, QueueConfig, QueueError, follow};
use s3mount_fs::{Filesystem, Told};
use s3mount_metrics::ChangeEvent;
use s3mount_settings::resolved::Config;
use tokio::runtime::Runtime;

/// How long a mount that begins waits for its queue.
const PATIENCE: Duration = Duration::from_secs(30);

/// The queue that tells of changes.
pub(super) struct Changes {
    config: QueueConfig,
    /// Unset if it is to be found later.
    found: Option<Queue>,
}

impl Changes {
    /// Finds the queue that the settings name, if they do, for a bucket in `region`. A daemon that goes on with a mount
    /// (`is_taken`) finds it later, so that the mount goes on in any case.
    ///
    /// # Errors
    /// If there is no such queue, or its messages may not be read.
    pub(super) fn find(
        config: &Config,
        region: &str,
        is_taken: bool,
        runtime: &Runtime,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(name), Some(shown)) = (config.events_from.clone(), config.shown.bucket()) else {
            return Ok(None);
        };
        let config = shown.store.queue(name, region);
        if is_taken {
            return Ok(Some(Self { config, found: None }));
        }
        let find = async {
            let queue = Queue::find(&config).await?;
            queue.check().await?;
            Ok::<_, QueueError>(queue)
        };
        let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, find).await });
        let found = found.with_context(|| {
            format!("--events-from: no answer from {} in {} s", config.name, PATIENCE.as_secs())
        })?;
        let found = found.context(
            "--events-from: check the queue's name and region, and whether you may sqs:GetQueueUrl, \
             sqs:ReceiveMessage and sqs:DeleteMessage",
        )?;
        Ok(Some(Self { config, found: Some(found) }))
    }

    /// Tells `fs` of what comes, until the daemon ends. The kernel must have the mount.
    pub(super) fn follow(self, fs: &Arc<Filesystem>, runtime: &Runtime) {
        let metrics = Arc::<ChangeMetrics>::default();
        fs.registry().add(metrics.clone(), || {});
        let mount = ToldMount(Arc::downgrade(fs));
        follow(self.config, self.found.as_ref(), metrics, mount, runtime.handle());
    }
}

/// The mount that is told of changes.
struct ToldMount(Weak<Filesystem>);

impl Listener for ToldMount {
    fn tell(&self, change: &KeyChange) {
        let told = match (change.change, &change.etag) {
            (Change::Written, Some(etag)) => Told::Written(etag),
            (Change::Written, None) | (Change::Changed, _) => Told::Changed,
            (Change::Gone, _) => Told::Gone,
        };
        self.0.upgrade().iter().for_each(|fs| fs.was_told(&change.key, told));
    }

    fn drop_again(&self, change: &KeyChange) {
        self.0.upgrade().iter().for_each(|fs| fs.drop_again(&change.key));
    }

    fn pass_on(&self, change: KeyChange) {
        let Some(fs) = self.0.upgrade() else { return };
        fs.pass_on(ChangeEvent {
            change: if change.change == Change::Gone { "gone" } else { "written" },
            key: change.key.into(),
            size: change.size,
            etag: change.etag.map(Arc::from),
            time: change.time.into(),
        });
    }

    fn is_settled(&self) -> bool {
        self.0.upgrade().is_none_or(|fs| !fs.has_outdated())
    }
}
