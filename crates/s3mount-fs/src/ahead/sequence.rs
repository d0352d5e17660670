//! Files that are opened in the order of their names: what comes next may be fetched ahead. It is the
//! same with sub-directories that are listed.
//!
//! A *run* is a place in a directory that moves on by a few names from one open to the next. Several
//! readers may be in one directory, each with a run of its own, and many may share one: then the
//! opens of a run come a little out of order. A reader that takes each eighth name, as one of eight
//! ranks does, is no run: seven of eight files fetched ahead would be for nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// Names between two opens of one run, at most. Readers that take names out of one queue are out of
/// order by less than there are readers.
const MOST_BETWEEN: usize = 16;

/// Opens that a run remembers.
const RECENT: usize = 2 * MOST_BETWEEN;

/// Runs that are followed at a time, in all directories.
const RUNS: usize = 64;

#[derive(Debug)]
struct Run {
    prefix: Arc<str>,
    /// What was opened last, not always in order.
    recent: VecDeque<Box<str>>,
    /// The furthest that was opened.
    at: Box<str>,
    /// How many were opened, and how many names these are apart.
    opened: u32,
    passed: u32,
    /// The furthest that was fetched ahead.
    planned: Box<str>,
}

impl Run {
    /// Whether `name` lies among what was opened last.
    fn is_passing(&self, name: &str) -> bool {
        *name <= *self.at && self.recent.iter().any(|known| **known <= *name)
    }

    fn note(&mut self, name: &str) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(name.into());
    }
}

/// The runs, the one that moved last at the end.
#[derive(Debug)]
pub(crate) struct Order {
    runs: Mutex<Vec<Run>>,
    believed_after: u32,
    most_ahead: u32,
}

impl Order {
    /// A run is believed after so many opens, and then has at most `most_ahead` ahead. It never has
    /// more ahead than it has opened, so what a wrong guess costs is bounded.
    pub(crate) fn new(believed_after: u32, most_ahead: u32) -> Self {
        Self { runs: Mutex::default(), believed_after, most_ahead }
    }

    /// Notes that `name` in the directory `prefix` is opened. Returns the names to fetch now;
    /// `following` tells which come behind a name, so many at most.
    pub(crate) fn on_open(
        &self,
        prefix: &Arc<str>,
        name: &str,
        following: impl Fn(&str, usize) -> Vec<Box<str>>,
    ) -> Vec<Box<str>> {
        let mut runs = lock(&self.runs);
        let here = |run: &Run| run.prefix == *prefix;
        if let Some(index) = runs.iter().position(|run| here(run) && run.is_passing(name)) {
            if runs[index].recent.iter().any(|known| **known == *name) {
                // It begins again.
                runs.remove(index);
            } else {
                // Somebody was slow.
                runs[index].opened += 1;
                runs[index].note(name);
                return Vec::new();
            }
        }
        let nearest = (0..runs.len())
            .filter(|index| here(&runs[*index]) && &*runs[*index].at < name)
            .max_by(|a, b| runs[*a].at.cmp(&runs[*b].at));
        let step = nearest.and_then(|index| {
            let names = following(&runs[index].at, MOST_BETWEEN);
            let between = names.iter().position(|next| &**next == name)?;
            Some((index, u32::try_from(between + 1).ok()?))
        });
        let Some((index, step)) = step else {
            if runs.len() == RUNS {
                runs.remove(0);
            }
            runs.push(Run {
                prefix: prefix.clone(),
                recent: VecDeque::from([name.into()]),
                at: name.into(),
                opened: 1,
                passed: 1,
                planned: name.into(),
            });
            return Vec::new();
        };
        let mut run = runs.remove(index);
        run.note(name);
        (run.at, run.opened, run.passed) = (name.into(), run.opened + 1, run.passed + step);
        if run.opened > 4 * self.most_ahead {
            // What was long ago counts less.
            (run.opened, run.passed) = (run.opened / 2, run.passed / 2);
        }
        let ahead = if run.opened >= self.believed_after && 2 * run.opened > run.passed {
            let mut ahead = following(&run.at, run.opened.min(self.most_ahead) as usize);
            ahead.retain(|name| *name > run.planned);
            ahead
        } else {
            Vec::new()
        };
        if let Some(last) = ahead.last() {
            run.planned.clone_from(last);
        }
        runs.push(run);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::{Order, RUNS};

    const NONE: [usize; 0] = [];

    fn name(index: usize) -> Box<str> {
        format!("{index:05}").into()
    }

    /// Opens files of a directory of 5,000; returns those that were fetched ahead.
    fn open(order: &Order, names: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let prefix = Arc::from("d/");
        let following = |after: &str, count: usize| -> Vec<Box<str>> {
            let after: usize = after.parse().expect("a number");
            (after + 1..5000).take(count).map(name).collect()
        };
        let opened = names.into_iter().map(|index| order.on_open(&prefix, &name(index), following));
        opened.flatten().map(|name| name.parse().expect("a number")).collect()
    }

    #[test]
    fn what_follows_is_fetched_once_and_a_little_ahead() {
        let order = Order::new(4, 64);
        assert_eq!(open(&order, 0..3), NONE);
        assert_eq!(open(&order, 3..4), [4, 5, 6, 7]);
        let mut ahead = open(&order, 4..1000);
        assert_eq!(ahead.len(), ahead.iter().collect::<BTreeSet<_>>().len());
        ahead.sort_unstable();
        assert_eq!(ahead, (8..1000 + 64).collect::<Vec<_>>());
        assert_eq!(open(&order, 1000..5000).last(), Some(&4999));
    }

    #[test]
    fn what_begins_again_is_followed_again() {
        for len in [10, 1000] {
            let order = Order::new(4, 64);
            let first = open(&order, 0..len);
            assert_eq!(open(&order, 0..len), first, "of {len}");
        }
    }

    #[test]
    fn readers_that_share_an_order_and_readers_with_their_own() {
        // Each block of eight is opened backwards: eight readers of one queue.
        let shared = (0..50).flat_map(|block| (block * 8..block * 8 + 8).rev());
        assert!(open(&Order::new(4, 64), shared).len() > 350);
        let apart = (0..200).flat_map(|step| (0..8).map(move |worker| worker * 600 + step));
        assert!(open(&Order::new(4, 64), apart).len() >= 8 * 190);
    }

    #[test]
    fn no_order_fetches_next_to_nothing() {
        let shuffled = (0..5000).map(|index| index * 2_741 % 5000);
        assert_eq!(open(&Order::new(4, 64), shuffled), NONE);
        let each_eighth = (0..600).map(|index| index * 8);
        assert_eq!(open(&Order::new(4, 64), each_eighth), NONE);
        let backwards = (0..5000).rev();
        assert_eq!(open(&Order::new(4, 64), backwards), NONE);
    }

    #[test]
    fn runs_are_bounded() {
        let order = Order::new(4, 64);
        open(&order, (0..200).map(|index| index * 20));
        assert_eq!(order.runs.lock().expect("a lock").len(), RUNS);
    }
}
