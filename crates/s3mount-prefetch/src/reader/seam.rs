//! The seam between two objects that are read one after another. When a stream has all of its object here
//! or on its way, what is left of its window is spent on the beginning of the object that follows. So as
//! many bytes are in flight across the seam as before it.
//!
//! Which object follows is told from outside ([`ObjectReader::go_on_with`]). It is only asked for where
//! objects of this kind are read whole.

use std::sync::{Arc, Weak};

use s3mount_object::ByteRange;

use super::ObjectReader;
use super::plan::next_part;
use super::state::State;
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
    /// Its reader, and how many bytes of its beginning are here or on their way.
    Known(Weak<ObjectReader>, u64),
}

/// What is to be fetched of the object that follows.
pub(super) struct Seam {
    next: Arc<ObjectReader>,
    /// How far from its beginning.
    bytes: u64,
    part_bytes: u64,
}

impl ObjectReader {
    /// Whether a stream has come near the object's end, so that its reader is about to open what follows.
    /// Says so once.
    pub fn take_near_end(&self) -> bool {
        self.is_near_end.load(Ordering::Relaxed) && self.is_near_end.swap(false, Ordering::Relaxed)
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
                let is_whole = self.sure_bytes() > 0;
                self.is_near_end.store(is_whole, Ordering::Relaxed);
                None
            }
            Next::Known(next, begun) if bytes > *begun && self.planner(state).is_complete(stream) => {
                let next = next.upgrade()?;
                let ahead = (self.size - stream.position) + begun;
                Some(Seam { next, bytes, part_bytes: stream.window.part_bytes(ahead, terms) })
            }
            Next::Asked | Next::Known(..) => None,
        }
    }

    /// Fetches of the next object what its reader's window has room for. No reader is locked.
    pub(super) fn cross(&self, seam: &Seam) {
        let begun = seam.next.begin_ahead(seam.bytes, seam.part_bytes);
        if let Next::Known(_, known) = &mut self.lock().next {
            *known = begun.max(*known);
        }
    }

    /// How many bytes all readers of such objects go on to read, if they read them whole.
    fn sure_bytes(&self) -> u64 {
        match self.beginning() {
            Beginning::Stream { bytes, .. } => bytes.min(self.size),
            Beginning::Usual | Beginning::Header { .. } => 0,
        }
    }

    /// Starts GETs of `part_bytes` for what is missing of the first `bytes`, as far as memory and requests
    /// are free, for the reader of the object before this one. Returns up to where all is here or on its
    /// way; what a reader reads plans by itself.
    fn begin_ahead(&self, bytes: u64, part_bytes: u64) -> u64 {
        let sure = self.sure_bytes();
        let mut state = self.lock();
        if state.stale.is_some() || state.streams.furthest_from_start().is_some() {
            return u64::MAX;
        }
        let mut at = state.segments.first_gap(0);
        while at < bytes.min(sure) {
            let limit = state.segments.next_start(at).unwrap_or(sure).min(sure);
            let edge = part_bytes.min(crate::EDGE_BYTES);
            let part = next_part(at, part_bytes, edge, limit);
            let Some(ahead) = super::Ahead::try_new(&self.shared) else { break };
            let Some(buffer) = self.buffer_ahead(&mut state, part, edge) else { break };
            let part = ByteRange::new(at, at + buffer.as_ref().len() as u64);
            self.start(&mut state, part, Purpose::Stream(0), Some(buffer), Some(ahead));
            state.awaited.get_or_insert(0);
            at = state.segments.first_gap(at);
        }
        self.count_active(&mut state);
        if at >= sure { u64::MAX } else { at }
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
        let Some(ticks) = &mut self.awaited else { return };
        *ticks += 1;
        if *ticks >= UNREAD_TICKS {
            self.awaited = None;
            self.drop_told(ByteRange::new(0, u64::MAX));
        }
    }
}
