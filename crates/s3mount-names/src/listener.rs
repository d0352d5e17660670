//! The callback for changes of names.

use std::fmt;

/// Called with the prefix of a directory, and names in it.
type OnChanged = dyn Fn(&str, &[Box<str>]) + Send + Sync;

/// Gets the names of a directory, by its prefix, that differ from what was shown of them, or are gone.
pub struct ChangeListener(Box<OnChanged>);

impl fmt::Debug for ChangeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeListener")
    }
}

impl ChangeListener {
    /// Calls `on_changed` with the prefix and the names. No lock of the names is held meanwhile.
    pub fn new(on_changed: impl Fn(&str, &[Box<str>]) + Send + Sync + 'static) -> Self {
        Self(Box::new(on_changed))
    }

    /// Reports changed `names` of the directory `prefix`, if there are any.
    pub(crate) fn tell(&self, prefix: &str, names: &[Box<str>]) {
        if !names.is_empty() {
            (self.0)(prefix, names);
        }
    }
}
