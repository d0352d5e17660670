//! Lists folders to which this mount writes again before their pages expire.
//!
//! A program that makes a file looks its name up first, and finds nothing. An absent name is cached for a second. Then
//! all writers of the folder would wait for a LIST, every second anew: 32 writers of small files at S3's latency were
//! idle for a sixth of the time.

use std::sync::Arc;
use std::time::Duration;

use super::Namespace;
use crate::name::NamedDraft;
use crate::sync::{lock, spawn};

/// A folder that is being listed again, until this is dropped.
struct Refresh<D: NamedDraft> {
    namespace: Arc<Namespace<D>>,
    prefix: Arc<str>,
}

impl<D: NamedDraft> Drop for Refresh<D> {
    fn drop(&mut self) {
        lock(&self.namespace.refreshing).remove(&self.prefix);
    }
}

impl<D: NamedDraft> Namespace<D> {
    /// Notes a look-up of the absent `name` in the directory `prefix`, which is cached for the time `left`. If this
    /// mount writes to the directory, and half of the time is over, lists the names from this one on again. No caller
    /// waits for that.
    pub(super) fn refresh(self: &Arc<Self>, prefix: &Arc<str>, name: &str, left: Duration) {
        let is_due = left < self.negative_ttl / 2 && self.overlay.has_changes(prefix);
        // Look-ups in a store without an order list one name only.
        if !is_due || !self.requests.lists_in_order() {
            return;
        }
        if !lock(&self.refreshing).insert(prefix.clone()) {
            return;
        }
        let (refresh, name) = (Refresh { namespace: self.clone(), prefix: prefix.clone() }, name.to_owned());
        spawn(self.requests.runtime(), async move {
            let listed = refresh.namespace.list_page(&refresh.prefix, &name);
            if let Err(error) = refresh.namespace.in_time(listed).await {
                tracing::debug!(prefix = %refresh.prefix, %error, "the folder is not listed again");
            }
        });
    }
}
