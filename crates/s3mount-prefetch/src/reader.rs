//! One object version, as all its readers see it.
//!
//! The [state](state) behind the reader's lock knows the bytes in memory, the GETs in flight, and the waiting reads.
//! The [planner](plan) chooses the next GET. Both are pure. The other modules carry out their decisions: reads
//! (`read.rs`), GETs (`gets.rs`), memory that is given back (`reclaim.rs`, `idle.rs`), the objects before and after
//! this one (`seam.rs`), what the mount learns (`learning.rs`), and wrong bytes (`quarantine.rs`).

mod gets;
mod handles;
mod idle;
mod learning;
mod plan;
mod quarantine;
mod read;
mod reclaim;
mod seam;
pub(crate) mod segment;
mod spare;
mod state;
pub(crate) mod view;
mod waiter;

use std::fs::File;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use s3mount_object::{ByteRange, ObjectId};

use self::state::ReaderState;
use crate::ReadError;
use crate::readers::Readers;
use crate::readers::reclaim::ReaderId;
use crate::shared::Shared;
use crate::stream::Access;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, lock};
use crate::verify::Verifier;
use crate::version::Version;

/// Reads one object version: at once if the bytes are in memory, else when their GET lands.
#[derive(Debug)]
pub struct ObjectReader {
    shared: Arc<Shared>,
    readers: Arc<Readers<ObjectReader>>,
    version: Arc<Version>,
    /// This reader's number in the books of reclaim.
    id: ReaderId,
    verifier: Option<Arc<Verifier>>,
    /// Set when wrong bytes of the version came.
    quarantined: OnceLock<()>,
    /// Whether the reader asks which object follows.
    is_near_end: AtomicBool,
    locked: Mutex<Locked>,
    me: Weak<ObjectReader>,
}

/// The data behind a reader's lock.
#[derive(Debug)]
struct Locked {
    state: ReaderState,
    /// The object that follows this one.
    next: Next,
    /// The reader whose following object is asked for.
    asks: Option<Weak<ObjectReader>>,
}

/// What an object's reader knows of the object that follows.
#[derive(Debug, Default)]
enum Next {
    /// No stream has come near the end yet.
    #[default]
    Unknown,
    /// It was asked for, or none of it is to be fetched.
    Asked,
    /// The reader of the following object, and the number of bytes in memory or in flight, counted from that object's
    /// beginning on and through the objects after it.
    Known(Weak<ObjectReader>, u64),
}

impl ObjectReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        readers: Arc<Readers<ObjectReader>>,
        object: ObjectId,
        size: u64,
    ) -> Arc<Self> {
        let block = shared.config.random_read_bytes;
        let verify = shared.config.verify_whole;
        let version = Version::new(object, size, &shared.tiers);
        let ledger = || shared.ledgers.of(&version.object, size, block);
        let verifier = verify.then(|| Arc::new(Verifier::new(version.clone(), ledger())));
        let state = ReaderState::new(size, shared.config.read_timeout, shared.metrics.clone());
        Arc::new_cyclic(|me| Self {
            id: readers.books.new_id(),
            shared,
            readers,
            version,
            verifier,
            quarantined: OnceLock::new(),
            is_near_end: AtomicBool::new(false),
            locked: Mutex::new(Locked { state, next: Next::default(), asks: None }),
            me: me.clone(),
        })
    }

    /// The version it reads.
    pub fn object(&self) -> &ObjectId {
        &self.version.object
    }

    /// The object's size in bytes.
    pub fn size(&self) -> u64 {
        self.version.size
    }

    /// Whether a disk of this machine holds the whole version, so that the kernel can read it by itself. Waits for the
    /// disk, for a bounded time. `is_guess`: the read is only predicted, so the check does not count as a use of the
    /// version.
    pub async fn is_whole(&self, is_guess: bool) -> bool {
        let Some(disk) = &self.version.disk else { return false };
        if is_guess {
            disk.look_for_guess().await;
        } else {
            disk.look().await;
        }
        disk.whole_file().is_some()
    }

    /// Calls `then` with the file on a disk of this machine that holds the whole version, byte for byte: in this thread
    /// if the file is known, else in a thread of the disk cache, which `then` must not hold up.
    pub fn with_whole_file(&self, then: impl FnOnce(Option<Arc<File>>) + Send + 'static) {
        match &self.version.disk {
            Some(disk) => disk.with_whole_file(then),
            None => then(None),
        }
    }

    /// Whether the object is small enough to be fetched whole.
    pub fn is_small(&self) -> bool {
        self.size() <= self.shared.config.small_object_bytes
    }

    /// Reads up to `len` bytes from `offset` and passes them to `reply`: fewer at the object's end, and none beyond it.
    /// Never waits: calls `reply` before it returns if the bytes are in memory, else later in another thread.
    pub fn read<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, None, reply);
    }

    /// Reads as [`read`](Self::read) does, but apart from all streams. Fetches the requested bytes, rounded to blocks,
    /// even if a neighbour was read just before. Takes a read of few pages for a part of a small record, and fetches
    /// the record's next pages with it.
    pub fn read_apart<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, Some(Access::Paged), reply);
    }

    /// Starts the GET of the whole object if the object is small and none of it is in memory or in flight, because its
    /// reader will ask for it in a moment. Does nothing when memory is short.
    pub fn fetch_if_small(&self) {
        if self.is_small() {
            self.fetch_ahead(None);
        }
    }

    /// Whether `range`, which was fetched ahead, was not read yet. It is in memory or in flight, or it was given back
    /// because memory was short.
    pub fn is_unread(&self, range: ByteRange) -> bool {
        let state = &mut self.lock().state;
        state.segments.covering(range.start()).is_some_and(|segment| !segment.is_consumed())
            || state.reclaimed.iter().any(|before| before.contains(range.start()))
    }

    /// Drops the bytes of `range` that were fetched ahead, because no read of them is expected any more.
    pub fn let_go(&self, range: ByteRange) {
        self.lock().state.drop_hinted(range);
    }

    /// Whether an active stream goes on with `range`.
    pub fn is_streamed(&self, range: ByteRange) -> bool {
        let end = range.end().min(self.size());
        range.start() < end && self.lock().state.streams.is_going_on(ByteRange::new(range.start(), end))
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        lock(&self.locked)
    }

    /// The time that the policies see.
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Updates the number of streams of all readers that take a share of the memory.
    fn count_active(&self, state: &mut ReaderState) {
        let (before, active) = (state.active_streams, state.count_streams());
        let count = &self.shared.active_streams;
        if active > before {
            count.fetch_add(active - before, Ordering::Relaxed);
        } else if active < before {
            count.fetch_sub(before - active, Ordering::Relaxed);
        }
        state.active_streams = active;
    }

    /// Called by the housekeeper once a second.
    pub(crate) fn tick(&self) {
        let state = &mut self.lock().state;
        state.tick();
        self.note_left(state);
        state.rest_quiet(self.now());
        self.count_active(state);
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.readers.forget(&self.version.object);
        self.note_reading(&mut self.lock().state, true);
        self.shared.backfill_queue.on_close(&self.version, false);
        let Locked { state, .. } = self.locked.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.active_streams.fetch_sub(state.active_streams, Ordering::Relaxed);
        state.abort_all();
        let books = &self.readers.books;
        if state.was_visited {
            books.list(self.id, Weak::new());
        } else if state.is_listed {
            books.unlist(self.id);
        }
    }
}
