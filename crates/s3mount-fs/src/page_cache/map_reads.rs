//! Recognises random reads of a map by the pattern of the kernel's READs.
//!
//! At a page fault of a map, the kernel reads *around* the page: the whole readahead of the file, half of it
//! before that page. This is good for a map that is read in order. For readers of small windows at random offsets, it
//! fetches a hundred times too much. The readahead belongs to the open file, and can't be changed from here. But a READ
//! that only fills the page cache may be *refused*: then the kernel reads only the page that faulted, and no program
//! sees an error.
//!
//! A wrong refusal is expensive: if a READ of a read(2) of 1 MiB is refused, it comes back as 256 READs of a page. So
//! the policy watches first. Random page faults appear as READs of a whole readahead that begin on no edge, do not
//! continue another READ, and are not continued by one. After a few of them, one READ is refused as a probe. If the
//! kernel then reads a page inside of the refused range, it was a page fault of a map: the file is *random*, and its
//! next read-arounds are refused. If the kernel reads the first page of the range, it was a read(2), and the next probe
//! comes much later. Wide windows end the refusals, too.
//!
//! Some READs are never refused, because a program may be waiting for all of their bytes: READs of
//! [`PIECE_BYTES`] and less, READs inside of a range that was refused a moment ago, READs of the size and on
//! the edge of a large folio, READs of the beginning and the end of the file, and READs of a stream. READs of
//! O_DIRECT do not come here.
//!
//! Pure: its input is READs, its output is answers.

use std::collections::VecDeque;

use s3mount_object::ByteRange;

/// READs of this many bytes and less are always served. A quarter of the kernel's own readahead: the windows that are
/// worth a refusal are mostly smaller, and so are the pages that follow one.
pub(crate) const PIECE_BYTES: u64 = 64 << 10;

/// A window is wide when its reader goes on for this many bytes after its first piece. Reading them page by page costs
/// about as much as one READ of 1 MiB.
const WIDE_BYTES: u64 = 128 << 10;

/// The number of READs that look like random faults before one is refused as a probe. Each fetches a readahead. As many
/// readers that begin at once, each at another place, look the same until they go on.
const LONE_READS: u32 = 16;

/// The factor by which that number grows after a wrong probe, or the end of refusals.
const CAUTION: u32 = 16;

/// The number of other READs that may come before a probe's page. No page comes when the kernel was asked to fill its
/// cache (`MADV_WILLNEED`) and no program reads yet.
const PATIENCE: u32 = 256;

/// How many spots with a window being read are remembered. A large machine has half as many loaders.
const SPOTS: usize = 128;

/// What a wide window, or a refused read(2), adds to `wrong`. Each new spot subtracts one.
const WRONG: u32 = 4;

/// The value of `wrong` at which the refusals end: two wrong refusals in a row, or a quarter of all.
const TOO_WRONG: u32 = 2 * WRONG - 1;

/// How many bytes of the kernel's pages are dropped ahead of a reader that has reached a refused range that is no
/// longer remembered. The reader may go on for long, and the kernel drops this many bytes in a millisecond.
const DROP_BYTES: u64 = 64 << 20;

/// The answer to a READ that fills the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Serve it like any other READ.
    Serve,
    /// Serve it apart from the streams: a piece of a random window.
    Apart,
    /// Refuse it. Then the kernel reads only the wanted pages.
    Refuse,
}

/// The answer to a READ, and its other consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) answer: Answer,
    /// The kernel's pages in this range were refused, and a reader goes on into them page by page. Once the
    /// kernel has dropped them, it reads ahead again.
    pub(crate) drop: Option<ByteRange>,
    /// What the READ has shown the file to be.
    pub(crate) change: Option<Change>,
}

/// A change in how a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The file is read at random through maps.
    Random,
    /// The file is not read at random through maps, or no longer.
    Ordinary,
}

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        Self { answer, drop: None, change: None }
    }
}

/// A spot where a random window is being read.
#[derive(Clone, Copy, Debug)]
struct Spot {
    /// The refused range, if the window began with a refusal.
    refused: Option<ByteRange>,
    /// The offset at which the window's reader is expected to go on.
    next: u64,
    /// How many bytes were read in order, without the first piece.
    run_bytes: u64,
    has_begun: bool,
    /// Whether the spot was counted as wrong.
    is_wrong: bool,
}

