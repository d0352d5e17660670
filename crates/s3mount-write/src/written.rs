//! Which versions were written here, so that a file can be told from one that somebody else has written.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use s3mount_object::ObjectId;

/// How many versions a generation has. A program that writes a file under one name and renames it then does so at
/// once, so this is for thousands of programs. Two generations take about a megabyte.
const GENERATION: usize = 32_768;

/// Notes for another process which versions were written here.
pub trait WrittenNotes: std::fmt::Debug + Send + Sync {
    /// What a version is known by. Another process has to find the same.
    fn hash(&self, version: &ObjectId) -> u64;

    /// A version was written that is known by this.
    fn note(&self, hash: u64);
}

/// The versions that were written last, by their hashes: those of late, and those before.
#[derive(Debug)]
pub(crate) struct WrittenVersions {
    hasher: RandomState,
    notes: OnceLock<Arc<dyn WrittenNotes>>,
    generations: Mutex<[HashSet<u64>; 2]>,
}

impl Default for WrittenVersions {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "keys that are chosen to collide must not; no order shows"
        )]
        let hasher = RandomState::new();
        Self { hasher, notes: OnceLock::new(), generations: Mutex::default() }
    }
}

impl WrittenVersions {
    fn hash(&self, version: &ObjectId) -> u64 {
        let random = || self.hasher.hash_one((version.key(), version.etag().as_str()));
        self.notes.get().map_or_else(random, |notes| notes.hash(version))
    }

    /// Has each version noted from now on. To be called before the first.
    pub(crate) fn keep(&self, notes: Arc<dyn WrittenNotes>) {
        // A second one is told of nothing.
        let _ = self.notes.set(notes);
    }

    /// Notes that a version was written here.
    pub(crate) fn note(&self, version: &ObjectId) {
        let hash = self.hash(version);
        self.insert(hash);
        self.notes.get().into_iter().for_each(|notes| notes.note(hash));
    }

    /// Notes what a version is known by that another process has written for this one.
    pub(crate) fn insert(&self, hash: u64) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let [young, old] = &mut *generations;
        if young.len() >= GENERATION {
            *old = std::mem::take(young);
        }
        young.insert(hash);
    }

    /// Whether a version was written here, as far as that is remembered.
    pub(crate) fn has(&self, version: &ObjectId) -> bool {
        let hash = self.hash(version);
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.iter().any(|versions| versions.contains(&hash))
    }
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, ObjectId};

    use super::{GENERATION, WrittenVersions};

    #[test]
    fn what_was_written_last_is_known() {
        let written = WrittenVersions::default();
        let version = |index: usize| ObjectId::new(&index.to_string(), ETag::new("e"));
        (0..3 * GENERATION).for_each(|index| written.note(&version(index)));
        assert!((2 * GENERATION..3 * GENERATION).all(|index| written.has(&version(index))));
        assert!(!written.has(&version(0)), "it is bounded");
        assert!(!written.has(&ObjectId::new(&(3 * GENERATION - 1).to_string(), ETag::new("f"))));
    }
}
