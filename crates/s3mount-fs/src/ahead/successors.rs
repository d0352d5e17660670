//! Predicts which large file is opened next. Its beginning may be fetched while the file before it is read to
//! its end.
//!
//! At each open, the reader is expected to read a later name of the folder next: the first that is not open, that no
//! other reader is expected to open, and that was not read since this reader began. So several readers may go through
//! one folder, each through its own names, or all through one queue.
//!
//! A right prediction earns the folder trust, and a wrong one costs it trust. A folder is trusted after the
//! first two opens in order, and no longer after two wrong predictions in a row. Predictions are checked at
//! each open, also while nothing is fetched.
//!
//! Pure, and bounded by [`FOLDERS`] and [`MOST_EXPECTED`].

use std::collections::VecDeque;
use std::sync::Arc;

use crate::open::open_clock::OpenClock;
use crate::sync::{Mutex, MutexGuard, lock};

/// How many folders are known. The one that was read least recently is dropped first.
const FOLDERS: usize = 64;

/// How many files of a folder are expected at a time: one for each reader, and some wrong ones.
const MOST_EXPECTED: usize = 64;

/// How many names after an open one are examined. As many readers may share one queue.
const MOST_BETWEEN: usize = 64;

/// The least and the most trust. Two wrong predictions in a row use up the most.
const TRUST: std::ops::RangeInclusive<i32> = -2..=2;

/// A file that is expected to be opened next.
#[derive(Debug)]
struct Expected<R> {
    name: Box<str>,
    /// The file before it.
    by: Box<str>,
    /// When its reader began in this folder.
    since: OpenClock,
    /// Set when the file before it is closed: the number of further opens after which the prediction counts as wrong.
    left: Option<usize>,
    /// The reader that keeps the prefetched bytes of the file.
    held: Option<R>,
}

#[derive(Debug)]
struct Folder<R> {
    prefix: Arc<str>,
    trust: i32,
    /// The open files, and when the reader of each began in this folder.
    open: Vec<(Box<str>, OpenClock)>,
    expected: VecDeque<Expected<R>>,
}

/// The known names of a folder.
pub(crate) trait FolderNames {
    /// Up to `count` names after `after`, in order.
    fn following(&self, after: &str, count: usize) -> Vec<Box<str>>;
    /// Whether `name` was opened after the time `since`.
    fn is_opened(&self, name: &str, since: OpenClock) -> bool;
}

/// The expected files, in all folders. While an `R` is held, the bytes that it fetched are kept.
#[derive(Debug)]
pub(crate) struct Successors<R>(Mutex<Vec<Folder<R>>>);

impl<R> Default for Successors<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R> Folder<R> {
    fn earn(&mut self, trust: i32) {
        self.trust = (self.trust + trust).clamp(*TRUST.start(), *TRUST.end());
    }

    fn is_open(&self, name: &str) -> bool {
        self.open.iter().any(|(open, _)| **open == *name)
    }

    fn is_followed(&self, name: &str) -> bool {
        self.expected.iter().any(|known| *known.by == *name)
    }

    /// When the reader of `name` began in this folder. The file is open or expected.
    fn since(&self, name: &str) -> Option<OpenClock> {
        let open = self.open.iter().find(|(open, _)| **open == *name).map(|(_, since)| *since);
        open.or_else(|| Some(self.expected.iter().find(|known| *known.name == *name)?.since))
    }

    /// Expects that the reader of `name`, which began at `since`, opens the next file.
    fn expect(&mut self, name: &str, since: OpenClock, names: &impl FolderNames) {
        let is_free = |next: &str| {
            !self.is_open(next)
                && self.expected.iter().all(|known| *known.name != *next)
                && !names.is_opened(next, since)
        };
        let Some(next) = names.following(name, MOST_BETWEEN).into_iter().find(|next| is_free(next)) else {
            return;
        };
        if self.expected.len() == MOST_EXPECTED {
            self.expected.pop_front();
        }
        self.expected.push_back(Expected { name: next, by: name.into(), since, left: None, held: None });
    }
}

