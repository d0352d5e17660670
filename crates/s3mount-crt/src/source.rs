//! Credentials that are found outside of the CRT.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::BoxFuture;

/// Keys that sign requests.
pub struct Keys {
    /// The access key id.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
    /// The session token of temporary keys.
    pub session_token: Option<String>,
    /// When the keys end, if they do.
    pub end: Option<SystemTime>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("end", &self.end).finish_non_exhaustive()
    }
}

/// There are no keys. The text says why, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoKeys(pub Arc<str>);

/// Finds the keys that sign requests, and renews them before they end.
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// The keys for the next request. Every request asks, so this waits only where there are no keys yet, or
    /// no longer any.
    ///
    /// # Errors
    /// [`NoKeys`] if none were found within the time that the source allows itself.
    fn keys(&self) -> BoxFuture<'_, Result<Arc<Keys>, NoKeys>>;

    /// The store refuses these keys: the next call of [`keys`](Self::keys) looks for others.
    fn refuse(&self, keys: &Arc<Keys>);
}
