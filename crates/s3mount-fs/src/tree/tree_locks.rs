//! Locks for names that are being changed, and for folders that are being renamed.
//!
//! The kernel locks the folder in which a name is changed, and not the folders below one that is renamed. So
//! without these locks a file could be made in a folder while its objects move. A change of a name waits while a
//! folder around the name moves, and a folder moves once no name below it is being changed.
//!
//! Nor does the kernel lock the folder of a file that is opened. So a change of what a name refers to, an open for
//! writing included, locks the name exclusively: no draft begins of a file that is being removed. A publication only
//! keeps the file in its place.
//!
//! No caller may hold one of these locks while it waits for another: it takes all that it needs at once.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use tokio::sync::Notify;

use crate::sync::{Mutex, MutexGuard, lock};

/// The locks of one mount.
#[derive(Debug, Default)]
pub(crate) struct TreeLocks {
    state: Mutex<LockTable>,
    /// Notified when a lock is released.
    changed: Notify,
}

#[derive(Debug, Default)]
struct LockTable {
    /// The paths of names that must stay in their places, each followed by a `/`, and the number of holders.
    places: BTreeMap<String, usize>,
    /// Those of them that a holder changes.
    names: BTreeSet<String>,
    /// The prefixes of folders that are being renamed, and of their new names.
    trees: Vec<String>,
}

impl LockTable {
    /// Whether a path, followed by a `/`, lies in a tree that moves.
    fn is_moving(&self, path: &str) -> bool {
        self.trees.iter().any(|tree| path.starts_with(&**tree))
    }

    /// Whether a tree overlaps with one that moves.
    fn overlaps(&self, tree: &str) -> bool {
        self.trees.iter().any(|other| tree.starts_with(&**other) || other.starts_with(tree))
    }

    fn has_names_below(&self, tree: &str) -> bool {
        self.places.range(tree.to_owned()..).next().is_some_and(|(path, _)| path.starts_with(tree))
    }
}

/// Names that stay in their places until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct NamesGuard<'a> {
    locks: &'a TreeLocks,
    paths: Vec<String>,
    /// Whether the lock excludes other changes of what the names refer to.
    is_alone: bool,
}

/// Trees in which no name changes until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct TreesGuard<'a> {
    locks: &'a TreeLocks,
    trees: [String; 2],
}

impl TreeLocks {
    fn lock(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.state)
    }

    /// Waits until `take` succeeds.
    async fn wait<T>(&self, mut take: impl FnMut(&mut LockTable) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(taken) = take(&mut self.lock()) {
                return taken;
            }
            changed.await;
        }
    }

    /// Waits until no folder above these names (a prefix and a name in it) is being renamed, and no other caller
    /// changes what they refer to.
    pub(crate) async fn hold_names(&self, names: &[(&str, &str)]) -> NamesGuard<'_> {
        self.hold(names, true).await
    }

    /// Waits until no folder above this name (a prefix and a name in it) is being renamed.
    pub(crate) async fn hold_place(&self, name: (&str, &str)) -> NamesGuard<'_> {
        self.hold(&[name], false).await
    }

    async fn hold(&self, names: &[(&str, &str)], is_alone: bool) -> NamesGuard<'_> {
        let mut paths: Vec<String> = names.iter().map(|(prefix, name)| format!("{prefix}{name}/")).collect();
        paths.dedup();
        self.wait(|state| {
            let is_taken = |path: &String| state.is_moving(path) || (is_alone && state.names.contains(path));
            if paths.iter().any(is_taken) {
                return None;
            }
            for path in &paths {
                *state.places.entry(path.clone()).or_default() += 1;
                if is_alone {
                    state.names.insert(path.clone());
                }
            }
            Some(())
        })
        .await;
        NamesGuard { locks: self, paths, is_alone }
    }

    /// Goes on with holding two trees that were [left](TreesGuard::leave).
    pub(crate) fn adopt(&self, trees: [String; 2]) -> TreesGuard<'_> {
        TreesGuard { locks: self, trees }
    }

    /// Waits until no name in these two trees is being changed, and none of them is being renamed.
    pub(crate) async fn hold_trees(&self, trees: [String; 2]) -> TreesGuard<'_> {
        self.wait(|state| {
            if trees.iter().any(|tree| state.overlaps(tree)) {
                return None;
            }
            state.trees.extend(trees.iter().cloned());
            Some(())
        })
        .await;
        let guard = TreesGuard { locks: self, trees };
        let is_free = |state: &mut LockTable| {
            let has_names = guard.trees.iter().any(|tree| state.has_names_below(tree));
            (!has_names).then_some(())
        };
        self.wait(is_free).await;
        guard
    }
}

impl TreesGuard<'_> {
    /// Holds the trees until somebody [adopts](TreeLocks::adopt) them.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for NamesGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.lock();
        for path in &self.paths {
            if self.is_alone {
                state.names.remove(path);
            }
            if let Some(count) = state.places.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    state.places.remove(path);
                }
            }
        }
        drop(state);
        self.locks.changed.notify_waiters();
    }
}

impl Drop for TreesGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.lock();
        for tree in &self.trees {
            if let Some(index) = state.trees.iter().position(|known| known == tree) {
                state.trees.swap_remove(index);
            }
        }
        drop(state);
        self.locks.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;

    use super::TreeLocks;

    fn trees() -> [String; 2] {
        ["a/b/".to_owned(), "c/".to_owned()]
    }

    #[test]
    fn names_wait_for_trees_and_trees_for_names() {
        let locks = TreeLocks::default();
        let hold = |prefix, name| locks.hold_names(&[(prefix, name)]).now_or_never();
        let below = hold("a/b/x/", "f").expect("nothing moves");
        let beside = hold("a/", "bb").expect("nothing moves");
        let mut moving = pin!(locks.hold_trees(trees()));
        assert!(moving.as_mut().now_or_never().is_none(), "a name below is being changed");
        assert!(hold("a/b/", "g").is_none(), "no other change begins meanwhile");
        drop(below);
        let guard = moving.now_or_never().expect("only names beside it are being changed");
        for (prefix, name) in [("a/", "b"), ("a/b/", "g"), ("", "c"), ("c/d/", "e")] {
            assert!(hold(prefix, name).is_none(), "{prefix}{name}");
        }
        assert!(hold("a/", "c").is_some() && hold("", "a").is_some());
        assert!(locks.hold_trees(["a/".to_owned(), "z/".to_owned()]).now_or_never().is_none());
        drop((guard, beside));
        assert!(hold("a/b/", "g").is_some());
        assert!(locks.hold_trees(trees()).now_or_never().is_some());
    }

    #[test]
    fn one_at_a_time_changes_a_name_and_who_publishes_keeps_nobody_waiting() {
        let locks = TreeLocks::default();
        let alone = locks.hold_names(&[("a/", "b"), ("a/", "b")]).now_or_never().expect("no other holder");
        let place = locks.hold_place(("a/", "b")).now_or_never().expect("nothing moves");
        let mut next = pin!(locks.hold_names(&[("", "c"), ("a/", "b")]));
        assert!(next.as_mut().now_or_never().is_none());
        assert!(locks.hold_names(&[("", "c")]).now_or_never().is_some(), "it takes both names or none");
        drop(alone);
        let next = next.now_or_never().expect("a place is no change");
        let mut moving = pin!(locks.hold_trees(trees()));
        drop(next);
        assert!(moving.as_mut().now_or_never().is_none(), "a name below stays in its place");
        drop(place);
        assert!(moving.now_or_never().is_some());
    }
}
