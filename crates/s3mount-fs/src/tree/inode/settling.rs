//! The first minute after a daemon has taken over a mount.
//!
//! How often the daemon before gave an inode to the kernel is not known. A FORGET may drop look-ups that it has counted, and
//! come after a look-up of the same inode. So in this time no inode is forgotten that the daemon before may have given, and
//! those whose count is 0 at the end of it are. Later, one of which the kernel drops more look-ups than were counted is kept
//! until the housekeeper's next round, and for as long as it is open. So is a file with changes that are not published yet.
//! An inode that the kernel has all the same is looked up again, once (`ESTALE`).

use std::collections::HashSet;

use crate::numbers::InodeNo;

/// How many rounds of the housekeeper this takes: a minute.
pub(super) const ROUNDS: u32 = 12;

/// Inodes that were forgotten meanwhile, if this is the time.
#[derive(Debug, Default)]
pub(super) struct Settling {
    rounds_left: u32,
    forgotten: Vec<InodeNo>,
    /// The inodes that had a record.
    recorded: HashSet<InodeNo>,
}

impl Settling {
    /// Begins the time.
    pub(super) fn begin(&mut self, recorded: HashSet<InodeNo>) {
        (self.rounds_left, self.recorded) = (ROUNDS, recorded);
    }

    /// Whether it is still that time.
    pub(super) fn goes_on(&self) -> bool {
        self.rounds_left > 0
    }

    /// Whether an inode is kept that the kernel has forgotten, by its count. That `is_unsure` where the kernel has dropped
    /// more look-ups than were counted. One that `needs_record` and has none is of this daemon.
    pub(super) fn keeps(&mut self, ino: InodeNo, needs_record: bool, is_unsure: bool) -> bool {
        let is_of_before = !needs_record || self.recorded.contains(&ino);
        let keeps = (self.goes_on() && is_of_before) || is_unsure;
        if keeps {
            self.forgotten.push(ino);
        }
        keeps
    }

    /// Looks at an inode again in the next round.
    pub(super) fn keep_on(&mut self, ino: InodeNo) {
        self.forgotten.push(ino);
    }

    /// Ends one round. Returns the inodes to look at after the last one.
    pub(super) fn end_round(&mut self) -> Vec<InodeNo> {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        if self.goes_on() {
            return Vec::new();
        }
        self.recorded = HashSet::new();
        std::mem::take(&mut self.forgotten)
    }
}
