//! Reclaims memory from drafts when others wait for it. First they drop bytes that the store has, too, the oldest
//! first. If that is not enough, they begin to upload what can be uploaded.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

/// What memory can be reclaimed from: a draft.
pub(crate) trait Reclaimable: fmt::Debug + Send + Sync {
    /// When it was changed last. Memory is first reclaimed from those that were changed the longest time ago.
    fn changed(&self) -> SystemTime;

    /// Drops bytes that are elsewhere, too, until it holds `wanted` bytes less. Returns how many less it holds.
    fn evict(&self, wanted: u64) -> u64;

    /// How many bytes it uploads now. They can be dropped then.
    fn uploading_bytes(&self) -> u64;

    /// Begins to upload at least `wanted` bytes, as far as it has parts that are full. Returns how many bytes
    /// that are.
    fn hurry(&self, wanted: u64) -> u64;
}

/// All drafts there are, and how much is wanted of them.
#[derive(Debug, Default)]
pub(crate) struct DraftReclaimer {
    all: Mutex<Vec<Weak<dyn Reclaimable>>>,
    wanted_bytes: AtomicU64,
}

/// Bytes that a caller waits for.
#[derive(Debug)]
pub(crate) struct Wanted<'a>(&'a AtomicU64, u64);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl DraftReclaimer {
    /// Adds a draft, and forgets those that are gone.
    pub(crate) fn add(&self, draft: Weak<dyn Reclaimable>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|draft| draft.strong_count() > 0);
        all.push(draft);
    }

    /// How many drafts there are, or were a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Notes that a caller waits for `bytes`, until the answer is dropped.
    pub(crate) fn want(&self, bytes: u64) -> Wanted<'_> {
        self.wanted_bytes.fetch_add(bytes, Ordering::Relaxed);
        Wanted(&self.wanted_bytes, bytes)
    }

    /// Whether anybody waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted_bytes.load(Ordering::Relaxed) > 0
    }

    /// Frees as much memory as all callers wait for, as far as the drafts can spare it. `first` comes before the
    /// others.
    pub(crate) fn reclaim(&self, first: &dyn Reclaimable) {
        let mut drafts: Vec<_> = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let is_first = |draft: &Arc<dyn Reclaimable>| std::ptr::addr_eq(Arc::as_ptr(draft), first);
        drafts.sort_by_cached_key(|draft| (!is_first(draft), draft.changed()));
        let wanted = self.wanted_bytes.load(Ordering::Relaxed);
        let mut freed = 0;
        for draft in &drafts {
            if freed >= wanted {
                return;
            }
            freed += draft.evict(wanted - freed);
        }
        let mut coming = freed + drafts.iter().map(|draft| draft.uploading_bytes()).sum::<u64>();
        for draft in &drafts {
            if coming >= wanted {
                return;
            }
            coming += draft.hurry(wanted - coming);
        }
    }
}
