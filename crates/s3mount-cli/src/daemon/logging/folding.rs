//! Lines that come again and again are counted, and written once in a while.
//!
//! A program that asks for the same thing in a loop, and gets the same error each time, must not fill the log. Any user
//! of the mount can run one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most lines that are known.
const MOST: usize = 64;

/// How often a line is written that comes all the time.
const EVERY: Duration = Duration::from_secs(60);

/// The lines of late.
#[derive(Debug, Default)]
pub(super) struct Folding(VecDeque<Known>);

#[derive(Debug)]
struct Known {
    kind: String,
    /// How often it came.
    count: u64,
    written: Instant,
}

/// What lines of one kind share. Each open of a file has a number of its own, which comes before the error, and so has
/// each answer of the store.
fn kind_of(line: &str) -> String {
    let error = [" error=", "\"error\":"].iter().find_map(|name| line.find(name));
    let (subject, error) = line.split_at(error.unwrap_or(0));
    let subject: String = subject.chars().filter(|character| !character.is_ascii_digit()).collect();
    let mut pieces = error.split(" (request id ");
    let first = subject + pieces.next().unwrap_or_default();
    pieces.fold(first, |text, piece| text + piece.split_once(')').map_or("", |(_, rest)| rest))
}

impl Folding {
    /// Notes that a line comes. Returns how often it came so far if it is to be written: at first, each time that there
    /// are ten times as many, and once a minute.
    pub(super) fn note(&mut self, line: &str, now: Instant) -> Option<u64> {
        let kind = kind_of(line);
        let Some(known) = self.0.iter_mut().find(|known| known.kind == kind) else {
            if self.0.len() == MOST {
                self.0.pop_front();
            }
            self.0.push_back(Known { kind, count: 1, written: now });
            return Some(1);
        };
        known.count += 1;
        let is_due = now.saturating_duration_since(known.written) >= EVERY;
        let is_power_of_ten = 10u64.pow(known.count.ilog10()) == known.count;
        if !is_due && !is_power_of_ten {
            return None;
        }
        known.written = now;
        Some(known.count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{EVERY, Folding, MOST};

    #[test]
    fn what_comes_all_the_time_is_written_once_in_a_while() {
        let (mut folding, start) = (Folding::default(), Instant::now());
        let mut told = Vec::new();
        for second in 0..150 {
            told.extend(folding.note("a", start + Duration::from_secs(second)));
            assert!(second >= 50 || folding.note(&format!("b{second}"), start).is_some(), "another line");
        }
        assert_eq!(told, [1, 10, 70, 100]);
        assert_eq!(folding.note("a", start + 3 * EVERY), Some(151));
    }

    #[test]
    fn answers_with_numbers_of_their_own_are_of_one_kind() {
        let (mut folding, now) = (Folding::default(), Instant::now());
        let told = [17, 18].map(|id| {
            folding.note(&format!("read failed subject={id:?} error=403 (request id {id}) errno=13"), now)
        });
        assert_eq!(told, [Some(1), None]);
        assert_eq!(folding.note("read failed subject=19 error=403 (request id 19) errno=5", now), Some(1));
    }

    #[test]
    fn few_lines_are_known() {
        let (mut folding, now) = (Folding::default(), Instant::now());
        (0..=MOST).for_each(|number| assert_eq!(folding.note(&number.to_string(), now), Some(1)));
        assert_eq!((folding.0.len(), folding.note("1", now), folding.note("0", now)), (MOST, None, Some(1)));
    }
}
