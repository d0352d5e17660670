//! Cuts the listing of one directory into pieces that are listed in parallel.
//!
//! S3 lists one page after another, so a million names take a minute. So a directory of more than a few pages is cut
//! into pieces. A piece has the keys after one text and up to another, and each piece is listed by itself. The keys of
//! earlier pages suggest where to cut ([`KeyScale`](key_scale::KeyScale)). A wrong guess costs requests, but no name:
//! the pieces leave no gap between them, and the names of a page beyond its piece are dropped. So each name is listed
//! once and in order, also while the bucket changes.
//!
//! - If the keys at both ends of a piece are equally dense, the piece is cut every [`PIECE`](estimate::PIECE)
//!   pages. Cuts begin at its front, because the reader takes the names in order.
//! - Any other piece is cut once, at a distance that doubles while the cuts are right.
//! - Nothing is cut if wasted pages, including expected ones, would exceed a few and a tenth of all pages.
//!
//! This is policy: its input is pages, its output is requests. [`Lister`](crate::list::lister::Lister) sends them.

mod estimate;
mod key_scale;

use std::collections::VecDeque;

use s3mount_object::ListPage;

use crate::fact::Asked;
use crate::name::Hidden;
use crate::pages::page::Page;
use estimate::{Cuts, SplitEstimate};

/// Pages that are listed one after another before the first cut.
const FIRST: u32 = 4;

/// How many pages without any name may follow one another. S3 sends such pages where versions were deleted. A store
/// that never stops would block the reader for ever.
const MAX_EMPTY_PAGES: u32 = 1000;

/// A page to request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The number of its piece.
    pub(crate) piece: u32,
    /// Whether the reader waits for this piece now.
    pub(crate) is_first: bool,
    /// The text to start after, below the directory. Empty at the directory's beginning.
    pub(crate) start_after: String,
    pub(crate) continuation: Option<String>,
}

/// What is wrong with a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    GoesBack,
    HasNoEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Asked,
    Done,
}

#[derive(Debug)]
struct Piece {
    number: u32,
    /// The piece begins after this text.
    after: String,
    /// The piece was listed up to this key.
    cursor: String,
    /// The store's continuation token for the next page.
    next: Option<String>,
    stage: Stage,
    has_begun: bool,
    has_failed: bool,
    empty_pages: u32,
    estimate: SplitEstimate,
    /// The pages that wait for the reader, in order.
    pages: VecDeque<Page>,
}

impl Piece {
    fn new(number: u32, after: String) -> Self {
        Self {
            number,
            cursor: after.clone(),
            after,
            next: None,
            stage: Stage::Idle,
            has_begun: false,
            has_failed: false,
            empty_pages: 0,
            estimate: SplitEstimate::default(),
            pages: VecDeque::new(),
        }
    }
}

/// A listing, its pieces in order.
#[derive(Debug)]
pub(crate) struct Split {
    prefix: String,
    pieces: VecDeque<Piece>,
    next_number: u32,
    /// The reader has taken all names up to this key. Earlier names on later pages are dropped.
    taken: Option<String>,
    /// How many names are in pages that the reader has not taken yet.
    waiting: usize,
    is_complete: bool,
    /// The store does not start where a request says, so pages are listed one after another.
    is_whole: bool,
    /// How many pages came, and how many thousandths of pages were wasted.
    landed: u32,
    wasted: u32,
}

