//! `.s3mount/stats` and `.s3mount/metrics` show the metrics of the mount.

use s3mount_metrics::Registry;

use super::Filesystem;
use crate::FsMetrics;
use crate::control::instruments::ListCount;
use crate::control::{Control, memory_file};
use crate::page_cache::direct::Reason;

impl Filesystem {
    /// Has `count` say how many LISTs succeeded: the client that sends them knows which of the names came from elsewhere.
    #[must_use]
    pub fn with_list_count(mut self, count: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.instruments.lists = Some(ListCount(Box::new(count)));
        self
    }

    /// The metrics of the mount: those of this crate, of the crates below it, and of others that add theirs.
    pub fn registry(&self) -> &Registry {
        &self.instruments.registry
    }

    /// The metrics of this crate, up to date.
    pub fn metrics(&self) -> &FsMetrics {
        let metrics = &*self.instruments.metrics;
        let (hints_queued, hints_ahead) = self.ahead.counts();
        let direct = self.page_cache.counts();
        let asked_for = || self.namespace.requests().succeeded();
        metrics
            .list_requests
            .set(self.instruments.lists.as_ref().map_or_else(asked_for, |lists| (lists.0)()));
        metrics.hidden_keys.set(self.namespace.requests().hidden_keys());
        metrics.metadata.set_len(self.namespace.bytes());
        metrics.hints_queued.set_len(hints_queued);
        metrics.hints_ahead.set_len(hints_ahead);
        metrics.hints_refused.set(self.ahead.refused());
        metrics.open_files.set_len(self.files.len());
        metrics.open_folders.set_len(self.directories.len());
        metrics.inodes.set_len(self.inodes.len());
        metrics.random_map_files.set_len(self.page_cache.maps().random_files());
        metrics.refused_readaheads.set(self.page_cache.maps().refused());
        metrics.direct_opens.set(direct.opens);
        metrics.direct_kinds.set_len(direct.kinds);
        let waiting = self.in_outbox();
        metrics.outbox_files.set(waiting.entries);
        metrics.outbox_bytes.set(waiting.bytes);
        metrics.outbox_failed.set(waiting.failed);
        metrics.outbox_disk.set(waiting.disk_bytes);
        for (reason, count) in Reason::ALL.iter().zip(direct.back) {
            metrics.direct_given_up.at(*reason).set(count);
        }
        metrics
    }

    /// The text of one of the daemon's files.
    pub(super) fn show(&self, file: Control) -> String {
        match file {
            Control::Streams => return self.show_streams(),
            Control::Pending => return self.show_pending(),
            Control::Memory => {
                return memory_file::show(&self.prefetcher.memory(), self.config.memory_beside_bytes);
            }
            _ => {}
        }
        self.metrics();
        let snapshot = self.instruments.registry.snapshot();
        if file == Control::Stats { snapshot.json() } else { snapshot.prometheus() }
    }
}
