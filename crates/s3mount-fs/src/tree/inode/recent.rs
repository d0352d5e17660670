//! The files that the kernel was given last. They have a record, so that the next daemon knows them.
//!
//! The kernel uses a file that it has just looked up, and asks for it by its number. Where a daemon does not know the
//! number (`ESTALE`), the kernel looks the name up again, once. If a daemon dies between that look-up and what the kernel
//! asks next, its successor must know the file: the caller would see the error.

use std::collections::{HashMap, VecDeque};

use crate::numbers::InodeNo;

/// How many files are recent. Many more are looked up at no moment and not used yet.
const MOST: usize = 4096;

/// The files that the kernel was given last, in order.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Counts what was given.
    now: u64,
    /// When each was noted last.
    noted: HashMap<InodeNo, u64>,
    /// The files as they were noted: one that was noted again has two places.
    order: VecDeque<(InodeNo, u64)>,
}

/// What has changed when a file was noted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// Whether the file was not recent before.
    pub(super) is_new: bool,
    /// The file that is not recent any more.
    pub(super) dropped: Option<InodeNo>,
}

impl Recent {
    /// Notes that the kernel is given a file.
    pub(super) fn note(&mut self, ino: InodeNo) -> Noted {
        let before = self.noted.get(&ino).copied();
        if before.is_some_and(|before| self.now - before < MOST as u64 / 2) {
            return Noted { is_new: false, dropped: None };
        }
        self.now += 1;
        self.noted.insert(ino, self.now);
        self.order.push_back((ino, self.now));
        let mut dropped = None;
        if self.order.len() > MOST
            && let Some((oldest, then)) = self.order.pop_front()
            && self.noted.get(&oldest) == Some(&then)
        {
            self.noted.remove(&oldest);
            dropped = Some(oldest);
        }
        Noted { is_new: before.is_none(), dropped }
    }

    /// Whether a file is recent.
    pub(super) fn has(&self, ino: InodeNo) -> bool {
        self.noted.contains_key(&ino)
    }

    /// Drops a file that the kernel has forgotten.
    pub(super) fn forget(&mut self, ino: InodeNo) {
        self.noted.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Noted, Recent};
    use crate::numbers::InodeNo;

    #[test]
    fn the_last_ones_are_recent() {
        let mut recent = Recent::default();
        let (most, old) = (MOST as u64, |dropped: u64| Some(InodeNo(dropped)));
        for number in 0..most {
            assert_eq!(recent.note(InodeNo(number)), Noted { is_new: true, dropped: None });
        }
        // One that was noted long ago is noted again, and outlives the next.
        assert_eq!(recent.note(InodeNo(0)), Noted { is_new: false, dropped: None });
        assert_eq!(recent.note(InodeNo(most - 1)), Noted { is_new: false, dropped: None });
        assert_eq!(recent.note(InodeNo(most)), Noted { is_new: true, dropped: old(1) });
        assert!(recent.has(InodeNo(0)) && !recent.has(InodeNo(1)) && recent.has(InodeNo(2)));
        recent.forget(InodeNo(2));
        assert_eq!(recent.note(InodeNo(most + 1)), Noted { is_new: true, dropped: None });
        assert_eq!(recent.note(InodeNo(1)), Noted { is_new: true, dropped: old(3) });
        assert!(recent.noted.len() <= MOST && recent.order.len() <= MOST);
    }
}
