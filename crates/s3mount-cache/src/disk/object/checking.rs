//! Compares the whole objects of the [`Checks`](crate::disk::object::checks::Checks) with their checksums, piece by
//! piece. An operation of the disk reads one piece, so a large file never looks like a disk that hangs. After each
//! piece the disk rests.

use std::sync::Arc;
use std::time::Duration;

use super::{DiskObject, SharedDisk};
use crate::disk::io::ALIGN;
use crate::disk::io::health::Condition;
use crate::disk::object::checks::Why;
use crate::disk::object::whole::{PIECE_BYTES, Whole};

/// The disk rests after a piece for this many times the time that the piece took. A reader may wait for a doubtful
/// object.
const REST_DOUBTFUL: u32 = 1;
const REST_PASSED: u32 = 49;

/// The disk rests no longer than this.
const MOST_REST: Duration = Duration::from_secs(1);

/// An object that is being compared.
struct Checked {
    object: Arc<DiskObject>,
    whole: Arc<Whole>,
    /// The first block of the next piece.
    next: u64,
    memory: Vec<u8>,
}

/// The objects that are being compared. Doubtful objects come before those that the kernel has read.
#[derive(Default)]
pub(crate) struct Checking {
    doubtful: Option<Checked>,
    passed: Option<Checked>,
}

impl Checking {
    fn of(&mut self, why: Why) -> &mut Option<Checked> {
        match why {
            Why::Doubtful => &mut self.doubtful,
            Why::Passed => &mut self.passed,
        }
    }

    /// Whether an object is being compared.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn has_any(&self) -> bool {
        self.doubtful.is_some() || self.passed.is_some()
    }
}

/// The result of comparing a piece.
enum Compared {
    More,
    /// The object is as it was written.
    Right,
    /// The object is damaged, or the disk must not be read now.
    Ended,
}

impl SharedDisk {
    /// Compares the waiting objects, until the cache ends.
    pub(super) fn keep_checking(self: &Arc<Self>) {
        let mut checking = Checking::default();
        while self.checks.rest(self.check_piece(&mut checking)) {}
    }

    /// Compares one more piece of an object. Returns how long the disk rests after it, or `None` if no object waits.
    pub(crate) fn check_piece(self: &Arc<Self>, checking: &mut Checking) -> Option<Duration> {
        if self.dir.health.condition() != Condition::Healthy {
            return Some(MOST_REST);
        }
        let is_free = checking.passed.is_none() || self.checks.has_doubtful();
        if checking.doubtful.is_none() && is_free {
            let (named, why) = self.checks.next()?;
            let begun = self.begin_check(self.object(named), why);
            if begun.is_none() {
                self.checks.done();
            }
            *checking.of(why) = begun;
            return Some(Duration::ZERO);
        }
        let why = if checking.doubtful.is_some() { Why::Doubtful } else { Why::Passed };
        if why == Why::Passed && !self.queue.is_idle() {
            return Some(MOST_REST);
        }
        let mut checked = checking.of(why).take()?;
        let began = self.dir.clock.now();
        match self.compare_piece(&mut checked) {
            Compared::More => {
                let times = if why == Why::Doubtful { REST_DOUBTFUL } else { REST_PASSED };
                *checking.of(why) = Some(checked);
                return Some((self.dir.clock.now().since(began) * times).min(MOST_REST));
            }
            Compared::Right if why == Why::Passed => {
                self.checks.on_right(checked.object.version.named.hash, self.dir.clock.now());
            }
            Compared::Right | Compared::Ended => {}
        }
        drop(checked);
        self.checks.done();
        Some(Duration::ZERO)
    }

    fn begin_check(&self, object: Arc<DiskObject>, why: Why) -> Option<Checked> {
        let whole = object.version.whole_to_check(why == Why::Passed)?;
        let memory = vec![0; PIECE_BYTES + ALIGN];
        Some(Checked { object, whole, next: 0, memory })
    }

    fn compare_piece(&self, checked: &mut Checked) -> Compared {
        let version = &checked.object.version;
        let start = checked.memory.as_ptr().align_offset(ALIGN);
        let memory = &mut checked.memory[start..start + PIECE_BYTES];
        match version.check_piece(&checked.whole, checked.next, memory) {
            Some(Some(next)) => {
                checked.next = next;
                Compared::More
            }
            Some(None) => Compared::Right,
            None => Compared::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::Why;
    use crate::disk::DiskCache;
    use crate::disk::layout::Layout;
    use crate::disk::object::SharedDisk;
    use crate::disk::object::by_hand::Hand;
    use crate::disk::tests::{BLOCK, config, content, flip, folder, id, offer, range};

    const SIZE: u64 = 20 * BLOCK + 9;

    /// A cache without threads that holds some objects.
    fn filled(path: &Path, keys: &[&str]) -> (DiskCache, Hand, Arc<SharedDisk>) {
        let opened = DiskCache::open_by_hand(&config(path), 1, || 1 << 40);
        let (cache, mut hands) = opened.expect("a directory of this test");
        let hand = hands.pop().expect("a directory");
        for key in keys {
            offer(&cache.object(&id(key), SIZE), range(0, SIZE), &content(key, SIZE));
            while hand.step(0) {}
        }
        let inner = cache.0.disks[0].0.clone();
        (cache, hand, inner)
    }

    fn push(cache: &DiskCache, disk: &SharedDisk, key: &str, why: Why) {
        disk.checks.push(&cache.object(&id(key), SIZE).version.named, why, disk.dir.clock.now());
    }

    #[test]
    fn what_is_doubtful_does_not_wait_for_a_file_that_the_kernel_has_read() {
        let (_folder, path) = folder();
        let (cache, _hand, disk) = filled(&path, &["passed", "doubtful"]);
        let mut current = Default::default();
        push(&cache, &disk, "passed", Why::Passed);
        disk.check_piece(&mut current);
        disk.check_piece(&mut current);
        // Bytes wait to be written. The checks of the kernel's files rest meanwhile.
        offer(&cache.object(&id("new"), SIZE), range(0, SIZE), &content("new", SIZE));
        push(&cache, &disk, "doubtful", Why::Doubtful);
        (0..10).for_each(|_| _ = disk.check_piece(&mut current));
        assert!(disk.checks.wait_doubtful(Duration::ZERO));
    }

    #[test]
    fn a_file_that_was_damaged_is_looked_through_again_soon() {
        let (_folder, path) = folder();
        let (cache, hand, disk) = filled(&path, &["right", "wrong"]);
        let whole = |key| Layout::new(&path).whole(&cache.object(&id(key), SIZE).version.named.hash);
        flip(&whole("wrong"), 5);
        let mut current = Default::default();
        let mut is_looked_through = |key| {
            push(&cache, &disk, key, Why::Passed);
            let is_taken = disk.checks.has_any();
            (0..10).for_each(|_| _ = disk.check_piece(&mut current));
            is_taken
        };
        assert!(is_looked_through("right") && is_looked_through("wrong"));
        assert!(whole("right").exists() && !whole("wrong").exists());
        offer(&cache.object(&id("wrong"), SIZE), range(0, SIZE), &content("wrong", SIZE));
        while hand.step(0) {}
        assert!(!is_looked_through("right") && is_looked_through("wrong"));
    }
}
