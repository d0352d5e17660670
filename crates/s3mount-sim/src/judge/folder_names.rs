//! The folders of the model: their names, and how these change.

use std::collections::BTreeMap;

use crate::history::{Name, Target};

/// The folders of the model.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// By their paths. What they stand for are numbers of folders.
    pub(super) names: BTreeMap<String, Name>,
    pub(super) moves: Vec<Move>,
    pub(super) made: usize,
    /// The folders that have objects of their own.
    pub(super) marked: Vec<usize>,
}

/// A folder gets another name.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) asked: u64,
    pub(super) answered: u64,
}

/// A change of a folder that is asked for.
#[derive(Debug)]
pub struct FolderChange {
    pub(super) asked: u64,
    pub(super) mount: usize,
    /// The folder.
    pub(super) path: String,
    /// Its new name, if it gets one.
    pub(super) to: Option<String>,
    pub(super) changes: Vec<(String, usize)>,
}

/// The folder of a path. The root has no name.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The last name of a path.
pub(super) fn last_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

impl Folders {
    /// The folders that these keys lie in. The keys are sorted.
    pub(super) fn of<'a>(keys: impl Iterator<Item = &'a str>) -> Self {
        let mut folders = Self::default();
        for key in keys {
            let folder = folder_of(key);
            if !folder.is_empty() && !folders.names.contains_key(folder) {
                folders.made += 1;
                folders.names.insert(folder.to_owned(), Name::of(folders.made));
                if key.ends_with('/') {
                    folders.marked.push(folders.made);
                }
            }
        }
        folders
    }

    pub(super) fn targets(&self, path: &str, from: u64, to: u64) -> Vec<Target> {
        match self.names.get(path) {
            _ if path.is_empty() => vec![Target::File(0)],
            Some(name) => name.targets(from, to),
            None => vec![Target::Nothing],
        }
    }

    /// Whether a folder may have another name, or be another folder, at some time between two moments.
    pub(super) fn is_moving(&self, path: &str, from: u64, to: u64) -> bool {
        self.names.get(path).is_some_and(|name| name.may_change(from, to))
    }

    /// The moves of a folder between two moments.
    pub(super) fn moves<'a>(&'a self, path: &'a str, from: u64, to: u64) -> impl Iterator<Item = &'a Move> {
        let is_then = move |of: &&Move| of.asked <= to && of.answered >= from;
        self.moves.iter().filter(move |of| (of.from == path || of.to == path) && is_then(of))
    }

    pub(super) fn end(&mut self, asked: u64, now: u64, is_done: bool) {
        match is_done {
            true => {
                self.moves.iter_mut().filter(|of| of.asked == asked).for_each(|of| of.answered = now);
            }
            false => self.moves.retain(|of| of.asked != asked),
        }
    }
}
