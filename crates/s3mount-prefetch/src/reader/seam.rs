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

use super::plan::next_part;
use super::{Locked, Next, ObjectReader};
use crate::EDGE_BYTES;
use crate::learn::Beginning;
use crate::segment::Purpose;
use crate::sync::Ordering;
use crate::window::WindowLimits;

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

    /// What is to be fetched of the next object for stream `id`, whose own plan has just been made.
    pub(super) fn seam(&self, locked: &mut Locked, id: u64, limits: &WindowLimits<'_>) -> Option<Seam> {
        let planner = self.planner(&locked.state);
        let stream = locked.state.streams.get(id)?;
        let bytes = planner.bytes_beyond(stream, limits);
        if bytes == 0 {
            return None;
        }
        match &locked.next {
            Next::Unknown => {
                locked.next = Next::Asked;
                if self.sure_bytes() > 0 {
                    self.ask(locked, self.me.clone());
                }
                None
            }
            Next::Known(next, begun) => {
                let part_bytes = planner.part_beyond(stream, bytes, *begun, limits)?;
                Some(Seam { next: next.upgrade()?, bytes, part_bytes })
            }
            Next::Asked => None,
        }
    }

    /// Has the one who calls [`Self::take_near_end`] told what follows `reader`.
    fn ask(&self, locked: &mut Locked, reader: Weak<ObjectReader>) {
        locked.asks = Some(reader);
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
        let mut locked = reader.lock();
        match &locked.next {
            Next::Known(next, _) => return next.upgrade(),
            Next::Asked => return None,
            Next::Unknown => locked.next = Next::Asked,
        }
        drop(locked);
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
        let state = &mut self.lock().state;
        if state.stale.is_some() || state.streams.furthest_from_start().is_some() {
            return Begun::Enough;
        }
        let edge = part_bytes.min(EDGE_BYTES);
        while let Some(missing) = state.segments.first_missing(ByteRange::new(0, sure))
            && missing.start() < bytes
        {
            let part = next_part(missing.start(), part_bytes, edge, missing.end());
            let Some(permit) = self.shared.ahead.try_permit(part.len()) else { break };
            let Some(buffer) = self.buffer_ahead(state, part, edge) else { break };
            let part = ByteRange::new(part.start(), part.start() + buffer.as_ref().len() as u64);
            self.start(state, part, Purpose::Hinted, Some(buffer), Some(permit));
            state.early.get_or_insert_default();
        }
        let at = state.segments.first_gap(0);
        let is_complete = at >= self.size;
        if let Some(early) = &mut state.early {
            early.is_complete = is_complete;
        }
        self.count_active(state);
        match at {
            _ if is_complete => Begun::Whole,
            _ if at >= sure => Begun::Enough,
            _ => Begun::Upto(at),
        }
    }
}
