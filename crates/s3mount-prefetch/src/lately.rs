//! Files that were closed a moment ago. Loaders that open a file anew for each sample go on where they were.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::ObjectReader;
use crate::sync::{Mutex, lock};

/// How many closed files are remembered: their streams take a few KiB each, and at most 20 KiB. The bytes that
/// they hold are the first to go when others need memory.
const MOST_CLOSED: usize = 256;

/// For how many ticks of the housekeeper a closed file is remembered: a loader comes back to a shard within one
/// or a few steps of its training.
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
        // A reader that goes cancels its GETs: no lock may be held.
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

/// A handle of an open file on the reader of its version. When the last one is dropped, the file is closed.
///
/// The GETs ahead of a file that was closed are given up, and its memory is given back. But who opens a file again within
/// seconds, and goes on where he was, is expected to do so again and again: what is ahead of the streams stays.
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
