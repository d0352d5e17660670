//! Who is told that names have changed.

use std::fmt;

/// Is called with the prefix of a directory, and names in it.
type OnChanged = dyn Fn(&str, &[Box<str>]) + Send + Sync;

/// Is told the names of a directory, by its prefix, that stand for something else than was shown of them, or for nothing.
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

    /// Tells that `names` of the directory `prefix` have changed, if there are any.
    pub(crate) fn tell(&self, prefix: &str, names: &[Box<str>]) {
        if !names.is_empty() {
            (self.0)(prefix, names);
        }
    }
}