impl Spot {
    fn holds(&self, offset: u64) -> bool {
        offset == self.next || self.refused.is_some_and(|refused| refused.contains(offset))
    }
}

#[derive(Debug)]
enum MapReadState {
    /// `lone` READs in a row looked like random page faults.
    Watching {
        lone: u32,
    },
    /// This READ was refused as a probe, to see which page is wanted. The probe is given up after `patience`
    /// more READs.
    Probing {
        refused: ByteRange,
        patience: u32,
    },
    Random,
}

/// The READs of one version of a file.
#[derive(Debug)]
pub(crate) struct MapReads {
    /// The kernel's readahead, in bytes: the size of a read-around.
    readahead_bytes: u64,
    /// The file's size in bytes.
    size: u64,
    state: MapReadState,
    /// How many READs that look like random page faults must come before the next probe.
    lone_wanted: u32,
    /// The ends of the last served READs of that kind.
    ends: VecDeque<u64>,
    /// The spots. The newest is last.
    spots: VecDeque<Spot>,
    wrong: u32,
}

impl MapReads {
    /// A file of `size` bytes. Its readers are unknown, unless `is_random` is set.
    pub(crate) fn new(readahead_bytes: u64, size: u64, is_random: bool) -> Self {
        Self {
            readahead_bytes,
            size,
            state: if is_random { MapReadState::Random } else { MapReadState::Watching { lone: 0 } },
            lone_wanted: LONE_READS,
            ends: VecDeque::new(),
            spots: VecDeque::new(),
            wrong: 0,
        }
    }

    /// Whether the file is read at random through maps.
    pub(crate) fn is_random(&self) -> bool {
        matches!(self.state, MapReadState::Random)
    }

    /// Whether the policy only needs to see READs that [`may_be_read_around`].
    pub(crate) fn is_only_watching(&self) -> bool {
        matches!(self.state, MapReadState::Watching { .. })
    }

    /// Notes that READs of the file continued one another since the last READ that the policy saw.
    pub(crate) fn on_stream(&mut self) {
        if let MapReadState::Watching { lone } = &mut self.state {
            *lone = 0;
        }
    }

    /// Decides about a READ that fills the page cache. `is_streamed` returns whether the READ belongs to a
    /// stream.
    pub(crate) fn on_read(&mut self, read: ByteRange, is_streamed: impl FnOnce() -> bool) -> Decision {
        match self.state {
            MapReadState::Watching { lone } => self.watch(read, lone, is_streamed),
            MapReadState::Probing { refused, patience } => self.probe(read, refused, patience),
            MapReadState::Random => self.take_apart(read, is_streamed),
        }
    }

    fn watch(&mut self, read: ByteRange, lone: u32, is_streamed: impl FnOnce() -> bool) -> Decision {
        if !may_be_read_around(read, self.readahead_bytes, self.size) {
            return Answer::Serve.into();
        }
        let goes_on = self.ends.contains(&read.start());
        let lone = if goes_on || is_streamed() { 0 } else { lone + 1 };
        if lone <= self.lone_wanted {
            push(&mut self.ends, read.end());
            self.state = MapReadState::Watching { lone };
            return Answer::Serve.into();
        }
        self.state = MapReadState::Probing { refused: read, patience: PATIENCE };
        Answer::Refuse.into()
    }

    fn probe(&mut self, read: ByteRange, refused: ByteRange, patience: u32) -> Decision {
        let is_page = refused.contains(read.start()) && read.len() <= PIECE_BYTES;
        if is_page && read.start() > refused.start() {
            self.state = MapReadState::Random;
            self.wrong = 0;
            push(&mut self.spots, Spot::refused(refused));
            let decision = self.take_apart(read, || false);
            return Decision { change: Some(Change::Random), ..decision };
        }
        if is_page || patience == 0 {
            self.be_cautious();
            let rest = ByteRange::new(read.end().clamp(refused.start(), refused.end()), refused.end());
            return Decision { drop: is_page.then_some(rest), ..Answer::Serve.into() };
        }
        self.state = MapReadState::Probing { refused, patience: patience - 1 };
        Answer::Serve.into()
    }

