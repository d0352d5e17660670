//! The first minute after a daemon has taken over a mount.
//!
//! How often the daemon before gave an inode to the kernel is not known. A FORGET may drop look-ups that it has counted, and
//! come after a look-up of the same inode. So in this time no inode is forgotten, and those whose count is 0 at the end of it
//! are. An inode that the kernel has all the same is looked up again, once (`ESTALE`).

use super::{InodeNo, InodeTable};

/// How many rounds of the housekeeper this takes: a minute.
const ROUNDS: u32 = 12;

/// Inodes that were forgotten meanwhile, if this is the time.
#[derive(Debug, Default)]
pub(super) struct Settling {
    rounds_left: u32,
    forgotten: Vec<InodeNo>,
}

impl Settling {
    /// Begins the time.
    pub(super) fn begin(&mut self) {
        self.rounds_left = ROUNDS;
    }

    /// Whether an inode is kept that the kernel has forgotten, by its count.
    pub(super) fn keeps(&mut self, ino: InodeNo) -> bool {
        let keeps = self.rounds_left > 0;
        if keeps {
            self.forgotten.push(ino);
        }
        keeps
    }

    /// Ends one round. Returns the inodes to look at after the last one.
    fn end_round(&mut self) -> Vec<InodeNo> {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        if self.rounds_left > 0 { Vec::new() } else { std::mem::take(&mut self.forgotten) }
    }
}

impl InodeTable {
    /// Forgets the inodes that the kernel has not looked up again, once the first minute is over. The housekeeper calls it.
    pub(crate) fn settle(&self) {
        let mut tables = self.lock();
        let mut drafts = Vec::new();
        for ino in tables.settling.end_round() {
            let is_open = tables.handover.as_ref().is_some_and(|handover| handover.is_open(ino));
            if !is_open && tables.lookups(ino) == Some(0) {
                drafts.push(tables.remove(ino, self.limit));
            }
        }
        drop(tables);
        // This may drop the last references to files, which gives their memory back: hold no lock here.
        drop(drafts);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::{InodeTable, ROOT};
    use super::ROUNDS;
    use crate::names::Target;

    #[test]
    fn an_inode_that_is_looked_up_again_stays() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        table.restore([]);
        let give = |name: &str| table.lookup_or_insert(ROOT, "", name, &Target::Directory).ino;
        let (kept, gone) = (give("kept"), give("gone"));
        // The kernel drops look-ups that the daemon before has counted.
        table.forget(kept, 3);
        table.forget(gone, 1);
        assert!(table.node(kept).is_some() && table.node(gone).is_some());
        assert_eq!(give("kept"), kept);
        (1..ROUNDS).for_each(|_| table.settle());
        assert!(table.node(gone).is_some());
        table.settle();
        assert!(table.node(kept).is_some() && table.node(gone).is_none());
        table.forget(kept, 1);
        assert!(table.node(kept).is_none(), "the time is over");
    }
}
