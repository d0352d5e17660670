//! Space of evicted objects that the file system does not show as free yet. Pure.

use std::time::Duration;

use crate::disk::evict::Evicted;
use crate::disk::evict::limit::Space;
use crate::disk::evict::victims;

/// How long the housekeeper waits for the space of evicted objects before it evicts more instead. btrfs frees it at its
/// next commit, within 30 s.
const OWED_FOR: Duration = Duration::from_secs(30);

/// The space of objects that were evicted because too little of the disk was free. Some file systems free it seconds
/// later, and an open file keeps its space until it is closed.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    bytes: u64,
    files: u64,
    /// The free space after the eviction, in bytes and in files.
    free: (u64, u64),
    until: Duration,
}

impl Owed {
    /// The owed space that the file system does not show yet, in bytes and in files.
    fn left(&self, space: Space, now: Duration) -> (u64, u64) {
        if !victims::is_closed(self.until, now) {
            return (0, 0);
        }
        let left = |owed: u64, free: u64, before: u64| owed.saturating_sub(free.saturating_sub(before));
        (left(self.bytes, space.free, self.free.0), left(self.files, space.free_files, self.free.1))
    }

    /// The space once all that is owed is free.
    pub(crate) fn expected(&self, space: Space, now: Duration) -> Space {
        let (bytes, files) = self.left(space, now);
        let (free, free_files) = (space.free.saturating_add(bytes), space.free_files.saturating_add(files));
        Space { free, free_files, ..space }
    }

    /// Adds an eviction, with the space `before` and `after` it. Space that is free at once is not owed, even if others
    /// take it within the next second.
    pub(crate) fn add(&mut self, evicted: &Evicted, before: Space, after: Space, now: Duration) {
        let (bytes, files) = self.left(before, now);
        let owed = |owed: u64, evicted: u64, before: u64, after: u64| {
            owed + evicted.saturating_sub(after.saturating_sub(before))
        };
        *self = Self {
            bytes: owed(bytes, evicted.bytes, before.free, after.free),
            files: owed(files, evicted.files, before.free_files, after.free_files),
            free: (after.free, after.free_files),
            until: now + OWED_FOR,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Owed;
    use crate::disk::evict::Evicted;
    use crate::disk::evict::limit::Space;

    #[test]
    fn space_that_comes_back_late_is_waited_for() {
        let now = Duration::from_secs(1_000_000);
        let space = |free| Space { total: 100, free, total_files: 0, free_files: 0 };
        let evicted = |bytes| Evicted { bytes, ..Evicted::default() };
        let mut owed = Owed::default();
        let expected =
            |owed: &Owed, free, after| owed.expected(space(free), now + Duration::from_secs(after)).free;
        assert_eq!(expected(&owed, 3, 0), 3);
        owed.add(&evicted(10), space(3), space(3), now);
        assert_eq!(
            [3, 8, 13, 20].map(|free| expected(&owed, free, 1)),
            [13, 13, 13, 20],
            "some, or all, is back"
        );
        assert_eq!(expected(&owed, 1, 1), 11, "others write");
        assert_eq!(expected(&owed, 3, 30), 3, "the wait is over");
        owed.add(&evicted(2), space(5), space(5), now + Duration::from_secs(2));
        assert_eq!(expected(&owed, 5, 3), 15, "the rest of the first, and the second");
        let mut owed = Owed::default();
        owed.add(&evicted(10), space(3), space(12), now);
        assert_eq!([3, 12, 13].map(|free| expected(&owed, free, 1)), [4, 13, 13], "nine were back at once");
    }
}
