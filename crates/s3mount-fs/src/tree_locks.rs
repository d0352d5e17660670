//! Which names are being changed, and which folders are being renamed.
//!
//! The kernel locks the folder in which a name is changed, and not the folders below one that is renamed. So
//! without these locks a file could be made in a folder while its objects move. A change of a name waits while a
//! folder around the name moves, and a folder moves once no name below it is being changed.
//!
//! Nobody may hold one of these locks while he waits for another: what he needs, he takes at once.

use std::collections::BTreeMap;
use std::pin::pin;

use tokio::sync::Notify;

use crate::sync::{Mutex, MutexGuard, lock};

/// The locks of one mount.
#[derive(Debug, Default)]
pub(crate) struct TreeLocks {
    state: Mutex<State>,
    /// Notified when something was let go.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The paths of names that are being changed, each with a `/` behind it, and by how many.
    names: BTreeMap<String, usize>,
    /// The prefixes of folders that are being renamed, or that others get their names from.
    trees: Vec<String>,
}

impl State {
    /// Whether a path with a `/` behind it lies in a tree that moves.
    fn is_moving(&self, path: &str) -> bool {
        self.trees.iter().any(|tree| path.starts_with(&**tree))
    }

    /// Whether a tree overlaps with one that moves.
    fn overlaps(&self, tree: &str) -> bool {
        self.trees.iter().any(|other| tree.starts_with(&**other) || other.starts_with(tree))
    }

    fn has_names_below(&self, tree: &str) -> bool {
        self.names.range(tree.to_owned()..).next().is_some_and(|(path, _)| path.starts_with(tree))
    }
}

/// Names that stay in their places until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct NamesGuard<'a> {
    locks: &'a TreeLocks,
    paths: Vec<String>,
}

/// Trees in which no name changes until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct TreesGuard<'a> {
    locks: &'a TreeLocks,
    trees: [String; 2],
}

impl TreeLocks {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until `take` succeeds.
    async fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(taken) = take(&mut self.lock()) {
                return taken;
            }
            changed.await;
        }
    }

    /// Waits until no folder around these names (a prefix and a name in it) is being renamed.
    pub(crate) async fn hold_names(&self, names: &[(&str, &str)]) -> NamesGuard<'_> {
        let paths: Vec<String> = names.iter().map(|(prefix, name)| format!("{prefix}{name}/")).collect();
        self.wait(|state| {
            if paths.iter().any(|path| state.is_moving(path)) {
                return None;
            }
            for path in &paths {
                *state.names.entry(path.clone()).or_default() += 1;
            }
            Some(())
        })
        .await;
        NamesGuard { locks: self, paths }
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
        let is_free = |state: &mut State| {
            let has_names = guard.trees.iter().any(|tree| state.has_names_below(tree));
            (!has_names).then_some(())
        };
        self.wait(is_free).await;
        guard
    }
}

impl Drop for NamesGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.lock();
        for path in &self.paths {
            if let Some(count) = state.names.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    state.names.remove(path);
                }
            }
        }
        let has_waiting = !state.trees.is_empty();
        drop(state);
        if has_waiting {
            self.locks.changed.notify_waiters();
        }
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
        assert!(hold("a/b/", "g").is_none(), "nobody comes in meanwhile");
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
}
