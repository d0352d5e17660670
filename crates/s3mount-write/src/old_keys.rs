//! Keys that files had before they were renamed, and that are not free yet: uploads to them have bytes that are nowhere
//! else.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::future::BoxFuture;

/// What may have an upload to a key that it has not any more.
pub(crate) trait Renamed: fmt::Debug + Send + Sync {
    /// Frees the key for another file.
    fn free(self: Arc<Self>, key: String) -> BoxFuture<'static, ()>;
}

/// The files by such keys.
#[derive(Debug, Default)]
pub(crate) struct OldKeys(Mutex<HashMap<String, Weak<dyn Renamed>>>);

impl OldKeys {
    /// Notes that an upload of a file is bound to a key that the file has not any more.
    pub(crate) fn note(&self, key: &str, file: Weak<dyn Renamed>) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, file| file.strong_count() > 0);
        keys.insert(key.to_owned(), file);
    }

    /// The file whose upload may be bound to `key`, which is forgotten.
    pub(crate) fn take(&self, key: &str) -> Option<Arc<dyn Renamed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)?.upgrade()
    }
}
