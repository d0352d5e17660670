//! What is left of a piece, and where to cut it: guesses from the keys of its last page.

use std::collections::VecDeque;

use s3mount_object::ListPage;

use super::scale::Scale;

/// Pages that a piece has, about. Shorter ones cost more requests, since the last page of a piece is half
/// its neighbour's; longer ones have more pages wait for the reader.
pub(super) const PIECE: u128 = 6;

/// How far the first cut lies from the beginning where it is not known what comes, and the furthest, in
/// pages.
const FIRST_REACH: u128 = 4;
const MOST_REACH: u128 = 32;

/// An even piece with fewer pages left is not cut, nor another with fewer than twice as many.
const LEAST: u128 = 4;

/// Densities at the two ends of a piece that differ by more than this factor say that it is not even.
const UNEVEN: u128 = 16;

/// Pages, back from where a piece was listed up to, that tell its density. One alone says little of dates,
/// or of names that have a number of a class first: it may lie within a day, or a class.
const RUN: usize = 8;

/// Keys of a page that its scale is made of.
const SAMPLES: usize = 32;

/// Some keys of a page in their order, below the directory and without the slash of folders.
#[derive(Debug)]
pub(super) struct Sample {
    keys: Vec<String>,
    /// Names of the page.
    names: u128,
}

impl Sample {
    fn of(page: &ListPage, prefix: &str) -> Option<Self> {
        let keys = page.objects.iter().map(|object| object.key.as_str());
        let keys = keys.chain(page.common_prefixes.iter().map(String::as_str));
        let mut keys: Vec<&str> = keys.filter_map(|key| key.strip_prefix(prefix)).collect();
        keys.sort_unstable();
        let last = keys.len().checked_sub(1).filter(|last| *last > 0)?;
        let steps = (SAMPLES - 1).min(last);
        let chosen = (0..=steps).map(|step| keys[last * step / steps].trim_end_matches('/').to_owned());
        Some(Self { keys: chosen.collect(), names: keys.len() as u128 })
    }

    /// How many numbers its names take, and how many names come after the first.
    fn span(&self, scale: &Scale) -> Option<(u128, u128)> {
        let (first, last) = (scale.number(self.keys.first()?)?, scale.number(self.keys.last()?)?);
        Some((last.checked_sub(first)?, self.names - 1))
    }
}

/// Where to cut a piece.
#[derive(Clone, Debug)]
pub(super) enum Cuts {
    None,
    /// Here, as far as there are requests for it.
    At(Vec<String>),
    /// Here, if there is nothing better to do; it has so many pages left.
    IfIdle(u128, String),
}

/// What is known, and guessed, of the keys of one piece.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Of its first page, and of its last so far.
    pub(super) first: Option<Sample>,
    last: Option<Sample>,
    /// The first keys of the last pages, which lie one behind another, and how many names each has.
    run: VecDeque<(String, u128)>,
    /// How far the next cut lies where it is not known what comes, in pages.
    pub(super) reach: u128,
    /// The guess, if one was made since anything changed.
    cuts: Option<Cuts>,
}

impl Default for Outlook {
    fn default() -> Self {
        Self { first: None, last: None, run: VecDeque::new(), reach: FIRST_REACH, cuts: None }
    }
}

/// The rest of a piece in numbers.
struct Rest {
    scale: Scale,
    /// The numbers of where it begins, and of its end or of the last key there can be.
    at: u128,
    end: u128,
    /// So many numbers to so many names, and names to a page.
    span: u128,
    names: u128,
    page: u128,
}

impl Rest {
    /// In pages.
    fn pages(&self) -> u128 {
        self.end.saturating_sub(self.at).saturating_mul(self.names) / self.span / self.page
    }

    /// A text so many pages further on, which are no more than there are.
    fn further(&self, pages: u128) -> String {
        self.scale.text(self.at + self.span * pages * self.page / self.names)
    }

    fn is_even(&self, beside: &Sample) -> bool {
        beside.span(&self.scale).is_some_and(|(span, names)| {
            let (here, there) = (self.span.saturating_mul(names), span.saturating_mul(self.names));
            here <= there.saturating_mul(UNEVEN) && there <= here.saturating_mul(UNEVEN)
        })
    }
}

impl Outlook {
    /// Takes a page of the piece.
    pub(super) fn sample(&mut self, page: &ListPage, prefix: &str) {
        if let Some(sample) = Sample::of(page, prefix) {
            let sample = self.last.insert(sample);
            self.run.extend(sample.keys.first().map(|first| (first.clone(), sample.names)));
            if self.first.is_none() {
                self.first = Some(Sample { keys: sample.keys.clone(), names: sample.names });
            }
        }
        self.shorten();
        self.forget();
    }

    fn shorten(&mut self) {
        let excess = self.run.len().saturating_sub(RUN);
        self.run.drain(..excess);
    }

    /// The piece before has come up to where this one begins.
    pub(super) fn follow(&mut self, before: &mut Self) {
        before.run.append(&mut self.run);
        std::mem::swap(&mut before.run, &mut self.run);
        self.shorten();
        self.forget();
    }

    /// Something has changed.
    pub(super) fn forget(&mut self) {
        self.cuts = None;
    }

    /// How far a piece reaches that begins at a cut of this one.
    pub(super) fn further_reach(&self) -> u128 {
        (self.reach * 2).min(MOST_REACH)
    }

    /// The cuts as they were guessed.
    pub(super) fn cuts(&self) -> Cuts {
        self.cuts.clone().unwrap_or(Cuts::None)
    }

    /// Guesses, if anything has changed: the piece was listed up to `cursor`, and ends with `end`, where
    /// `beside` begins.
    pub(super) fn look(&mut self, cursor: &str, end: Option<&str>, beside: Option<&Sample>) {
        if self.cuts.is_none() {
            self.cuts = Some(self.guess(cursor, end, beside).unwrap_or(Cuts::None));
        }
    }

    fn guess(&self, cursor: &str, end: Option<&str>, beside: Option<&Sample>) -> Option<Cuts> {
        let sample = self.last.as_ref()?;
        let (first, _) = self.run.front()?;
        let keys: Vec<&str> = std::iter::once(first).chain(&sample.keys).map(String::as_str).collect();
        let scale = Scale::new(&keys, end)?;
        let at = scale.number(cursor.trim_end_matches('/'))?;
        let span = at.checked_sub(scale.number(first)?).filter(|span| *span > 0)?;
        let names = self.run.iter().map(|(_, names)| names).sum::<u128>() - 1;
        let end = end.and_then(|end| scale.number(end)).unwrap_or(scale.total());
        let rest = Rest { scale, at, end, span, names, page: sample.names };
        let left = rest.pages();
        let is_even = beside.is_some_and(|beside| rest.is_even(beside));
        let least = if is_even { LEAST } else { 2 * LEAST };
        Some(if left < least {
            Cuts::None
        } else if !is_even {
            Cuts::At(vec![rest.further(self.reach.min(left / 2))])
        } else if left < 2 * PIECE {
            Cuts::IfIdle(left, rest.further(left / 2))
        } else {
            // More than are ever asked for at once would be in vain.
            let cuts = (left / PIECE - 1).min(u128::from(u8::MAX));
            Cuts::At((1..=cuts).map(|cut| rest.further(cut * PIECE)).collect())
        })
    }
}
