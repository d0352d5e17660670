//! Says at the mount that a store refuses what each write needs, and not at the first `close`.

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::WritableBucket;
use s3mount_crt::CrtClient;
use s3mount_settings::resolved::Config;
use s3mount_system::terminal;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long the question may take, with its retries. Nobody waits for the answer that long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much later the mount is ready for the sake of the answer, at most.
const MOST_WAIT: Duration = Duration::from_millis(500);

const REFUSED: &str = "the store refuses writes that have a condition (501 NotImplemented to If-None-Match): \
    files can be read and deleted, and `close` of each file that is written will fail with EIO, because nothing \
    would keep two writers from replacing each other's files; write to a store that knows conditional writes";

/// A question to the store that is under way while the mount begins.
pub(super) struct Question(JoinHandle<bool>);

impl Question {
    /// Asks the store, if the mount may write.
    pub(super) fn ask(config: &Config, client: Arc<CrtClient>, runtime: &Runtime) -> Option<Self> {
        config.writes.as_ref()?;
        let (prefix, is_seen) = (config.shown.prefix().to_owned(), !config.foreground);
        // A bucket of its own: the request is none of the mount's, so its metrics don't count it.
        let bucket = WritableBucket::new(client, 1).with_timeout(TIMEOUT);
        Some(Self(runtime.spawn(async move {
            let refuses = bucket.refuses_conditions(&prefix).await;
            if refuses {
                tracing::warn!("{REFUSED}");
            }
            refuses && is_seen
        })))
    }

    /// Waits a moment for the answer. One that comes later is in the log.
    pub(super) fn tell(self, runtime: &Runtime) {
        if let Ok(Ok(true)) = runtime.block_on(async { timeout(MOST_WAIT, self.0).await }) {
            terminal::notice(&format!("warning: {REFUSED}"));
        }
    }
}