impl Split {
    /// The listing of the directory `prefix` after the key `after`, which is empty for all of it.
    pub(crate) fn behind(prefix: &str, after: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            pieces: VecDeque::from([Piece::new(0, after.to_owned())]),
            next_number: 1,
            taken: (!after.is_empty()).then(|| after.to_owned()),
            waiting: 0,
            is_complete: false,
            is_whole: false,
            landed: 0,
            wasted: 0,
        }
    }

    /// How many names are in pages that the reader has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether all pages were taken.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next page to request. If `spare` is 0, this is only the page that the reader waits for. Otherwise
    /// it may also be a later one, and up to `spare` cuts are made for that.
    pub(crate) fn ask(&mut self, spare: usize) -> Option<Ask> {
        if self.pieces.front().is_some_and(|piece| piece.stage == Stage::Idle) {
            return self.ask_for(0);
        }
        if spare == 0 {
            return None;
        }
        let is_idle = |piece: &Piece| piece.stage == Stage::Idle && !piece.has_failed;
        if !self.pieces.iter().any(is_idle) {
            self.cut(spare);
        }
        let index = self.pieces.iter().position(is_idle)?;
        self.ask_for(index)
    }

    /// Cuts a piece, if that is worth its requests. At most `spare` new pieces are made.
    fn cut(&mut self, spare: usize) {
        let most = self.most_cuts().min(spare);
        if most == 0 || self.landed < FIRST || self.is_whole {
            return;
        }
        let mut largest: Option<(u128, usize, String)> = None;
        for index in 0..self.pieces.len() {
            self.look(index);
            match self.pieces[index].estimate.cuts() {
                Cuts::None => {}
                Cuts::At(texts) => {
                    if self.cut_at(index, texts.into_iter().take(most)) {
                        return;
                    }
                }
                Cuts::IfIdle(left, text) => {
                    if largest.as_ref().is_none_or(|(most, ..)| *most < left) {
                        largest = Some((left, index, text));
                    }
                }
            }
        }
        if let Some((_, index, text)) = largest {
            self.cut_at(index, std::iter::once(text));
        }
    }

    /// How many cuts may be made now. Each cut is expected to waste half a page: the last one of the piece on
    /// its left.
    fn most_cuts(&self) -> usize {
        let open = self.pieces.iter().rev().skip(1).filter(|piece| piece.stage != Stage::Done).count();
        let spent = self.wasted as usize + open * 500;
        (2000 + self.landed as usize * 100).saturating_sub(spent) / 500
    }

    /// Guesses the rest of a piece, unless that is known, or can't be guessed yet.
    fn look(&mut self, index: usize) {
        let neighbour = self.pieces.get(index + 1);
        let end = neighbour.map(|neighbour| neighbour.after.clone());
        // The keys around its end are known once its right neighbour has begun.
        let is_known = neighbour.is_none_or(|neighbour| neighbour.has_begun);
        let beside = self.pieces.get_mut(index + 1).and_then(|neighbour| neighbour.estimate.first.take());
        let piece = &mut self.pieces[index];
        if piece.stage == Stage::Done || !is_known {
            piece.estimate.forget();
        } else {
            piece.estimate.update(&piece.cursor, end.as_deref(), beside.as_ref());
        }
        if let Some(neighbour) = self.pieces.get_mut(index + 1) {
            neighbour.estimate.first = beside;
        }
    }

    /// Cuts the piece at these texts. Returns whether any cut was made.
    fn cut_at(&mut self, index: usize, texts: impl Iterator<Item = String>) -> bool {
        let end = self.pieces.get(index + 1).map(|next| next.after.clone());
        let mut at = index;
        for text in texts {
            let before = if at == index { &self.pieces[index].cursor } else { &self.pieces[at].after };
            // The text becomes part of a URL and of XML, and it must not lie inside a folder.
            let is_plain = !text.contains(|c: char| c.is_control() || c == '/');
            if is_plain && text > *before && end.as_ref().is_none_or(|end| text < *end) {
                at += 1;
                let mut piece = Piece::new(self.next_number, text);
                piece.estimate.reach = self.pieces[index].estimate.further_reach();
                self.next_number += 1;
                self.pieces.insert(at, piece);
            }
        }
        self.pieces[index].estimate.forget();
        at > index
    }

    fn ask_for(&mut self, index: usize) -> Option<Ask> {
        let piece = self.pieces.get_mut(index)?;
        piece.stage = Stage::Asked;
        Some(Ask {
            piece: piece.number,
            is_first: index == 0,
            start_after: if piece.has_begun { String::new() } else { piece.after.clone() },
            continuation: piece.next.clone(),
        })
    }

    fn find(&self, number: u32) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.number == number)
    }

    /// Notes that a request failed. The page is requested again when the reader waits for it, or sooner if
    /// the store has only throttled. Returns whether the reader waits for it now.
    pub(crate) fn failed(&mut self, number: u32, is_throttled: bool) -> bool {
        let Some(index) = self.find(number) else { return false };
        (self.pieces[index].stage, self.pieces[index].has_failed) = (Stage::Idle, !is_throttled);
        index == 0
    }

    /// Notes that no requested page will come.
    pub(crate) fn all_failed(&mut self) {
        let asked = self.pieces.iter_mut().filter(|piece| piece.stage == Stage::Asked);
        asked.for_each(|piece| piece.stage = Stage::Idle);
    }

    /// Adds a page of a piece, and the times of its request.
    ///
    /// # Errors
    /// A fault, if the listing goes back or has no end.
    pub(crate) fn landed(
        &mut self,
        number: u32,
        mut page: ListPage,
        asked: Asked,
        hidden: &Hidden,
    ) -> Result<(), Fault> {
        let Some(index) = self.find(number) else { return Ok(()) };
        self.landed += 1;
        let key = |key: &str| key.strip_prefix(&self.prefix).unwrap_or_default().to_owned();
        let (first, last) = (page.first_key().map(key), page.last_key().map(key).unwrap_or_default());
        let end = self.pieces.get(index + 1).map(|next| next.after.clone());
        let piece = &mut self.pieces[index];
        (piece.stage, piece.has_failed) = (Stage::Idle, false);
        if first.is_some_and(|first| first < piece.cursor) {
            if piece.has_begun {
                return Err(Fault::GoesBack);
            }
            // The store has not started where the request said. The directory is listed again from its
            // beginning.
            self.is_whole = true;
            self.waiting = 0;
            self.pieces = VecDeque::from([Piece::new(self.next_number, String::new())]);
            self.next_number += 1;
            return Ok(());
        }
        let names = count(&page);
        piece.empty_pages = if names == 0 { piece.empty_pages + 1 } else { 0 };
        let is_stuck = piece.next.is_some() && page.next == piece.next;
        if is_stuck || piece.empty_pages > MAX_EMPTY_PAGES {
            return Err(Fault::HasNoEnd);
        }
        let had_begun = std::mem::replace(&mut piece.has_begun, true);
        // Names that were taken before the listing began again are not listed twice.
        let taken = self.taken.as_ref().filter(|_| self.is_whole);
        let after = taken.max(Some(&piece.cursor)).cloned().unwrap_or_default();
        keep(&mut page, &self.prefix, &after, end.as_deref());
        let kept = count(&page);
        if end.is_some() || page.next.is_some() {
            piece.estimate.sample(&page, &self.prefix);
        }
        if end.is_some() || !piece.after.is_empty() {
            let dropped = if names == 0 { 1 } else { names - kept };
            self.wasted += u32::try_from(dropped * 1000 / names.max(1)).unwrap_or(1000);
        }
        let is_done = page.next.is_none() || end.as_ref().is_some_and(|end| last >= *end);
        piece.next.clone_from(&page.next);
        piece.cursor = last.max(std::mem::take(&mut piece.cursor));
        let upto = if is_done { end } else { Some(piece.cursor.clone()) };
        if is_done {
            piece.stage = Stage::Done;
        }
        if kept > 0 || is_done {
            let page = Page::between(&self.prefix, &after, upto.as_deref(), &page, asked, hidden);
            self.waiting += page.len();
            piece.pages.push_back(page);
        }
        self.meet(index);
        if let Some(left) = index.checked_sub(1).filter(|_| !had_begun) {
            self.meet(left);
        }
        Ok(())
    }

    /// Updates a piece and its right neighbour from each other, when the one is done or the other has begun.
    fn meet(&mut self, index: usize) {
        let mut both = self.pieces.iter_mut().skip(index);
        let (Some(piece), Some(neighbour)) = (both.next(), both.next()) else { return };
        piece.estimate.forget();
        if piece.stage == Stage::Done && neighbour.has_begun {
            neighbour.estimate.follow(&mut piece.estimate);
        }
    }

    /// The next page in order, if it has come.
    pub(crate) fn take(&mut self) -> Option<Page> {
        loop {
            let piece = self.pieces.front_mut()?;
            if let Some(page) = piece.pages.pop_front() {
                self.waiting -= page.len();
                self.taken = page.upto().map(str::to_owned);
                self.is_complete = page.upto().is_none();
                return Some(page);
            }
            if piece.stage != Stage::Done || self.pieces.len() == 1 {
                return None;
            }
            self.pieces.pop_front();
        }
    }
}

fn count(page: &ListPage) -> usize {
    page.objects.len() + page.common_prefixes.len()
}

/// Keeps only the names after `after` and up to `end`. Some stores repeat the last key of the former page.
fn keep(page: &mut ListPage, prefix: &str, after: &str, end: Option<&str>) {
    let is_inside = |key: &str| {
        let key = key.strip_prefix(prefix).unwrap_or_default();
        // The marker object of the directory has no name. It comes first.
        (*key > *after || after.is_empty()) && end.is_none_or(|end| key <= end)
    };
    page.objects.retain(|object| is_inside(&object.key));
    page.common_prefixes.retain(|key| is_inside(key));
}

#[cfg(test)]
mod tests;
