//! Keeps the keys of a profile, and renews them. Many requests share one search.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use futures::channel::oneshot;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt as _, TryFutureExt as _};
use s3mount_crt::{CredentialSource, Keys, NoKeys};

use crate::config::SourceConfig;
use crate::fetch::fetch;
use crate::plan::{Life, Plan, plan};

/// Finds the keys of a profile by `aws-config`.
#[derive(Clone)]
pub struct ProfileSource(Arc<KeySource>);

struct KeySource {
    config: SourceConfig,
    state: Mutex<KeyCache>,
}

type Search = Shared<oneshot::Receiver<Result<Arc<Keys>, NoKeys>>>;

#[derive(Default)]
struct KeyCache {
    /// The keys, and when they were found.
    keys: Option<(Arc<Keys>, SystemTime)>,
    /// When the last search ended and why it failed, if it did.
    failed: Option<(Instant, NoKeys)>,
    /// The search that is under way.
    search: Option<Search>,
}

impl fmt::Debug for ProfileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProfileSource").field(&self.0.config.profile).finish()
    }
}

impl ProfileSource {
    /// A source for this profile. Nothing is read before the first call of
    /// [`keys`](CredentialSource::keys), so the process may still fork.
    pub fn new(config: SourceConfig) -> Self {
        Self(Arc::new(KeySource { config, state: Mutex::default() }))
    }
}

impl KeySource {
    fn state(&self) -> MutexGuard<'_, KeyCache> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a search has found.
    fn note(&self, found: &Result<Arc<Keys>, NoKeys>) {
        let SourceConfig { profile, kind, .. } = &self.config;
        let mut state = self.state();
        state.search = None;
        match found {
            Err(error) => {
                if state.failed.as_ref().is_none_or(|(_, before)| before.0 != error.0) {
                    tracing::warn!(%profile, %error, "no credentials");
                }
                state.failed = Some((Instant::now(), error.clone()));
            }
            Ok(keys) => {
                tracing::info!(%profile, %kind, end = ?keys.end, "found credentials");
                (state.keys, state.failed) = (Some((keys.clone(), SystemTime::now())), None);
            }
        }
    }
}

/// Joins the search that is under way, or begins one in a thread of its own.
fn search(source: &Arc<KeySource>, state: &mut KeyCache) -> Search {
    if let Some(search) = &state.search {
        return search.clone();
    }
    let (answer, waiting) = oneshot::channel();
    let waiting = waiting.shared();
    state.search = Some(waiting.clone());
    let shared = source.clone();
    let find = move || {
        // Those who wait must hear of a panic, too, and the next search must begin.
        let found = catch_unwind(AssertUnwindSafe(|| fetch(&shared.config)))
            .unwrap_or_else(|_| Err(NoKeys("the search for credentials has panicked".into())))
            .map(Arc::new);
        shared.note(&found);
        // Nobody may wait any more. That is no error.
        let _ = answer.send(found);
    };
    if let Err(error) = std::thread::Builder::new().name("credentials".to_owned()).spawn(find) {
        // The thread's function was dropped with the sender, so those who wait hear of it.
        tracing::warn!(%error, "no thread to look for credentials");
        state.search = None;
    }
    waiting
}

impl CredentialSource for ProfileSource {
    fn keys(&self) -> BoxFuture<'_, Result<Arc<Keys>, NoKeys>> {
        let mut state = self.0.state();
        let life = state.keys.as_ref().map(|(keys, found)| Life { found: *found, end: keys.end });
        let failed = state.failed.as_ref().map(|(at, _)| at.elapsed());
        let held = state.keys.as_ref().map(|(keys, _)| keys.clone());
        let planned = plan(life, failed, SystemTime::now());
        if planned == Plan::UseAndRenew {
            // The search runs by itself.
            drop(search(&self.0, &mut state));
        }
        match (planned, held, &state.failed) {
            (Plan::Use | Plan::UseAndRenew, Some(keys), _) => futures::future::ready(Ok(keys)).boxed(),
            (Plan::Fail, _, Some((_, error))) => futures::future::ready(Err(error.clone())).boxed(),
            _ => {
                let lost = |_| NoKeys("the search for credentials ended without an answer".into());
                search(&self.0, &mut state).map_err(lost).map(Result::flatten).boxed()
            }
        }
    }

    fn refuse(&self, keys: &Arc<Keys>) {
        let mut state = self.0.state();
        if state.keys.as_ref().is_some_and(|(held, _)| Arc::ptr_eq(held, keys)) {
            state.keys = None;
        }
    }
}
