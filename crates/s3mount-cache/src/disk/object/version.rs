//! One version of an object: what the disk holds of it, as far as this process knows. All methods block, except those
//! that say they don't.
//!
//! **Lock order:** `looking`, then `state`. No file is touched while `state` is held.

mod checking;
mod writing;

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::ByteRange;

use crate::disk::blocks::{self, BLOCK_BYTES};
use crate::disk::clock::SinceBoot;
use crate::disk::dir::Dir;
use crate::disk::io::health::Operation;
use crate::disk::metrics::{Coverage, Dropped};
use crate::disk::object::partial::{self, PartialObject, PartialObjects, Written};
use crate::disk::object::read::{Fault, Source};
use crate::disk::object::whole::{self, Named, Whole};

/// How long a look is valid that found no version here, or a partial object that another process fills.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A whole object that was not used for this time is closed.
const CLOSE_AFTER: Duration = Duration::from_secs(10);

/// A whole object of this size or less is closed as soon as one read has taken all of it.
const SMALL_BYTES: u64 = 8 << 20;

/// What the disk holds of a version.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// There was no look yet.
    Unknown,
    Nothing,
    Partial(Arc<PartialObject>),
    Whole(Arc<Whole>),
    /// All of it, as of the time when its file was closed.
    Closed,
}

/// Bytes of the store that readers offered to the disk: see [`DiskObject::offer`](crate::DiskObject::offer).
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) version: Arc<Version>,
    pub(crate) range: ByteRange,
    pub(crate) bytes: Bytes,
    /// Whether they were compared with a checksum of the store.
    pub(crate) is_compared: bool,
    /// How often the version had been given up at the time of the offer.
    pub(crate) given_up: u64,
}

impl Offer {
    /// Writes the bytes, and drops them.
    pub(crate) fn keep(self) {
        self.version.keep(&self);
    }
}

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Version {
    dir: Arc<Dir>,
    parts: Arc<PartialObjects>,
    pub(crate) named: Named,
    /// Held by the thread that looks, or makes a partial object.
    looking: Mutex<()>,
    state: Mutex<VersionState>,
}

#[derive(Debug)]
struct VersionState {
    held: Held,
    /// The time of the last look.
    looked: SinceBoot,
    /// When bytes were read last.
    used: SinceBoot,
    /// Whether the first look found some blocks, but not all.
    was_in_parts: bool,
    /// Whether to note the next use: so far, only guesses have looked.
    is_use_due: bool,
    /// Whether the whole object, if it is here, was compared with the store's checksum.
    is_compared: bool,
    /// The CRC-64/NVME of the version, if all of its bytes were compared with the store's checksums.
    right: Option<u64>,
    /// How often the version was given up. Offers from before the last time are dropped.
    given_up: u64,
    /// Whether the version is longer than a file on the disk can be.
    is_too_long: bool,
}

/// The purpose of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A read, or a read that is sure to come. Counts as a use of the version.
    Use,
    /// A read that is only predicted.
    Guess,
    /// A comparison with the checksums. It is not counted.
    Check,
}

impl Version {
    pub(crate) fn new(dir: Arc<Dir>, parts: Arc<PartialObjects>, named: Named) -> Self {
        let (looked, used) = (SinceBoot::default(), SinceBoot::default());
        let (held, was_in_parts, is_use_due, is_compared) = (Held::Unknown, false, false, false);
        let (right, given_up, is_too_long) = (None, 0, false);
        let state = VersionState {
            held,
            looked,
            used,
            was_in_parts,
            is_use_due,
            is_compared,
            right,
            given_up,
            is_too_long,
        };
        let state = Mutex::new(state);
        Self { dir, parts, named, looking: Mutex::default(), state }
    }

