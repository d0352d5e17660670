//! Folders that stay although they may hold no object.
//!
//! A folder stays when this mount deletes or moves its last file, as on any file system: its program goes on using it.
//! The store does not have the folder then, and whether other clients have left objects there is unknown. So the folder
//! is noted, with those above it. A listing that was requested after the change and shows the folder ends that: from
//! then on the folder exists as long as the store has an object in it. Other folders stay until they are removed, or
//! until too many are noted.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::folder_listener::FolderNote;
use super::{Change, Folders, Names, Overlay, has_local, names_of};
use crate::name::{NamedDraft, split_key};
use crate::pages::page::Page;
use crate::sync::Ordering;

/// The memory of a name in a B-tree, in bytes: a third of a node is empty, as a rule.
const fn name_bytes<D>() -> usize {
    size_of::<(Box<str>, (Change<D>, Instant))>() * 3 / 2
}

/// The memory of a folder besides its names, in bytes: a node has room for eleven.
const fn folder_bytes<D>() -> usize {
    size_of::<(Arc<str>, Names<D>)>() * 3 / 2 + 10 * size_of::<(Box<str>, (Change<D>, Instant))>()
}

/// A folder from which this mount removes names, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Emptying<'a, D: NamedDraft> {
    overlay: &'a Overlay<D>,
    root: &'a str,
    prefix: Arc<str>,
}

impl<D: NamedDraft> Drop for Emptying<'_, D> {
    fn drop(&mut self) {
        let (mut folders, now) = (self.overlay.lock(), Instant::now());
        for (parent, name) in around(self.root, &self.prefix) {
            let known = folders.get_mut(parent).and_then(|names| names.get_mut(name));
            if let Some((Change::Emptied(by), since)) = known {
                // A listing that was requested before may show names that are gone by now.
                (*by, *since) = (by.saturating_sub(1), now);
            }
        }
    }
}

/// The folder `prefix` and those above it below the `root`, each as its parent's prefix and its name.
pub(crate) fn around<'a>(root: &'a str, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut folder = prefix;
    std::iter::from_fn(move || {
        if folder.len() <= root.len() {
            return None;
        }
        let (parent, name) = split_key(&folder[..folder.len() - 1]);
        folder = parent;
        Some((parent, name))
    })
}

impl<D: NamedDraft> Overlay<D> {
    /// Believes no more that the store has the folder `name` in the folder `prefix` because this mount has moved it there.
    pub(crate) fn forget_stored(&self, prefix: &str, name: &str) {
        if let Some(names) = self.lock().get_mut(prefix)
            && matches!(names.get(name), Some((Change::Stored, _)))
        {
            names.remove(name);
        }
    }

    /// Notes that names were removed from the folder `name` in the folder `prefix` by a daemon before.
    pub(crate) fn note_emptied(&self, prefix: &str, name: &str) {
        let mut folders = self.lock();
        names_of(&mut folders, prefix).insert(name.into(), (Change::Emptied(0), Instant::now()));
        self.listener.tell(prefix, name, Some(FolderNote::Emptied));
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Notes that names are being removed from the folder `prefix`, which lies below the `root`.
    pub(crate) fn emptying<'a>(&'a self, root: &'a str, prefix: Arc<str>) -> Emptying<'a, D> {
        let (mut folders, now) = (self.lock(), Instant::now());
        for (parent, name) in around(root, &prefix) {
            let names = names_of(&mut folders, parent);
            let by = match names.get(name) {
                Some((Change::Draft(_), _)) => continue,
                Some((Change::Emptied(by), _)) => *by,
                _ => 0,
            };
            names.insert(name.into(), (Change::Emptied(by + 1), now));
            self.listener.tell(parent, name, Some(FolderNote::Emptied));
        }
        self.has_any.store(!folders.is_empty(), Ordering::Relaxed);
        drop(folders);
        Emptying { overlay: self, root, prefix }
    }

    /// Forgets those of the folders `names` in the folder `prefix` that a page shows. A folder with drafts or folders
    /// of this mount stays noted.
    pub(super) fn leave_to_store(
        &self,
        folders: &mut Folders<D>,
        prefix: &str,
        page: &Page,
        mut names: Vec<Box<str>>,
    ) {
        names.retain(|name| {
            let folder = format!("{name}/");
            page.find(&folder).is_some() && !has_local(folders, &format!("{prefix}{folder}"))
        });
        if let Some(known) = folders.get_mut(prefix) {
            for name in names {
                known.remove(&name);
                self.listener.tell(prefix, &name, None);
            }
        }
    }

    /// Forgets the folders that were emptied longest ago, if all of them take more than `most` bytes.
    pub(super) fn drop_oldest(&self, folders: &mut Folders<D>, most: usize) {
        let all = emptied_bytes(folders);
        if all <= most {
            return;
        }
        let mut times: Vec<Instant> =
            folders.values().flat_map(BTreeMap::values).filter_map(emptied).collect();
        times.sort_unstable();
        // This forgets more than needed, so that the next folder need not sort them again.
        let count = times.len() - times.len() * (most / 8 * 7) / all;
        let Some(last) = count.checked_sub(1).and_then(|last| times.get(last)).copied() else { return };
        // Folders inside a folder are forgotten before it.
        let prefixes: Vec<Arc<str>> = folders.keys().rev().cloned().collect();
        for prefix in prefixes {
            let old = folders[&prefix].iter().filter(|(name, known)| {
                let is_old = emptied(known).is_some_and(|since| since <= last);
                is_old && !has_local(folders, &format!("{prefix}{name}/"))
            });
            let old: Vec<Box<str>> = old.map(|(name, _)| name.clone()).collect();
            if let Some(names) = folders.get_mut(&prefix) {
                for name in old {
                    names.remove(&name);
                    self.listener.tell(&prefix, &name, None);
                }
            }
        }
    }

    /// The memory of all changes, in bytes.
    pub(super) fn bytes(folders: &Folders<D>) -> usize {
        bytes_of(folders, |_| true)
    }
}

/// The time since which a folder may hold no object, if no names are being removed from it now.
fn emptied<D>((change, since): &(Change<D>, Instant)) -> Option<Instant> {
    matches!(change, Change::Emptied(0)).then_some(*since)
}

/// The memory of folders that were emptied, in bytes.
fn emptied_bytes<D>(folders: &Folders<D>) -> usize {
    bytes_of(folders, |known| emptied(known).is_some())
}

fn bytes_of<D>(folders: &Folders<D>, is_counted: impl Fn(&(Change<D>, Instant)) -> bool) -> usize {
    let of = |(prefix, names): (&Arc<str>, &Names<D>)| {
        let counted = names.iter().filter(|(_, known)| is_counted(known));
        let bytes: usize = counted.map(|(name, _)| name_bytes::<D>() + name.len()).sum();
        if bytes == 0 { 0 } else { folder_bytes::<D>() + prefix.len() + bytes }
    };
    folders.iter().map(of).sum()
}
