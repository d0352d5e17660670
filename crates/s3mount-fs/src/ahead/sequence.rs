//! Detects files that are opened in the order of their names, so that the next ones can be prefetched. Subdirectories
//! that are listed in order are detected in the same way.
//!
//! A *sequence* is a position in a directory that moves on by a few names from one open to the next. Several
//! readers may read one directory, each with its own sequence. Many readers may also share one sequence: then
//! its opens come a little out of order. A reader that takes each eighth name, as one of eight ranks does, is not a
//! sequence. If the next files were fetched for it, seven of eight would not be read.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The most names between two opens of one sequence. Readers that take names from one queue are out of order
/// by less than the number of readers.
const MOST_BETWEEN: usize = 16;

/// How many opens a sequence remembers.
const RECENT: usize = 2 * MOST_BETWEEN;

/// How many sequences are followed at a time, in all directories.
const MAX_SEQUENCES: usize = 64;

#[derive(Debug)]
struct Sequence {
    prefix: Arc<str>,
    /// The names that were opened last, not always in order.
    recent: VecDeque<Box<str>>,
    /// The furthest name that was opened.
    at: Box<str>,
    /// How many names were opened, and how many lie between the first and the last of them.
    opened: u32,
    passed: u32,
    /// The furthest name that was prefetched.
    planned: Box<str>,
    /// The number of its last open, among all opens.
    last_open: u64,
}

impl Sequence {
    /// Whether `name` lies among the names that were opened last.
    fn is_passing(&self, name: &str) -> bool {
        *name <= *self.at && self.recent.iter().any(|known| **known <= *name)
    }

    fn note(&mut self, name: &str, open: u64) {
        self.last_open = open;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(name.into());
    }
}

/// The sequences. The one that moved last is at the end.
#[derive(Debug)]
pub(crate) struct SequenceDetector {
    sequences: Mutex<Vec<Sequence>>,
    opens: AtomicU64,
    believed_after: u32,
    most_ahead: u32,
}

impl SequenceDetector {
    /// A sequence is followed after `believed_after` opens. Then at most `most_ahead` names are fetched ahead of it,
    /// and never more than it has opened. This bounds the cost of a wrong guess.
    pub(crate) fn new(believed_after: u32, most_ahead: u32) -> Self {
        Self { sequences: Mutex::default(), opens: AtomicU64::new(0), believed_after, most_ahead }
    }

    /// Notes that `name` in the directory `prefix` is opened. Calls `fetch` for the names to fetch now. `following`
    /// returns up to a number of names after a name. An open of one of the names to fetch either comes here before, or
    /// finds that its fetch has begun: else it would be fetched once more after it was read.
    pub(crate) fn on_open(
        &self,
        prefix: &Arc<str>,
        name: &str,
        following: impl Fn(&str, usize) -> Vec<Box<str>>,
        fetch: impl FnOnce(Vec<Box<str>>),
    ) {
        let mut sequences = lock(&self.sequences);
        if !self.follow(&mut sequences, prefix, name, &following) {
            return;
        }
        if let Some((sequence, others)) = sequences.split_last_mut() {
            let mut ahead = self.plan(sequence, following);
            let sequence = &*sequence;
            // A reader that takes names far out of order has opened some of them already. A reader that walks the
            // directory once more has not.
            let is_beside = |other: &&Sequence| {
                other.prefix == *prefix && sequence.last_open - other.last_open < RECENT as u64
            };
            let beside: Vec<_> = others.iter().filter(is_beside).collect();
            ahead.retain(|name| !beside.iter().any(|other| other.recent.contains(name)));
            fetch(ahead);
        }
    }

    /// Notes that `name` is opened, as [`on_open`](Self::on_open), but plans nothing.
    pub(crate) fn pass(
        &self,
        prefix: &Arc<str>,
        name: &str,
        following: impl Fn(&str, usize) -> Vec<Box<str>>,
    ) {
        self.follow(&mut lock(&self.sequences), prefix, name, &following);
    }

    /// Finds the sequence that `name` continues, or begins one. Returns whether the last of the sequences has moved on.
    fn follow(
        &self,
        sequences: &mut Vec<Sequence>,
        prefix: &Arc<str>,
        name: &str,
        following: &impl Fn(&str, usize) -> Vec<Box<str>>,
    ) -> bool {
        let open = self.opens.fetch_add(1, Ordering::Relaxed);
        let here = |sequence: &Sequence| sequence.prefix == *prefix;
        if let Some(index) = sequences.iter().position(|sequence| here(sequence) && sequence.is_passing(name))
        {
            if sequences[index].recent.iter().any(|known| **known == *name) {
                // The sequence begins again.
                sequences.remove(index);
            } else {
                // One of the readers that share the sequence was slow.
                sequences[index].opened += 1;
                sequences[index].note(name, open);
                return false;
            }
        }
        let nearest = (0..sequences.len())
            .filter(|index| here(&sequences[*index]) && &*sequences[*index].at < name)
            .max_by(|a, b| sequences[*a].at.cmp(&sequences[*b].at));
        let step = nearest.and_then(|index| {
            let names = following(&sequences[index].at, MOST_BETWEEN);
            let between = names.iter().position(|next| &**next == name)?;
            Some((index, u32::try_from(between + 1).ok()?))
        });
        let Some((index, step)) = step else {
            if sequences.len() == MAX_SEQUENCES {
                sequences.remove(0);
            }
            sequences.push(Sequence {
                prefix: prefix.clone(),
                recent: VecDeque::from([name.into()]),
                at: name.into(),
                opened: 1,
                passed: 1,
                planned: name.into(),
                last_open: open,
            });
            return false;
        };
        let mut sequence = sequences.remove(index);
        sequence.note(name, open);
        (sequence.at, sequence.opened, sequence.passed) =
            (name.into(), sequence.opened + 1, sequence.passed + step);
        if sequence.opened > 4 * self.most_ahead {
            // Earlier opens count less.
            (sequence.opened, sequence.passed) = (sequence.opened / 2, sequence.passed / 2);
        }
        sequences.push(sequence);
        true
    }

