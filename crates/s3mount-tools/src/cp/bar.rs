//! What is shown of copies while they go on, and what is told of them at the end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use s3mount_system::terminal;
use s3mount_write::{Copied, Proof};

/// Failures that are told one by one.
const MOST_TOLD: u64 = 20;

/// What has become of the objects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    copied: u64,
    bytes: u64,
    /// Objects that were at the target, and stay.
    pub(super) kept: u64,
    pub(super) failed: u64,
    /// Bytes that an earlier run had copied.
    resumed: u64,
    /// Copies of which only the length could be compared.
    unproven: u64,
    /// Copies without tags, because these may not be read.
    untagged: u64,
}

impl Sum {
    /// Adds an object that was copied, or would be.
    pub(super) fn add(&mut self, bytes: u64, copied: Option<&Copied>) {
        self.copied += 1;
        self.bytes += bytes;
        if let Some(copied) = copied {
            self.resumed += copied.resumed_bytes;
            self.unproven += u64::from(copied.proof == Proof::Length);
            self.untagged += u64::from(copied.lacks_tags);
        }
    }

    /// One line for the end.
    pub(super) fn line(&self, took: Duration, is_dry: bool) -> String {
        let (copied, bytes) = (HumanCount(self.copied), BinaryBytes(self.bytes));
        let kept = match self.kept {
            0 => String::new(),
            kept => format!(", {} are there already", HumanCount(kept)),
        };
        if is_dry {
            return format!("{copied} objects with {bytes} would be copied{kept}");
        }
        let resumed = match self.resumed {
            0 => String::new(),
            resumed => format!(" ({} by an earlier run)", BinaryBytes(resumed)),
        };
        format!("{copied} objects with {bytes} copied{resumed}{kept}, in {:.1} s", took.as_secs_f64())
    }

    /// What else the user should know.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unproven = "keep no checksum that can be compared: only their lengths were";
        let untagged = "were copied without tags: the credentials need s3:GetObjectTagging to read them";
        [(self.unproven, unproven), (self.untagged, untagged)]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, text)| format!("{} objects {text}", HumanCount(count)))
            .collect()
    }
}

/// The progress bar on the terminal. It shows nothing if standard error is not a terminal.
pub(super) struct Bar {
    shown: ProgressBar,
    sum: Mutex<Sum>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let style = "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(style).expect("a template that is right");
        Self { shown: ProgressBar::new(0).with_style(style), sum: Mutex::default() }
    }

    /// An object of so many bytes is going to be copied.
    pub(super) fn plan(&self, bytes: u64) {
        self.shown.inc_length(bytes);
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.shown.inc(bytes);
    }

    /// Prints a line of the result.
    pub(super) fn say(&self, line: &str) {
        self.shown.suspend(|| terminal::result(line));
    }

    pub(super) fn count(&self, note: impl FnOnce(&mut Sum)) {
        note(&mut self.sum.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// An object was not copied.
    pub(super) fn fail(&self, error: &anyhow::Error) {
        let mut failed = 0;
        self.count(|sum| {
            sum.failed += 1;
            failed = sum.failed;
        });
        if failed <= MOST_TOLD {
            self.shown.suspend(|| terminal::notice(&format!("{error:#}")));
        }
    }

    /// Takes the bar off the terminal.
    pub(super) fn finish(&self) -> Sum {
        self.shown.finish_and_clear();
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
