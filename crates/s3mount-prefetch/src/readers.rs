//! The versions that are open. Each has one reader, which all handles of the version share.

pub(crate) mod idle;
pub(crate) mod reclaim;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use s3mount_object::ObjectId;

use crate::readers::idle::IdleBooks;
use crate::readers::reclaim::ReclaimBooks;
use crate::sync::{Mutex, lock};

/// All readers of a mount, and the books of which of them could give back memory. `R` is a reader.
#[derive(Debug)]
pub(crate) struct Readers<R> {
    open: Mutex<HashMap<ObjectId, Weak<R>>>,
    pub(crate) books: ReclaimBooks<R>,
    pub(crate) idle: IdleBooks<R>,
}

impl<R> Default for Readers<R> {
    fn default() -> Self {
        Self { open: Mutex::default(), books: ReclaimBooks::default(), idle: IdleBooks::default() }
    }
}

impl<R> Readers<R> {
    /// The reader of the version `object`. If there is none, `make` makes it.
    pub(crate) fn get_or_insert(&self, object: &ObjectId, make: impl FnOnce() -> Arc<R>) -> Arc<R> {
        let mut open = lock(&self.open);
        if let Some(reader) = open.get(object).and_then(Weak::upgrade) {
            return reader;
        }
        let reader = make();
        open.insert(object.clone(), Arc::downgrade(&reader));
        reader
    }

    /// Forgets the reader of `object`, which is being dropped.
    pub(crate) fn forget(&self, object: &ObjectId) {
        let mut open = lock(&self.open);
        // Another reader of the same version may have been opened meanwhile.
        if open.get(object).is_some_and(|reader| reader.strong_count() == 0) {
            open.remove(object);
        }
    }

    /// Forgets `reader`, which can no longer read `object`: the next open gets a new one.
    pub(crate) fn replace(&self, object: &ObjectId, reader: &Weak<R>) {
        let mut open = lock(&self.open);
        if open.get(object).is_some_and(|known| known.ptr_eq(reader)) {
            open.remove(object);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<R>> {
        lock(&self.open).values().filter_map(Weak::upgrade).collect()
    }
}