    fn state(&self) -> MutexGuard<'_, VersionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> Held {
        self.state().held.clone()
    }

    fn set(&self, held: Held) {
        let mut state = self.state();
        if let Held::Whole(whole) = &held {
            state.is_compared = whole.is_compared();
        }
        let before = std::mem::replace(&mut state.held, held);
        (state.looked, state.used) = (self.dir.clock.now(), self.dir.clock.now());
        drop(state);
        drop(before);
    }

    /// Whether the last look is still valid. Does not block.
    pub(crate) fn is_known(&self) -> bool {
        let state = self.state();
        match &state.held {
            Held::Unknown | Held::Closed => false,
            Held::Whole(_) => true,
            Held::Partial(part) if part.is_owned() && !part.is_unfinished() => true,
            Held::Nothing | Held::Partial(_) => self.dir.clock.now().since(state.looked) < LOOK_AGAIN,
        }
    }

    /// Whether to note the next use, because only guesses have looked. Does not block.
    pub(crate) fn is_use_due(&self) -> bool {
        self.state().is_use_due
    }

    /// Whether the byte at `offset` is here, and the end of the run of bytes for which that is the same. Does not
    /// block.
    pub(crate) fn run(&self, offset: u64) -> (bool, u64) {
        let size = self.named.size;
        if offset >= size {
            return (false, size);
        }
        match &self.state().held {
            Held::Unknown | Held::Nothing => (false, size),
            Held::Whole(_) | Held::Closed => (true, size),
            Held::Partial(part) => {
                let (is_here, end) = part.run(offset / BLOCK_BYTES);
                (is_here, (end * BLOCK_BYTES).min(size))
            }
        }
    }

    /// Whether all of `range` may be here, as far as this process knows. Does not block.
    pub(crate) fn may_have(&self, range: ByteRange) -> bool {
        let (is_here, end) = self.run(range.start());
        (is_here && end >= range.end()) || !self.is_known()
    }

    /// The file of the whole object, if the kernel may have it. Does not block.
    pub(crate) fn whole_file(&self) -> Option<Arc<File>> {
        match &self.state().held {
            Held::Whole(whole) if whole.is_trusted() && self.may_pass(whole) => Some(whole.file.clone()),
            Held::Whole(_) | Held::Closed | Held::Partial(_) | Held::Nothing | Held::Unknown => None,
        }
    }

    fn may_pass(&self, whole: &Whole) -> bool {
        self.dir.passes_uncompared() || whole.is_compared()
    }

    /// Whether the whole version is here, and was compared with the store's checksum. Does not block.
    pub(crate) fn is_compared(&self) -> bool {
        let state = self.state();
        state.is_compared && matches!(state.held, Held::Whole(_) | Held::Closed)
    }

    /// Whether to [check](Self::check) the whole object. Does not block.
    pub(crate) fn wants_check(&self) -> bool {
        matches!(&self.state().held, Held::Whole(whole) if !whole.is_trusted())
    }

    /// Whether the first look found some blocks, but not all. Does not block.
    pub(crate) fn was_in_parts(&self) -> bool {
        self.state().was_in_parts
    }

    /// Finds out what the disk holds, unless that is known.
    pub(crate) fn look(&self, purpose: Look) {
        if let Some(operation) = self.dir.health.begin() {
            self.look_within(&operation, purpose);
        }
    }

    /// Finds out what the disk holds. A thread that waits here for another thread's look holds its own operation, so
    /// that a hanging disk gets no further ones.
    fn look_within(&self, _operation: &Operation<'_>, purpose: Look) {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_known() {
            if purpose == Look::Use && std::mem::take(&mut self.state().is_use_due) {
                self.note_use(&self.held());
            }
            return;
        }
        let is_first = matches!(self.held(), Held::Unknown | Held::Closed);
        let held = match self.find() {
            Ok(held) => held,
            Err(error) => {
                self.dir.health.on_error("look for", &error);
                Held::Nothing
            }
        };
        let found = match &held {
            Held::Whole(_) => Coverage::Whole,
            Held::Partial(_) => Coverage::Partial,
            Held::Nothing | Held::Closed | Held::Unknown => Coverage::Nothing,
        };
        if is_first && purpose != Look::Check {
            self.dir.metrics.looks.at(found).inc();
        }
        if is_first {
            self.state().was_in_parts = found == Coverage::Partial;
        }
        let is_due = is_first || std::mem::take(&mut self.state().is_use_due);
        if is_due && purpose == Look::Use {
            self.note_use(&held);
        }
        self.set(held);
        self.state().is_use_due = is_due && purpose != Look::Use;
    }

    fn note_use(&self, held: &Held) {
        let file = match held {
            Held::Whole(whole) => Some(&*whole.file),
            Held::Partial(part) => Some(&*part.file),
            Held::Nothing | Held::Closed | Held::Unknown => None,
        };
        self.dir.room.on_use(&self.named.hash, file, file.is_some());
    }

    fn find(&self) -> io::Result<Held> {
        if self.named.size == 0 {
            return Ok(Held::Nothing);
        }
        if let Some(whole) = whole::open(&self.dir, &self.named)? {
            return Ok(Held::Whole(Arc::new(whole)));
        }
        let own = self.parts.get(&self.named.hash);
        let part = match own {
            Some(part) => Some(part),
            None => PartialObject::open(&self.dir, &self.named)?.map(Arc::new),
        };
        let Some(mut part) = part else { return Ok(Held::Nothing) };
        if part.is_unfinished() {
            // An error, or a kill, has left it unfinished.
            let owned = if part.is_owned() {
                None
            } else {
                PartialObject::own(&self.dir, &self.named)?.map(Arc::new)
            };
            part = owned.unwrap_or(part);
            if part.begins_to_finish() {
                match self.finish(&part) {
                    Ok(Some(whole)) => return Ok(Held::Whole(Arc::new(whole))),
                    Ok(None) => {}
                    // Readers can read its blocks nevertheless.
                    Err(error) => self.dir.health.on_error("finish", &error),
                }
            }
        }
        Ok(Held::Partial(part))
    }

    /// Turns a complete partial object into the whole object.
    fn finish(&self, part: &PartialObject) -> io::Result<Option<Whole>> {
        let right = self.state().right;
        let is_compared = right.is_some_and(|right| right == part.sum(self.named.size));
        let whole = part.finish(&self.dir, &self.named, is_compared)?;
        self.parts.remove(&self.named.hash);
        Ok(whole)
    }

    /// Reads `range` into `into`, if all of it is here.
    pub(crate) fn read(&self, range: ByteRange, into: &mut [u8]) -> bool {
        let Some(operation) = self.dir.health.begin() else { return false };
        self.look_within(&operation, Look::Use);
        let touched = blocks::touched(range);
        let held = self.held();
        let result = match &held {
            Held::Whole(whole) => {
                let sums = whole.sums.get(touched.start as usize..touched.end as usize);
                sums.map(|sums| self.source(&whole.file, whole.is_direct).read(range, sums, into))
            }
            Held::Partial(part) => {
                let sums = part.sums(touched.clone());
                sums.map(|sums| self.source(&part.file, part.is_direct).read(range, &sums, into))
            }
            Held::Nothing | Held::Closed | Held::Unknown => None,
        };
        match result {
            None => false,
            Some(Ok(())) => {
                self.on_read(range, &held);
                true
            }
            Some(Err(Fault::Io(error))) => {
                self.on_unreadable("read", &held, touched, &error);
                false
            }
            Some(Err(Fault::Corrupt)) => {
                self.on_corrupt(&held, touched);
                false
            }
        }
    }

    fn source<'a>(&'a self, file: &'a File, is_direct: bool) -> Source<'a> {
        Source { io: &self.dir.io, file, is_direct, size: self.named.size }
    }

    fn on_read(&self, range: ByteRange, held: &Held) {
        self.dir.health.on_success();
        self.dir.metrics.reads.inc();
        self.dir.metrics.read_bytes.add(range.len());
        match held {
            Held::Whole(whole)
                if whole.is_trusted() && range.len() == self.named.size && range.len() <= SMALL_BYTES =>
            {
                self.replace(held, Held::Closed);
            }
            _ => self.state().used = self.dir.clock.now(),
        }
    }

    fn try_keep(&self, offer: &Offer) -> io::Result<Option<Dropped>> {
        let Offer { range, bytes, is_compared, .. } = offer;
        if self.state().is_too_long {
            return Ok(Some(Dropped::Long));
        }
        if !self.dir.health.may_write() {
            return Ok(Some(Dropped::Disk));
        }
        let Some(operation) = self.dir.health.begin() else { return Ok(Some(Dropped::Disk)) };
        self.look_within(&operation, Look::Use);
        let is_all = range.start() == 0 && range.end() == self.named.size;
        if self.given_up() != offer.given_up {
            return Ok(None);
        }
        let dropped = match self.held() {
            Held::Whole(_) | Held::Closed => return Ok(None),
            Held::Nothing | Held::Unknown if is_all => self.publish(bytes, *is_compared),
            Held::Nothing | Held::Unknown | Held::Partial(_) => self.add(*range, bytes),
        };
        if self.given_up() != offer.given_up {
            // The bytes turned out to be wrong while they were written.
            self.delete(&self.held());
            self.set(Held::Nothing);
            return Ok(None);
        }
        // The version may be whole now, and its right CRC may be known already.
        self.compare(&operation);
        dropped
    }

    fn publish(&self, bytes: &[u8], is_compared: bool) -> io::Result<Option<Dropped>> {
        if !whole::publish(&self.dir, &self.named, bytes, is_compared)? {
            return Ok(Some(Dropped::Room));
        }
        self.dir.health.on_written();
        self.set(Held::Closed);
        let mut state = self.state();
        state.is_compared = is_compared;
        if is_compared {
            state.right = None;
        }
        drop(state);
        Ok(None)
    }

    /// Adds blocks to the partial object.
    fn add(&self, range: ByteRange, bytes: &[u8]) -> io::Result<Option<Dropped>> {
        let Some(part) = self.own_part()? else { return Ok(Some(Dropped::Filled)) };
        let blocks = blocks::covered(range, self.named.size);
        if blocks.is_empty() {
            return Ok(None);
        }
        let skipped = blocks.start * BLOCK_BYTES - range.start();
        let bytes =
            usize::try_from(skipped).ok().and_then(|skipped| bytes.get(skipped..)).unwrap_or_default();
        match part.write(&self.dir, &self.named, blocks, bytes)? {
            Written::NoRoom => return Ok(Some(Dropped::Room)),
            Written::Done => {}
            Written::Complete => {
                let whole = self.finish(&part)?;
                self.set(whole.map_or(Held::Unknown, |whole| Held::Whole(Arc::new(whole))));
            }
        }
        self.dir.health.on_written();
        Ok(None)
    }

    /// The partial object that this process fills. `None` if another process fills it, or if the object is whole by
    /// now.
    fn own_part(&self) -> io::Result<Option<Arc<PartialObject>>> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        match self.held() {
            Held::Partial(part) if part.is_owned() => return Ok(Some(part)),
            Held::Whole(_) | Held::Closed => return Ok(None),
            Held::Partial(_) | Held::Nothing | Held::Unknown => {}
        }
        let Some(part) = PartialObject::own(&self.dir, &self.named)?.map(Arc::new) else { return Ok(None) };
        self.parts.insert(&self.named, &part);
        self.set(Held::Partial(part.clone()));
        Ok(Some(part))
    }

    /// Closes a file that is unused, or that another process has deleted.
    pub(crate) fn tidy(&self) {
        let (held, is_idle) = {
            let state = self.state();
            (state.held.clone(), self.dir.clock.now().since(state.used) >= CLOSE_AFTER)
        };
        match &held {
            Held::Whole(whole) if partial::is_deleted(&whole.file) => self.replace(&held, Held::Unknown),
            Held::Whole(whole) if is_idle && whole.is_trusted() => self.replace(&held, Held::Closed),
            Held::Partial(part) if part.is_deleted() => self.replace(&held, Held::Unknown),
            Held::Whole(_) | Held::Partial(_) | Held::Nothing | Held::Closed | Held::Unknown => {}
        }
    }

    /// Replaces the state `before` by `held`, unless it has changed.
    fn replace(&self, before: &Held, held: Held) {
        let mut state = self.state();
        let is_same = match (&state.held, before) {
            (Held::Whole(now), Held::Whole(before)) => Arc::ptr_eq(now, before),
            (Held::Partial(now), Held::Partial(before)) => Arc::ptr_eq(now, before),
            _ => false,
        };
        if is_same {
            state.held = held;
        }
    }

    /// Treats the version as not here from now on. Returns what to [delete](Self::delete). Does not block.
    pub(crate) fn give_up(&self) -> Held {
        self.state().given_up += 1;
        let held = self.held();
        self.set(Held::Nothing);
        held
    }

    /// How often the version was given up. Does not block.
    pub(crate) fn given_up(&self) -> u64 {
        self.state().given_up
    }

    /// Deletes the version's files.
    pub(crate) fn delete(&self, held: &Held) {
        let part = match held {
            Held::Partial(part) if part.is_owned() => Some(part.clone()),
            _ => self.parts.get(&self.named.hash),
        };
        self.parts.remove(&self.named.hash);
        let part = match part {
            Some(part) => part.forget(&self.dir, &self.named),
            None => partial::discard(&self.dir, &self.named),
        };
        if let Err(error) = whole::remove(&self.dir, &self.named).and(part) {
            self.dir.health.on_error("delete", &error);
        }
    }
}
