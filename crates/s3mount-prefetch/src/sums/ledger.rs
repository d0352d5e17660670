//! What is known of the bytes that came of a version, also after its last handle was closed.
//!
//! The kernel's page cache keeps bytes of a file that was closed, and drops some of them when it likes. Who opens the
//! file again then gets some of its bytes from there, and the others by new GETs. These are compared with what the same
//! ranges were before, and what was never fetched before completes the object, as if it had stayed open.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use s3mount_memory::{MemoryBudget, Reservation};
use s3mount_object::{ObjectChecksum, ObjectId};
use tokio::sync::OnceCell;

use super::crc_map::CrcMap;
use super::upload_parts::UploadParts;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The pieces whose memory is reserved at once, and the memory of each, with its place in the map.
pub(crate) const PIECES_AT_ONCE: usize = 32;
pub(crate) const PIECE_BYTES: u64 = 112;

/// The ledgers together may keep this share of the memory for versions that nobody reads. In 512 MiB these are the CRCs
/// of 36 GiB.
const SHARE: u64 = 16;

/// The most ledgers. One without pieces takes some hundred bytes.
const MOST: usize = 8192;

/// The checksums that the store keeps of an object.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Nothing,
    Whole(ObjectChecksum),
    Parts(Arc<UploadParts>),
}

/// What came of one version.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The store's checksums, once it has answered.
    pub(crate) kept: OnceCell<Kept>,
    pub(crate) state: Mutex<Verification>,
}

#[derive(Debug)]
pub(crate) struct Verification {
    pub(crate) asked_bytes: u64,
    /// The CRCs of the ranges that came. `None` when the object can't be verified.
    pub(crate) pieces: Option<CrcMap>,
    /// Whether the whole object, or each of its parts, was compared and right. Empty before the first comparison.
    pub(crate) was_right: Vec<bool>,
    /// The CRC-64/NVME of the version's right bytes, once they were compared.
    pub(crate) right: Option<u64>,
    /// Whether a metric has counted the object as verified or unverified.
    pub(crate) was_counted: bool,
    /// The memory of the pieces.
    reserved: Reserved,
}

/// The memory of pieces; each reservation is for [`PIECES_AT_ONCE`] of them.
#[derive(Debug)]
struct Reserved {
    pieces: Vec<Reservation>,
    /// What all ledgers have reserved, in bytes.
    all_bytes: Arc<AtomicU64>,
}

