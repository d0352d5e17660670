//! Which measurements are taken, and how far they are.

use indicatif::{ProgressBar, ProgressStyle};

/// The values that were given, or else the defaults.
pub(super) fn given<T: Clone>(values: &[T], defaults: &[T]) -> Vec<T> {
    if values.is_empty() { defaults.to_vec() } else { values.to_vec() }
}

/// A progress bar on the terminal. It shows nothing if standard error is not a terminal.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left");
    ProgressBar::new(steps).with_style(style.expect("a template that is right"))
}
