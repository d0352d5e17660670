//! Tables of open files and open directories.

use std::collections::HashMap;

use crate::numbers::FileHandle;
use crate::sync::{AtomicU64, Ordering, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Open files or directories, by handle. No handle is used twice.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    next: AtomicU64,
    open: RwLock<HashMap<FileHandle, T>>,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), open: RwLock::default() }
    }
}

impl<T: Clone> HandleTable<T> {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<FileHandle, T>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<FileHandle, T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `opened` a handle.
    pub(crate) fn insert(&self, opened: T) -> FileHandle {
        let handle = FileHandle(self.next.fetch_add(1, Ordering::Relaxed));
        self.write().insert(handle, opened);
        handle
    }

    /// The handles count up from `first`.
    pub(crate) fn begin_at(&self, first: FileHandle) {
        self.next.store(first.0, Ordering::Relaxed);
    }

    /// Gives `opened` the handle that the kernel has for it.
    pub(crate) fn insert_at(&self, handle: FileHandle, opened: T) {
        self.write().insert(handle, opened);
    }

    /// The entry of a handle.
    pub(crate) fn get(&self, handle: FileHandle) -> Option<T> {
        self.read().get(&handle).cloned()
    }

    /// Removes a handle. The caller drops the entry without the table's lock.
    pub(crate) fn remove(&self, handle: FileHandle) -> Option<T> {
        self.write().remove(&handle)
    }

    /// Whether `is_it` holds for any entry.
    pub(crate) fn any(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.read().values().any(is_it)
    }

    /// The results of `map` for the entries.
    pub(crate) fn filter_map<U, C: FromIterator<U>>(&self, map: impl Fn(&T) -> Option<U>) -> C {
        self.read().values().filter_map(map).collect()
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }
}
