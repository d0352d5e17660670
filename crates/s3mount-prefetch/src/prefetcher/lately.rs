//! Files that were closed a moment ago. A loader that opens a file anew for each sample continues where it stopped.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::ObjectReader;
use crate::sync::{Mutex, lock};

/// The number of closed files that are remembered. The streams of each take a few KiB, at most 20 KiB. The bytes that
/// these files hold are the first to be dropped when others need memory.
const MOST_CLOSED: usize = 256;

/// The ticks of the housekeeper for which a closed file is remembered: a loader comes back to a shard within one or a
/// few training steps.
const REMEMBERED_TICKS: u32 = 10;

/// The readers of files that were closed a moment ago, the latest last.
#[derive(Debug, Default)]
pub(crate) struct LatelyClosed {
    closed: Mutex<VecDeque<Closed>>,
}

#[derive(Debug)]
struct Closed {
    reader: Arc<ObjectReader>,
    ticks: u32,
}

impl LatelyClosed {
    /// Remembers the reader of a file that was closed.
    fn remember(&self, reader: &Arc<ObjectReader>) {
        let mut closed = lock(&self.closed);
        if let Some(before) = closed.iter().position(|before| Arc::ptr_eq(&before.reader, reader)) {
            closed.remove(before);
        }
        closed.push_back(Closed { reader: reader.clone(), ticks: 0 });
        let oldest = if closed.len() > MOST_CLOSED { closed.pop_front() } else { None };
        // Dropping a reader cancels its GETs: no lock may be held.
        drop(closed);
        drop(oldest);
    }

    /// Called by the housekeeper once a second.
    pub(crate) fn tick(&self) {
        let mut closed = lock(&self.closed);
        closed.iter_mut().for_each(|closed| closed.ticks += 1);
        let kept = closed.iter().position(|closed| closed.ticks < REMEMBERED_TICKS).unwrap_or(closed.len());
        let gone: Vec<Closed> = closed.drain(..kept).collect();
        drop(closed);
        drop(gone);
    }
}

/// An open file's handle on the reader of its version. Dropping the last handle closes the file.
///
/// Closing a file cancels its GETs and gives its memory back. But a program that reopens a file within seconds,
/// and continues where it stopped, is expected to do so again: then the bytes ahead of the streams stay.
///
/// **Invariant**: nobody waits for a read through a handle that is dropped. The kernel closes a file once it has the answers
/// of all its reads, and the caller of a read that still waits here was killed, and answered at once. Who reads a version
/// without a handle says so ([`ObjectReader::read_without_handle`]).
#[derive(Debug)]
pub struct OpenReader {
    reader: Arc<ObjectReader>,
    lately: Weak<LatelyClosed>,
}

impl OpenReader {
    pub(crate) fn new(reader: Arc<ObjectReader>, lately: &Arc<LatelyClosed>) -> Self {
        reader.on_open();
        Self { reader, lately: Arc::downgrade(lately) }
    }
}

impl std::ops::Deref for OpenReader {
    type Target = Arc<ObjectReader>;

    fn deref(&self) -> &Arc<ObjectReader> {
        &self.reader
    }
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        if self.reader.on_close()
            && let Some(lately) = self.lately.upgrade()
        {
            lately.remember(&self.reader);
        }
    }
}