    /// Decides about a READ of a random file. A READ of a reader's piece is served, a larger one is refused.
    fn take_apart(&mut self, read: ByteRange, is_streamed: impl FnOnce() -> bool) -> Decision {
        if let Some(spot) = self.spots.iter_mut().rev().find(|spot| spot.holds(read.start())) {
            let (decision, is_wrong) = spot.go_on(read, self.size);
            if is_wrong {
                self.wrong += WRONG;
                if self.wrong >= TOO_WRONG {
                    self.be_cautious();
                    // The refused ranges are no longer remembered.
                    let drop = Some(ByteRange::new(0, self.size));
                    return Decision { change: Some(Change::Ordinary), drop, ..decision };
                }
            }
            return decision;
        }
        let is_piece = read.len() <= PIECE_BYTES;
        let goes_on = self.ends.contains(&read.start());
        if goes_on {
            push(&mut self.ends, read.end());
        }
        let is_whole = !is_piece && (goes_on || is_folio(read) || read.end() >= self.size);
        if read.start() == 0 || is_whole || is_streamed() {
            return Answer::Serve.into();
        }
        self.wrong = self.wrong.saturating_sub(1);
        push(&mut self.spots, if is_piece { Spot::read(read) } else { Spot::refused(read) });
        if is_piece { Answer::Apart.into() } else { Answer::Refuse.into() }
    }

    fn be_cautious(&mut self) {
        self.state = MapReadState::Watching { lone: 0 };
        self.lone_wanted = self.lone_wanted.saturating_mul(CAUTION);
        self.spots.clear();
        self.ends.clear();
        self.wrong = 0;
    }
}

impl Spot {
    fn refused(refused: ByteRange) -> Self {
        let next = refused.start();
        Self { refused: Some(refused), next, run_bytes: 0, has_begun: false, is_wrong: false }
    }

    fn read(read: ByteRange) -> Self {
        Self { refused: None, next: read.end(), run_bytes: 0, has_begun: true, is_wrong: false }
    }

    /// Decides about the next READ at this spot. Also returns whether the READ shows that the window is not a
    /// small one.
    fn go_on(&mut self, read: ByteRange, size: u64) -> (Decision, bool) {
        let was_wrong = self.is_wrong;
        let goes_on = self.has_begun && read.start() == self.next;
        self.run_bytes = if goes_on { self.run_bytes + read.len() } else { 0 };
        // A page fault lies inside the range that is read around it.
        let is_first = !self.has_begun && self.refused.is_some_and(|refused| refused.start() == read.start());
        let is_wide = self.run_bytes > WIDE_BYTES;
        self.is_wrong |= is_first || is_wide;
        self.has_begun = true;
        self.next = read.end();
        let is_news = self.is_wrong && !was_wrong;
        let until = match self.refused {
            Some(refused) if refused.contains(read.end()) => refused.end(),
            _ => read.end().saturating_add(DROP_BYTES),
        };
        let rest = ByteRange::new(read.end(), until.min(size).max(read.end()));
        let answer = if self.is_wrong || read.len() > PIECE_BYTES { Answer::Serve } else { Answer::Apart };
        let is_paged = is_news && read.len() <= PIECE_BYTES;
        (Decision { answer, drop: is_paged.then_some(rest), change: None }, is_news)
    }
}

/// Whether a READ looks like a read-around of a file of `size` bytes: a whole readahead that is not on an edge of its
/// size.
pub(crate) fn may_be_read_around(read: ByteRange, readahead_bytes: u64, size: u64) -> bool {
    read.len() == readahead_bytes && !read.start().is_multiple_of(readahead_bytes) && read.end() < size
}

/// Whether a READ may be that of one large folio that a reader waits for: these have a power of two as
/// their size, and lie on an edge of it.
fn is_folio(read: ByteRange) -> bool {
    read.len().is_power_of_two() && read.start().is_multiple_of(read.len())
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= SPOTS {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests;
