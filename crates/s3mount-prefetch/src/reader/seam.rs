//! The seam between two objects that are read one after another. When all of a stream's object is in memory or in
//! flight, the rest of the window is spent on the beginning of the following object. So as many bytes are in flight
//! across the seam as before it.
//!
//! A window larger than the next object reaches into the object after that, and so on. So a loader of small shards
//! reads them as one stream.
//!
//! The caller names the following object ([`ObjectReader::go_on_with`]). The reader asks for it only if objects of this
//! kind are read whole.

use std::sync::{Arc, Weak};

use s3mount_object::ByteRange;

use super::plan::next_part;
use super::{Locked, Next, ObjectReader};
use crate::EDGE_BYTES;
use crate::learn::Beginning;
use crate::limits::window::WindowLimits;
use crate::reader::segment::Purpose;
use crate::sync::Ordering;

/// What to fetch of the following objects.
pub(super) struct Seam {
    next: Arc<ObjectReader>,
    /// The number of bytes, from the beginning of the first of them on.
    bytes: u64,
    part_bytes: u64,
}

/// How much of an object that is not read yet is in memory or in flight.
enum Begun {
    /// The bytes from the beginning up to here.
    Upto(u64),
    /// All of it.
    Whole,
    /// As much as is useful: a stream has begun and plans by itself, or readers are not known to read more.
    Enough,
}

/// The most objects that one seam spans: as many small shards as a window of some 100 MiB holds.
const MOST_SPANNED: usize = 64;

impl ObjectReader {
    /// The object whose successor the reader asks for. It is this object when a stream has come near its end, or a
    /// later one when that is all in memory and the window reaches beyond it. Returned once.
    pub fn take_near_end(&self) -> Option<Arc<ObjectReader>> {
        let is_asked =
            self.is_near_end.load(Ordering::Relaxed) && self.is_near_end.swap(false, Ordering::Relaxed);
        let asked = is_asked.then(|| self.lock().asks.take())??;
        asked.upgrade()
    }

    /// Tells that readers of this object go on with `next` after its end. The beginning of `next` is fetched before
    /// they reach it, as long as a handle holds its reader.
    pub fn go_on_with(&self, next: &Arc<ObjectReader>) {
        self.lock().next = Next::Known(Arc::downgrade(next), 0);
    }

    /// What to fetch of the next objects for stream `id`, whose own window has just been filled.
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

    /// Makes [`Self::take_near_end`] ask for the object that follows `reader`.
    fn ask(&self, locked: &mut Locked, reader: Weak<ObjectReader>) {
        locked.asks = Some(reader);
        self.is_near_end.store(true, Ordering::Relaxed);
    }

    /// Fetches as much of the objects that follow as the window has room for. The caller holds no reader's
    /// lock.
    pub(super) fn cross(&self, seam: &Seam) {
        let (mut reader, mut before, mut begun) = (seam.next.clone(), 0, 0);
        for _ in 0..MOST_SPANNED {
            match reader.begin_ahead(seam.bytes - before, seam.part_bytes) {
                Begun::Upto(bytes) => begun = before + bytes,
                Begun::Enough => begun = u64::MAX,
                Begun::Whole => {
                    before += reader.size();
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

    /// The object that follows `reader`, if it is known. Otherwise asks for it, once.
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

    /// The bytes that every reader of such objects goes on to read.
    fn sure_bytes(&self) -> u64 {
        match self.beginning() {
            Beginning::Stream { bytes, .. } => bytes.min(self.size()),
            Beginning::Usual | Beginning::Header { .. } => 0,
        }
    }

    /// Starts GETs of `part_bytes` for the missing part of the first `bytes`, as far as memory and requests are free,
    /// for the reader of an earlier object.
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
            let Some(permit) = self.permit_ahead(state, part.len()) else { break };
            let Some(buffer) = self.buffer_ahead(state, part, edge) else { break };
            let part = ByteRange::new(part.start(), part.start() + buffer.as_ref().len() as u64);
            self.start(state, part, Purpose::Hinted, Some(buffer), Some(permit));
            state.early.get_or_insert_default();
        }
        let at = state.segments.first_gap(0);
        let is_complete = at >= self.size();
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