impl<R> Successors<R> {
    fn lock(&self) -> MutexGuard<'_, Vec<Folder<R>>> {
        lock(&self.0)
    }

    /// Notes that `name` in the folder `prefix` was opened. `before` is the time just before this open.
    /// Returns readers that need no longer be held.
    pub(crate) fn on_open(
        &self,
        prefix: &Arc<str>,
        name: &str,
        before: OpenClock,
        names: &impl FolderNames,
    ) -> Vec<R> {
        let mut folders = self.lock();
        let mut folder = match folders.iter().position(|known| known.prefix == *prefix) {
            Some(index) => folders.remove(index),
            None => {
                let oldest = (folders.len() == FOLDERS).then_some(0);
                oldest.map(|oldest| folders.remove(oldest));
                Folder { prefix: prefix.clone(), trust: 0, open: Vec::new(), expected: VecDeque::new() }
            }
        };
        let is_open = folder.is_open(name);
        // The open files were opened earlier in the same pass.
        let mut since = before.earlier(folder.open.len());
        let mut done = Vec::new();
        if !is_open {
            let came = folder.expected.iter().position(|known| *known.name == *name);
            if let Some(came) = came.and_then(|index| folder.expected.remove(index)) {
                since = came.since;
                folder.earn(1);
                done.extend(came.held);
            }
            for known in &mut folder.expected {
                known.left = known.left.map(|left| left.saturating_sub(1));
            }
            let (wrong, kept): (VecDeque<_>, _) =
                folder.expected.drain(..).partition(|known| known.left == Some(0));
            folder.expected = kept;
            for known in wrong {
                folder.earn(-1);
                done.extend(known.held);
            }
            if !folder.is_followed(name) {
                folder.expect(name, since, names);
            }
        }
        folder.open.push((name.into(), since));
        folders.push(folder);
        done
    }

    /// Notes that `name` was closed: its reader is about to open the next file.
    pub(crate) fn on_close(&self, prefix: &str, name: &str) {
        let mut folders = self.lock();
        let Some(folder) = folders.iter_mut().find(|known| *known.prefix == *prefix) else { return };
        let Some(index) = folder.open.iter().position(|(open, _)| **open == *name) else { return };
        folder.open.swap_remove(index);
        if folder.is_open(name) {
            return;
        }
        // Other readers may open their next files first.
        let left = folder.open.len() + 1;
        for known in folder.expected.iter_mut().filter(|known| *known.by == *name) {
            known.left.get_or_insert(left);
        }
    }

    /// The file to fetch next, if the folder is trusted. `name` is read nearly to its end, or all of it is
    /// being fetched.
    pub(crate) fn after(&self, prefix: &str, name: &str, names: &impl FolderNames) -> Option<Box<str>> {
        let mut folders = self.lock();
        let folder = folders.iter_mut().find(|known| *known.prefix == *prefix)?;
        if folder.trust <= 0 {
            return None;
        }
        if !folder.is_followed(name) {
            // Another reader opened the file that this one was expected to open, or `name` itself is only expected.
            let since = folder.since(name)?;
            folder.expect(name, since, names);
        }
        let next = folder.expected.iter().find(|known| *known.by == *name && known.held.is_none())?;
        Some(next.name.clone())
    }

    /// Holds `reader` until `name` is opened or turns out to be wrong. Returns whether `name` is still
    /// expected.
    pub(crate) fn hold(&self, prefix: &str, name: &str, reader: R) -> bool {
        let mut folders = self.lock();
        let folder = folders.iter_mut().find(|known| *known.prefix == *prefix);
        let known = folder.and_then(|folder| folder.expected.iter_mut().find(|known| *known.name == *name));
        known.map(|known| known.held = Some(reader)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::{FolderNames, Successors};
    use crate::open::open_clock::OpenClock;

    /// A folder with a number of files, and the last open of each.
    struct Files(usize, RefCell<HashMap<Box<str>, OpenClock>>, RefCell<u32>);

    impl FolderNames for Files {
        fn following(&self, after: &str, count: usize) -> Vec<Box<str>> {
            let after: usize = after.parse().expect("a number");
            (after + 1..self.0).take(count).map(name).collect()
        }

        fn is_opened(&self, name: &str, since: OpenClock) -> bool {
            self.1.borrow().get(name).is_some_and(|at| at.since(since) > 0)
        }
    }

    fn name(index: usize) -> Box<str> {
        format!("{index:03}").into()
    }

    /// Readers that read their files one after another, all at the same pace. Returns how many files
    /// were opened, how many beginnings were fetched, and how many of these were of a file opened later.
    fn read(files: usize, readers: &[Vec<usize>]) -> (usize, usize, usize) {
        let folder = Files(files, RefCell::default(), RefCell::new(1));
        let (successors, prefix) = (Successors::<Box<str>>::default(), Arc::from("d/"));
        let (mut opened, mut fetched, mut right) = (0, 0, 0);
        for step in 0..readers[0].len() {
            for reader in readers {
                if step > 0 {
                    successors.on_close(&prefix, &name(reader[step - 1]));
                }
                let file = name(reader[step]);
                let before = OpenClock(*folder.2.borrow());
                *folder.2.borrow_mut() += 1;
                folder.1.borrow_mut().insert(file.clone(), OpenClock(before.0 + 1));
                right += usize::from(successors.on_open(&prefix, &file, before, &folder).contains(&file));
                opened += 1;
            }
            for reader in readers {
                if let Some(next) = successors.after(&prefix, &name(reader[step]), &folder) {
                    assert!(successors.hold(&prefix, &next, next.clone()));
                    fetched += 1;
                }
            }
        }
        (opened, fetched, right)
    }

    #[test]
    fn what_follows_is_told_from_the_second_file_on() {
        assert_eq!(read(12, &[(0..12).collect()]), (12, 10, 10));
        let twice = (0..12).chain(0..12).collect();
        assert_eq!(read(12, &[twice]), (24, 21, 21), "nothing follows the last");
    }

    #[test]
    fn each_reader_has_its_own_order() {
        let blocks: Vec<Vec<usize>> = (0..4).map(|rank| (rank * 4..rank * 4 + 4).collect()).collect();
        let (_, fetched, right) = read(16, &blocks);
        assert_eq!((fetched, right), (8, 8), "blocks, and no other's first");
        let strided: Vec<Vec<usize>> =
            (0..4).map(|rank| (0..8).map(|step| step * 4 + rank).collect()).collect();
        let (opened, fetched, right) = read(32, &strided);
        assert_eq!((opened, fetched, right), (32, 28, 28));
        let same = vec![(0..12).collect(), (0..12).collect()];
        let (_, fetched, right) = read(12, &same);
        assert_eq!((fetched, right), (10, 10), "two readers of the same files");
    }

    #[test]
    fn several_files_are_expected_behind_one_that_is_read() {
        let folder = Files(6, RefCell::default(), RefCell::new(1));
        let (successors, prefix) = (Successors::<Box<str>>::default(), Arc::from("d/"));
        let open = |file: usize| {
            let before = OpenClock(*folder.2.borrow());
            *folder.2.borrow_mut() += 1;
            folder.1.borrow_mut().insert(name(file), OpenClock(before.0 + 1));
            successors.on_open(&prefix, &name(file), before, &folder)
        };
        let follow = |file: usize| {
            let next = successors.after(&prefix, &name(file), &folder)?;
            assert!(successors.hold(&prefix, &next, next.clone()));
            Some(next)
        };
        open(0);
        successors.on_close(&prefix, &name(0));
        open(1);
        assert_eq!([1, 2, 3].map(follow), [2, 3, 4].map(|file| Some(name(file))));
        assert_eq!(follow(2), None, "it is held already");
        // Each comes true in its turn, and the last expects one more.
        for file in 1..4 {
            successors.on_close(&prefix, &name(file));
            assert_eq!(open(file + 1), [name(file + 1)]);
        }
        assert_eq!((follow(4), follow(5)), (Some(name(5)), None));
    }

    #[test]
    fn no_order_fetches_next_to_nothing() {
        let shuffled = |seed: usize| (0..101).map(|index| (index * seed + 7) % 101).collect::<Vec<_>>();
        for seed in [17, 29, 38, 100] {
            assert_eq!(read(101, &[shuffled(seed)]).1, 0, "{seed}");
        }
        let each_eighth = (0..12).map(|index| index * 8).collect();
        assert_eq!(read(101, &[each_eighth]).1, 0);
    }

    #[test]
    fn two_wrong_guesses_in_a_row_are_the_last() {
        let mut files: Vec<usize> = (0..10).collect();
        files.extend((0..40).map(|index| (index * 29 + 40) % 101));
        let (_, fetched, right) = read(101, &[files]);
        assert_eq!((fetched, right), (10, 8));
    }
}