impl Reserved {
    fn clear(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        let bytes = self.pieces.len() as u64 * PIECES_AT_ONCE as u64 * PIECE_BYTES;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.pieces.clear();
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Verification {
    pub(crate) fn new(pieces: CrcMap, all_bytes: Arc<AtomicU64>) -> Self {
        let reserved = Reserved { pieces: Vec::new(), all_bytes };
        let (pieces, was_right) = (Some(pieces), Vec::new());
        Self { asked_bytes: 0, pieces, was_right, right: None, was_counted: false, reserved }
    }

    /// Reserves the memory of one more piece in `budget`. Returns whether there was enough.
    pub(crate) fn make_room(&mut self, budget: &MemoryBudget) -> bool {
        let pieces = self.pieces.as_ref().map_or(0, CrcMap::len);
        while pieces >= self.reserved.pieces.len() * PIECES_AT_ONCE {
            let bytes = PIECES_AT_ONCE as u64 * PIECE_BYTES;
            match budget.try_keep(bytes) {
                Some(more) => self.reserved.pieces.push(more),
                None => return false,
            }
            self.reserved.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        true
    }

    /// Gives the pieces up: the object can't be verified.
    pub(crate) fn give_up(&mut self) {
        self.pieces = None;
        self.reserved.clear();
    }
}

/// The ledgers of the versions that were read last.
#[derive(Debug)]
pub(crate) struct Ledgers {
    known: Mutex<Known>,
    all_bytes: Arc<AtomicU64>,
    most_bytes: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// Each ledger, with the turn of its last use.
    ledgers: HashMap<ObjectId, (u64, Arc<Ledger>)>,
    by_use: BTreeMap<u64, ObjectId>,
    turn: u64,
}

impl Known {
    fn take(&mut self, object: &ObjectId) -> Option<Arc<Ledger>> {
        let (turn, ledger) = self.ledgers.remove(object)?;
        self.by_use.remove(&turn);
        Some(ledger)
    }

    fn put(&mut self, object: ObjectId, ledger: Arc<Ledger>) {
        self.turn += 1;
        self.by_use.insert(self.turn, object.clone());
        self.ledgers.insert(object, (self.turn, ledger));
    }

    fn take_oldest(&mut self) -> Option<Arc<Ledger>> {
        let (_, object) = self.by_use.pop_first()?;
        self.ledgers.remove(&object).map(|(_, ledger)| ledger)
    }
}

impl Ledgers {
    /// No ledgers yet. They keep a share of `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { known: Mutex::default(), all_bytes: Arc::default(), most_bytes: limit_bytes / SHARE }
    }

    /// The ledger of a version of `size` bytes, with what earlier readers have noted. A new one has pieces of up to
    /// `block_bytes`.
    pub(crate) fn of(&self, object: &ObjectId, size: u64, block_bytes: u64) -> Arc<Ledger> {
        let known = &mut *lock(&self.known);
        let ledger = known.take(object).unwrap_or_else(|| {
            let state = Verification::new(CrcMap::new(size, block_bytes), self.all_bytes.clone());
            Arc::new(Ledger { kept: OnceCell::new(), state: Mutex::new(state) })
        });
        while (self.all_bytes.load(Ordering::Relaxed) > self.most_bytes || known.ledgers.len() >= MOST)
            && known.take_oldest().is_some()
        {}
        known.put(object.clone(), ledger.clone());
        ledger
    }

    /// Forgets what is known of a version: wrong bytes of it came.
    pub(crate) fn forget(&self, object: &ObjectId) {
        lock(&self.known).take(object);
    }

    /// Forgets all versions, because memory is short. What is read keeps its own ledger.
    pub(crate) fn clear(&self) {
        let ledgers = std::mem::take(&mut *lock(&self.known));
        drop(ledgers);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use s3mount_memory::MemoryBudget;
    use s3mount_object::{ByteRange, ETag, ObjectId};

    use super::{Ledger, Ledgers, PIECE_BYTES, PIECES_AT_ONCE, Verification};
    use crate::sums::crc_map::{CrcMap, Sums};
    use crate::sync::{Ordering, lock};

    fn note(ledger: &Ledger, budget: &MemoryBudget, at: u64) {
        let state = &mut *lock(&ledger.state);
        assert!(state.make_room(budget));
        let range = ByteRange::new(at * 4096, at * 4096 + 1);
        state.pieces.as_mut().expect("pieces").note(range, Sums::of(&[1], None));
    }

    #[test]
    fn sums_are_a_part_of_the_memory() {
        let budget = MemoryBudget::new(10 * PIECES_AT_ONCE as u64 * PIECE_BYTES);
        let mut state = Verification::new(CrcMap::new(1 << 40, 1 << 10), Arc::default());
        let noted = (0..1000).take_while(|at| {
            let range = ByteRange::new(at * 4096, at * 4096 + 1);
            let has_room = state.make_room(&budget);
            state.pieces.as_mut().expect("pieces").note(range, Sums::of(&[1], None));
            has_room
        });
        assert_eq!(noted.count(), 10 * PIECES_AT_ONCE);
        assert_eq!(budget.used_bytes(), budget.limit_bytes());
        state.give_up();
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_version_that_is_opened_again_is_known_until_others_need_the_memory() {
        let budget = MemoryBudget::new(1 << 20);
        let ledgers = Ledgers::new(16 * 3 * PIECES_AT_ONCE as u64 * PIECE_BYTES);
        let id = |number: u32| ObjectId::new(&number.to_string(), ETag::new("\"1\""));
        let of = |number| ledgers.of(&id(number), 1 << 30, 1 << 10);
        let pieces = |number| lock(&of(number).state).pieces.as_ref().map_or(0, CrcMap::len);
        (0..3).for_each(|number| note(&of(number), &budget, 1));
        assert_eq!([0, 1, 2].map(pieces), [1, 1, 1], "three fit");
        ledgers.forget(&id(1));
        assert_eq!(pieces(1), 0);
        (3..6).for_each(|number| note(&of(number), &budget, 1));
        assert_eq!(pieces(0), 0, "it was used longest ago");
        assert_eq!(pieces(5), 1);
        ledgers.clear();
        assert_eq!((pieces(5), ledgers.all_bytes.load(Ordering::Relaxed), budget.used_bytes()), (0, 0, 0));
    }
}
