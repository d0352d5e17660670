//! Guesses from the keys of a piece's last pages how many pages are left, and where to cut it.

use std::collections::VecDeque;

use s3mount_object::ListPage;

use super::key_scale::KeyScale;

/// About how many pages a piece has. Shorter pieces cost more requests, because half of a piece's last page
/// belongs to its neighbour. With longer pieces, more pages wait for the reader.
pub(super) const PIECE: u128 = 6;

/// The distance of the first cut, if the further keys are unknown, and the largest distance, in pages.
const FIRST_REACH: u128 = 4;
const MOST_REACH: u128 = 32;

/// An even piece with fewer pages left is not cut. A piece that is not even needs twice as many.
const LEAST: u128 = 4;

/// A piece is not even if the densities at its two ends differ by more than this factor.
const UNEVEN: u128 = 16;

/// From how many of the last pages the density is computed. A single page may lie within one day, if names
/// are dates, or within one class, if names begin with a class number.
const RECENT_PAGES: usize = 8;

/// From how many keys of a page its scale is made.
const SAMPLES: usize = 32;

/// Some keys of a page, in order, below the directory and without the slash of folders.
#[derive(Debug)]
pub(super) struct Sample {
    keys: Vec<String>,
    /// How many names the page has.
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

    /// How many numbers the page's names span, and how many names follow the first.
    fn span(&self, scale: &KeyScale) -> Option<(u128, u128)> {
        let (first, last) = (scale.number(self.keys.first()?)?, scale.number(self.keys.last()?)?);
        Some((last.checked_sub(first)?, self.names - 1))
    }
}

/// Where to cut a piece.
#[derive(Clone, Debug)]
pub(super) enum Cuts {
    None,
    /// Cut at these texts, as long as there are requests for the pieces.
    At(Vec<String>),
    /// Cut at this text if no other piece is worth more. The piece has this many pages left.
    IfIdle(u128, String),
}

/// The known keys of one piece, and the guess from them.
#[derive(Debug)]
pub(super) struct SplitEstimate {
    /// Samples of its first page, and of its last page so far.
    pub(super) first: Option<Sample>,
    last: Option<Sample>,
    /// The first key of each of the last pages, and how many names the page has.
    recent: VecDeque<(String, u128)>,
    /// The distance of the next cut if the further keys are unknown, in pages.
    pub(super) reach: u128,
    /// The guess, if one was made since the last change.
    cuts: Option<Cuts>,
}

impl Default for SplitEstimate {
    fn default() -> Self {
        Self { first: None, last: None, recent: VecDeque::new(), reach: FIRST_REACH, cuts: None }
    }
}

/// The rest of a piece, in numbers of its scale.
struct RemainingKeys {
    scale: KeyScale,
    /// The number of its beginning, and the number of its end. If it has no end, the last possible number.
    at: u128,
    end: u128,
    /// `names` names span `span` numbers, and a page has `page` names.
    span: u128,
    names: u128,
    page: u128,
}

impl RemainingKeys {
    /// How many pages are left.
    fn pages(&self) -> u128 {
        self.end.saturating_sub(self.at).saturating_mul(self.names) / self.span / self.page
    }

    /// The text `pages` pages further on. There must be as many left.
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

impl SplitEstimate {
    /// Samples a page of the piece.
    pub(super) fn sample(&mut self, page: &ListPage, prefix: &str) {
        if let Some(sample) = Sample::of(page, prefix) {
            let sample = self.last.insert(sample);
            self.recent.extend(sample.keys.first().map(|first| (first.clone(), sample.names)));
            if self.first.is_none() {
                self.first = Some(Sample { keys: sample.keys.clone(), names: sample.names });
            }
        }
        self.shorten();
        self.forget();
    }

    fn shorten(&mut self) {
        let excess = self.recent.len().saturating_sub(RECENT_PAGES);
        self.recent.drain(..excess);
    }

    /// Takes over from the piece before this one, which was listed up to the beginning of this one.
    pub(super) fn follow(&mut self, before: &mut Self) {
        before.recent.append(&mut self.recent);
        std::mem::swap(&mut before.recent, &mut self.recent);
        self.shorten();
        self.forget();
    }

    /// Drops the guess, because something has changed.
    pub(super) fn forget(&mut self) {
        self.cuts = None;
    }

    /// The distance of the next cut in a piece that begins at a cut of this one.
    pub(super) fn further_reach(&self) -> u128 {
        (self.reach * 2).min(MOST_REACH)
    }

    /// The guessed cuts.
    pub(super) fn cuts(&self) -> Cuts {
        self.cuts.clone().unwrap_or(Cuts::None)
    }

    /// Makes a guess, if anything has changed. The piece was listed up to `cursor`, and ends with `end`.
    /// `beside` is a sample from after that end.
    pub(super) fn update(&mut self, cursor: &str, end: Option<&str>, beside: Option<&Sample>) {
        if self.cuts.is_none() {
            self.cuts = Some(self.guess(cursor, end, beside).unwrap_or(Cuts::None));
        }
    }

    fn guess(&self, cursor: &str, end: Option<&str>, beside: Option<&Sample>) -> Option<Cuts> {
        let sample = self.last.as_ref()?;
        let (first, _) = self.recent.front()?;
        let keys: Vec<&str> = std::iter::once(first).chain(&sample.keys).map(String::as_str).collect();
        let scale = KeyScale::new(&keys, end)?;
        let at = scale.number(cursor.trim_end_matches('/'))?;
        let span = at.checked_sub(scale.number(first)?).filter(|span| *span > 0)?;
        let names = self.recent.iter().map(|(_, names)| names).sum::<u128>() - 1;
        let end = end.and_then(|end| scale.number(end)).unwrap_or(scale.total());
        let rest = RemainingKeys { scale, at, end, span, names, page: sample.names };
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
            // More cuts than requests in flight would be useless.
            let cuts = (left / PIECE - 1).min(u128::from(u8::MAX));
            Cuts::At((1..=cuts).map(|cut| rest.further(cut * PIECE)).collect())
        })
    }
}
