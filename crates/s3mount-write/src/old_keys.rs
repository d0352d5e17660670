//! Keys that files had before they were renamed, and that are not free yet: uploads to them have bytes that are nowhere
//! else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Draft;

/// The drafts by such keys.
#[derive(Debug, Default)]
pub(crate) struct OldKeys(Mutex<HashMap<String, Weak<Draft>>>);

impl OldKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Draft>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the upload of a draft is bound to a key that the draft has not any more.
    pub(crate) fn note(&self, key: &str, draft: Weak<Draft>) {
        let mut keys = self.lock();
        keys.retain(|_, draft| draft.strong_count() > 0);
        keys.insert(key.to_owned(), draft);
    }

    /// The draft whose upload may be bound to `key`, which is forgotten.
    pub(crate) fn take(&self, key: &str) -> Option<Arc<Draft>> {
        self.lock().remove(key)?.upgrade()
    }
}
