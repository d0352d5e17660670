//! The seam between two objects that are read one after another. When a stream has all of its object here
//! or on its way, what is left of its window is spent on the beginning of the object that follows. So as
//! many bytes are in flight across the seam as before it.
//!
//! Where a window is larger than the next object, it reaches into the one behind that, and so on: a loader
//! of small shards reads them as one stream.
//!
//! Which object follows is told from outside ([`ObjectReader::go_on_with`]). It is only asked for where
//! objects of this kind are read whole.

use std::sync::{Arc, Weak};

use s3mount_object::ByteRange;

use super::ObjectReader;
use super::plan::next_part;
use super::state::State;
use crate::ahead::Ahead;
use crate::learn::Beginning;
use crate::segment::Purpose;
use crate::stream::Direction;
use crate::sync::Ordering;
use crate::window::Terms;

/// A beginning that nobody reads is given back after so many ticks of the housekeeper: half a minute, as
/// any other guess.
const UNREAD_TICKS: u32 = 30;

/// What an object's reader knows of the object that follows.
#[derive(Debug, Default)]
pub(super) enum Next {
    /// No stream came near the end yet.
    #[default]
    Unknown,
    /// It was asked for, or nothing is to be fetched of it.
    Asked,
    /// Its reader, and how many bytes from its beginning on are here or on their way, of it and of those that
    /// follow.
    Known(Weak<ObjectReader>, u64),
}

/// A beginning that is fetched before somebody reads it.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Ticks of the housekeeper since then.
    ticks: u32,
    /// Whether all of the object is here or on its way: then it takes no share of the memory.
    is_complete: bool,
}

impl Awaited {
    /// Whether it takes a share of the memory.
    pub(super) fn is_active(&self) -> bool {
        !self.is_complete
    }
}

/// What is to be fetched of the objects that follow.
pub(super) struct Seam {
    next: Arc<ObjectReader>,
    /// How far from the beginning of the first.
    bytes: u64,
    part_bytes: u64,
}

/// How much of an object is here or on its way that nobody reads yet.
enum Begun {
    /// From the beginning up to here.
    Upto(u64),
    /// All of it.
    Whole,
    /// What somebody reads already plans by itself; and no more is known to be read.
    Enough,
}

/// Objects that one seam spans at most: as many small shards as a window of some 100 MiB holds.
const MOST_SPANNED: usize = 64;

impl ObjectReader {
    /// The object of which it is to be told what follows: this one, when a stream has come near its end, or
    /// one that follows it, when that is all here and the stream's window reaches beyond. Says so once.
    pub fn take_near_end(&self) -> Option<Arc<ObjectReader>> {
        let is_asked =
            self.is_near_end.load(Ordering::Relaxed) && self.is_near_end.swap(false, Ordering::Relaxed);
        let asked = is_asked.then(|| self.lock().asks.take())??;
        asked.upgrade()
    }

    /// Tells that whoever reads this object to its end goes on with `next`. Its beginning is fetched in
    /// time, as long as somebody holds it.
    pub fn go_on_with(&self, next: &Arc<ObjectReader>) {
        self.lock().next = Next::Known(Arc::downgrade(next), 0);
    }

    /// Whether the object is so small that it is fetched whole.
    pub fn is_small(&self) -> bool {
        self.size <= self.shared.config.small_object_bytes
    }

    /// What is to be fetched of the next object for stream `id`, whose own plan has just been made.
    pub(super) fn seam(&self, state: &mut State, id: u64, terms: &Terms<'_>) -> Option<Seam> {
        let stream = state.streams.get(id)?;
        let window = stream.window.bytes().min(terms.share_bytes);
        let bytes = (stream.position + window).saturating_sub(self.size);
        if bytes == 0 || self.is_small() || stream.direction == Direction::Down || !stream.is_from_start() {
            return None;
        }
        match &state.next {
            Next::Unknown => {
                state.next = Next::Asked;
                if self.sure_bytes() > 0 {
                    self.ask(state, self.me.clone());
                }
                None
            }
            Next::Known(next, begun) if bytes > *begun && self.planner(state).is_complete(stream) => {
                let ahead = (self.size - stream.position).saturating_add(*begun);
                let part_bytes = stream.window.part_bytes(ahead, terms);
                // Where nothing is to be done, it is not looked for at each read.
                let is_worth_it = bytes >= begun.saturating_add(terms.edge_bytes);
                is_worth_it.then(|| next.upgrade())?.map(|next| Seam { next, bytes, part_bytes })
            }
            Next::Asked | Next::Known(..) => None,
        }
    }

