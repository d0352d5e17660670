//! Execute permissions, on mounts that keep no attributes.
//!
//! Installers, compilers and `git` set the execute bits of a file, and then run it. Objects have no such bits, so this
//! mount remembers them until it ends. They are valid for versions that this mount has written, and for those for which
//! a program has set them: a version that another client writes under such a name may not be run.

use std::collections::HashMap;
use std::sync::OnceLock;

use s3mount_object::{ETag, ObjectId};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// How many files a generation has. Two of them take some megabytes at most.
const GENERATION: usize = 8192;

/// The execute bits.
const RUN: u32 = 0o111;

/// The execute bits of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The bits.
    pub(crate) run: u32,
    /// The version for which a program has set them. Unset for a file that was being written.
    pub(crate) version: Option<ETag>,
}

impl Mode {
    /// Whether the bits are valid for a version, which this mount may have written.
    pub(crate) fn is_of(&self, version: &ObjectId, is_written_here: impl FnOnce() -> bool) -> bool {
        self.version.as_ref() == Some(version.etag()) || is_written_here()
    }

    /// The permissions of the file, where other files have `file_mode`: only users who may read it may run it.
    pub(crate) fn shown(&self, file_mode: u16) -> u16 {
        let readers = (file_mode & 0o444) >> 2;
        // The bits fit.
        file_mode | self.run as u16 & readers
    }
}

/// Files by key: the recent generation, and the one before.
type Generations = [HashMap<Box<str>, Mode>; 2];

/// Is told of a file's execute bits, or that it has none any more.
type Tell = Box<dyn Fn(&str, Option<&Mode>) + Send + Sync>;

/// The files with execute bits. While there are none, a look-up costs one load.
#[derive(Default)]
pub(crate) struct Modes {
    has_any: AtomicBool,
    generations: Mutex<Generations>,
    tell: OnceLock<Tell>,
}

impl std::fmt::Debug for Modes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Modes").field("generations", &self.generations).finish_non_exhaustive()
    }
}

impl Modes {
    /// Has `tell` told of each change. It can be set once.
    pub(crate) fn tell(&self, tell: impl Fn(&str, Option<&Mode>) + Send + Sync + 'static) {
        // A second one changes nothing.
        let _ = self.tell.set(Box::new(tell));
    }

    /// Takes over a note of the daemon before. The oldest is to be the first.
    pub(crate) fn restore(&self, key: &str, mode: Mode) {
        self.insert_noted(&mut lock(&self.generations), key, mode);
        self.has_any.store(true, Ordering::Relaxed);
    }

    fn insert(&self, generations: &mut Generations, key: &str, mode: Mode) {
        self.note(key, Some(&mode));
        self.insert_noted(generations, key, mode);
    }

    fn insert_noted(&self, generations: &mut Generations, key: &str, mode: Mode) {
        let [young, old] = generations;
        old.remove(key);
        if young.len() >= GENERATION {
            let forgotten = std::mem::replace(old, std::mem::take(young));
            forgotten.keys().for_each(|key| self.note(key, None));
        }
        young.insert(key.into(), mode);
    }

    fn remove_from(&self, generations: &mut Generations, key: &str) -> Option<Mode> {
        let [young, old] = generations;
        let removed = young.remove(key).or_else(|| old.remove(key))?;
        self.note(key, None);
        Some(removed)
    }

    fn note(&self, key: &str, mode: Option<&Mode>) {
        self.tell.get().into_iter().for_each(|tell| tell(key, mode));
    }

    /// The files, unless there are none.
    fn lock(&self) -> Option<MutexGuard<'_, Generations>> {
        self.has_any.load(Ordering::Relaxed).then(|| lock(&self.generations))
    }

    /// Notes the permissions that a program sets for the file at `key`, which is this `version` unless it is being
    /// written.
    pub(crate) fn set(&self, key: &str, permissions: u32, version: Option<&ETag>) {
        let run = permissions & RUN;
        if run == 0 {
            self.remove(key);
            return;
        }
        self.insert(&mut lock(&self.generations), key, Mode { run, version: version.cloned() });
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// The execute bits of the file at `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Mode> {
        let generations = self.lock()?;
        generations.iter().find_map(|files| files.get(key)).cloned()
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Relaxed)
    }

    /// Forgets the file at `key`.
    pub(crate) fn remove(&self, key: &str) {
        if let Some(mut generations) = self.lock() {
            self.remove_from(&mut generations, key);
        }
    }

    /// Moves the file at `from` to `to`.
    pub(crate) fn rename(&self, from: &str, to: &str) {
        let Some(mut generations) = self.lock() else { return };
        match self.remove_from(&mut generations, from) {
            Some(mode) => self.insert(&mut generations, to, Mode { version: None, ..mode }),
            None => drop(self.remove_from(&mut generations, to)),
        }
    }

    /// Moves all files below the prefix `from` to the prefix `to`.
    pub(crate) fn move_below(&self, from: &str, to: &str) {
        let Some(mut generations) = self.lock() else { return };
        for files in &mut *generations {
            let moved: Vec<_> = files.extract_if(|key, _| key.starts_with(from)).collect();
            files.extend(moved.into_iter().map(|(old, mode)| {
                let (key, mode) = (format!("{to}{}", &old[from.len()..]), Mode { version: None, ..mode });
                self.note(&old, None);
                self.note(&key, Some(&mode));
                (key.into(), mode)
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, ObjectId};

    use super::{GENERATION, Modes};

    #[test]
    fn files_keep_who_may_run_them() {
        let modes = Modes::default();
        assert!(modes.is_empty() && modes.get("a").is_none());
        modes.set("a", 0o644, None);
        assert!(modes.is_empty(), "there is nothing to remember");
        modes.set("a", 0o100_755, None);
        let shown = |key: &str, mode| modes.get(key).map(|known| known.shown(mode));
        assert_eq!((shown("a", 0o644), shown("a", 0o600)), (Some(0o755), Some(0o700)));
        modes.set("a", 0o700, None);
        assert_eq!(shown("a", 0o644), Some(0o744));
        modes.rename("a", "d/b");
        modes.set("e", 0o755, None);
        modes.rename("x", "e");
        modes.move_below("d/", "f/");
        assert_eq!((shown("a", 0o644), shown("e", 0o644), shown("d/b", 0o644)), (None, None, None));
        assert_eq!(shown("f/b", 0o644), Some(0o744));
        modes.remove("f/b");
        assert_eq!(shown("f/b", 0o644), None);
    }

    #[test]
    fn what_a_stranger_writes_may_not_be_run() {
        let modes = Modes::default();
        let version = |etag: &str| ObjectId::new("a", ETag::new(etag));
        modes.set("a", 0o755, Some(&ETag::new("1")));
        let mode = modes.get("a").expect("it was set");
        assert!(mode.is_of(&version("1"), || false));
        assert!(!mode.is_of(&version("2"), || false));
        assert!(mode.is_of(&version("2"), || true), "this mount has written it");
    }

    #[test]
    fn the_files_of_late_are_remembered() {
        let modes = Modes::default();
        (0..3 * GENERATION).for_each(|index| modes.set(&index.to_string(), 0o755, None));
        assert!((2 * GENERATION..3 * GENERATION).all(|index| modes.get(&index.to_string()).is_some()));
        assert!(modes.get("0").is_none(), "it is bounded");
    }
}