    /// Plans the names to fetch now, for a sequence that has just moved on.
    fn plan(
        &self,
        sequence: &mut Sequence,
        following: impl Fn(&str, usize) -> Vec<Box<str>>,
    ) -> Vec<Box<str>> {
        let ahead = if sequence.opened >= self.believed_after && 2 * sequence.opened > sequence.passed {
            let mut ahead = following(&sequence.at, sequence.opened.min(self.most_ahead) as usize);
            ahead.retain(|name| *name > sequence.planned);
            ahead
        } else {
            Vec::new()
        };
        if let Some(last) = ahead.last() {
            sequence.planned.clone_from(last);
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::{MAX_SEQUENCES, SequenceDetector};

    const NONE: [usize; 0] = [];

    fn name(index: usize) -> Box<str> {
        format!("{index:05}").into()
    }

    fn following(after: &str, count: usize) -> Vec<Box<str>> {
        let after: usize = after.parse().expect("a number");
        (after + 1..5000).take(count).map(name).collect()
    }

    /// Opens files of a directory of 5,000; returns those that were fetched ahead.
    fn open(order: &SequenceDetector, names: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let prefix = Arc::from("d/");
        let mut ahead = Vec::new();
        for index in names {
            order.on_open(&prefix, &name(index), following, |names| ahead.extend(names));
        }
        ahead.iter().map(|name| name.parse().expect("a number")).collect()
    }

    #[test]
    fn what_follows_is_fetched_once_and_a_little_ahead() {
        let order = SequenceDetector::new(4, 64);
        assert_eq!(open(&order, 0..3), NONE);
        assert_eq!(open(&order, 3..4), [4, 5, 6, 7]);
        let mut ahead = open(&order, 4..1000);
        assert_eq!(ahead.len(), ahead.iter().collect::<BTreeSet<_>>().len());
        ahead.sort_unstable();
        assert_eq!(ahead, (8..1000 + 64).collect::<Vec<_>>());
        assert_eq!(open(&order, 1000..5000).last(), Some(&4999));
    }

    #[test]
    fn files_that_are_on_the_disk_are_part_of_the_sequence_and_have_nothing_fetched() {
        let (order, prefix) = (SequenceDetector::new(4, 64), Arc::from("d/"));
        for index in 0..1000 {
            order.pass(&prefix, &name(index), following);
        }
        assert_eq!(open(&order, [1000]), (1001..1065).collect::<Vec<_>>(), "this one was not on the disk");
        order.pass(&prefix, &name(1001), following);
        assert_eq!(open(&order, [1002]), [1065, 1066]);
    }

    #[test]
    fn what_was_opened_out_of_order_is_not_fetched_again() {
        let order = SequenceDetector::new(4, 64);
        assert_eq!(open(&order, (0..4).chain([30])), [4, 5, 6, 7], "this one is too far from the others");
        let ahead = open(&order, 4..30);
        assert!(ahead.contains(&29) && ahead.contains(&31) && !ahead.contains(&30), "{ahead:?}");
        let (order, all) = (SequenceDetector::new(4, 64), 0..1000);
        assert_eq!(open(&order, all.clone()), open(&order, all), "another walk finds nothing done");
    }

    #[test]
    fn what_begins_again_is_followed_again() {
        for len in [10, 1000] {
            let order = SequenceDetector::new(4, 64);
            let first = open(&order, 0..len);
            assert_eq!(open(&order, 0..len), first, "of {len}");
        }
    }

    #[test]
    fn readers_that_share_an_order_and_readers_with_their_own() {
        // Each block of eight is opened backwards: eight readers of one queue.
        let shared = (0..50).flat_map(|block| (block * 8..block * 8 + 8).rev());
        assert!(open(&SequenceDetector::new(4, 64), shared).len() > 350);
        let apart = (0..200).flat_map(|step| (0..8).map(move |worker| worker * 600 + step));
        assert!(open(&SequenceDetector::new(4, 64), apart).len() >= 8 * 190);
    }

    #[test]
    fn no_order_fetches_next_to_nothing() {
        let shuffled = (0..5000).map(|index| index * 2_741 % 5000);
        assert_eq!(open(&SequenceDetector::new(4, 64), shuffled), NONE);
        let each_eighth = (0..600).map(|index| index * 8);
        assert_eq!(open(&SequenceDetector::new(4, 64), each_eighth), NONE);
        let backwards = (0..5000).rev();
        assert_eq!(open(&SequenceDetector::new(4, 64), backwards), NONE);
    }

    #[test]
    fn runs_are_bounded() {
        let order = SequenceDetector::new(4, 64);
        open(&order, (0..200).map(|index| index * 20));
        assert_eq!(order.sequences.lock().expect("a lock").len(), MAX_SEQUENCES);
    }
}