    /// Has the one who calls [`Self::take_near_end`] told what follows `reader`.
    fn ask(&self, state: &mut State, reader: Weak<ObjectReader>) {
        state.asks = Some(reader);
        self.is_near_end.store(true, Ordering::Relaxed);
    }

    /// Fetches of the objects that follow what its reader's window has room for. No reader is locked.
    pub(super) fn cross(&self, seam: &Seam) {
        let (mut reader, mut before, mut begun) = (seam.next.clone(), 0, 0);
        for _ in 0..MOST_SPANNED {
            match reader.begin_ahead(seam.bytes - before, seam.part_bytes) {
                Begun::Upto(bytes) => begun = before + bytes,
                Begun::Enough => begun = u64::MAX,
                Begun::Whole => {
                    before += reader.size;
                    begun = before;
                    if before < seam.bytes
                        && let Some(next) = self.following(&reader)
                    {
                        reader = next;
                        continue;
                    }
                }
            }
            break;
        }
        if let Next::Known(_, known) = &mut self.lock().next {
            *known = begun.max(*known);
        }
    }

    /// What follows `reader`, if that is known; else it is asked for, once.
    fn following(&self, reader: &ObjectReader) -> Option<Arc<ObjectReader>> {
        let mut state = reader.lock();
        match &state.next {
            Next::Known(next, _) => return next.upgrade(),
            Next::Asked => return None,
            Next::Unknown => state.next = Next::Asked,
        }
        drop(state);
        self.ask(&mut self.lock(), reader.me.clone());
        None
    }

    /// How many bytes all readers of such objects go on to read, if they read them whole.
    fn sure_bytes(&self) -> u64 {
        match self.beginning() {
            Beginning::Stream { bytes, .. } => bytes.min(self.size),
            Beginning::Usual | Beginning::Header { .. } => 0,
        }
    }

    /// Starts GETs of `part_bytes` for what is missing of the first `bytes`, as far as memory and requests
    /// are free, for the reader of an object before this one.
    fn begin_ahead(&self, bytes: u64, part_bytes: u64) -> Begun {
        let sure = self.sure_bytes();
        let mut state = self.lock();
        if state.stale.is_some() || state.streams.furthest_from_start().is_some() {
            return Begun::Enough;
        }
        let mut at = state.segments.first_gap(0);
        while at < bytes.min(sure) {
            let limit = state.segments.next_start(at).unwrap_or(sure).min(sure);
            let edge = part_bytes.min(crate::EDGE_BYTES);
            let part = next_part(at, part_bytes, edge, limit);
            let Some(ahead) = Ahead::try_new(&self.shared, part.len()) else { break };
            let Some(buffer) = self.buffer_ahead(&mut state, part, edge) else { break };
            let part = ByteRange::new(at, at + buffer.as_ref().len() as u64);
            self.start(&mut state, part, Purpose::Stream(0), Some(buffer), Some(ahead));
            state.awaited.get_or_insert_default();
            at = state.segments.first_gap(at);
        }
        let is_complete = at >= self.size;
        if let Some(awaited) = &mut state.awaited {
            awaited.is_complete = is_complete;
        }
        self.count_active(&mut state);
        match at {
            _ if is_complete => Begun::Whole,
            _ if at >= sure => Begun::Enough,
            _ => Begun::Upto(at),
        }
    }
}

impl State {
    /// The stream `id` has begun to read what was fetched for it before.
    pub(super) fn arrive(&mut self, id: u64) {
        if self.awaited.take().is_none() {
            return;
        }
        for segment in self.segments.iter_mut().filter(|segment| segment.purpose == Purpose::Stream(0)) {
            segment.purpose = Purpose::Stream(id);
            self.streams.fetched(segment.range.len());
        }
    }

    /// The housekeeper's look: a beginning that nobody reads is given back.
    pub(super) fn tick_awaited(&mut self) {
        let Some(Awaited { ticks, .. }) = &mut self.awaited else { return };
        *ticks += 1;
        if *ticks >= UNREAD_TICKS {
            self.awaited = None;
            self.drop_told(ByteRange::new(0, u64::MAX));
        }
    }
}
