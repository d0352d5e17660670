//! One object version, as all its readers see it.
//!
//! What is here and on its way, and who waits for it, is the [state](state) behind the reader's lock. What is
//! fetched next is the [planner](plan)'s to say. The rest of the folder acts: reads (`read.rs`), GETs
//! (`gets.rs`), memory that is given back (`reclaim.rs`), and the objects before and after this one
//! (`seam.rs`).

mod condemn;
mod gets;
mod learning;
mod plan;
mod read;
mod reclaim;
mod seam;
mod spare;
mod state;
mod waiter;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use s3mount_object::{ByteRange, ObjectId};

use self::state::State;
use crate::ReadError;
use crate::readers::Readers;
use crate::reclaim::ReaderId;
use crate::shared::Shared;
use crate::stream::Access;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, lock};
use crate::verify::Verifier;

/// Reads one object version: from memory if the bytes are there, else when their GET lands.
#[derive(Debug)]
pub struct ObjectReader {
    shared: Arc<Shared>,
    readers: Arc<Readers<ObjectReader>>,
    object: ObjectId,
    size: u64,
    /// What reclaim knows it by.
    id: ReaderId,
    verifier: Option<Arc<Verifier>>,
    /// Set once wrong bytes of the version came.
    condemned: OnceLock<()>,
    /// Whether it is to be told what follows the object.
    is_near_end: AtomicBool,
    locked: Mutex<Locked>,
    me: Weak<ObjectReader>,
}

/// What is behind a reader's lock.
#[derive(Debug)]
struct Locked {
    state: State,
    /// What follows the object.
    next: Next,
    /// The reader of which it is to be told what follows.
    asks: Option<Weak<ObjectReader>>,
}

/// What an object's reader knows of the object that follows.
#[derive(Debug, Default)]
enum Next {
    /// No stream came near the end yet.
    #[default]
    Unknown,
    /// It was asked for, or nothing is to be fetched of it.
    Asked,
    /// Its reader, and how many bytes from its beginning on are here or on their way, of it and of those that
    /// follow.
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
        let verifier = verify.then(|| Arc::new(Verifier::new(object.clone(), size, block)));
        let state = State::new(size, shared.metrics.clone());
        Arc::new_cyclic(|me| Self {
            id: readers.books.new_id(),
            shared,
            readers,
            object,
            size,
            verifier,
            condemned: OnceLock::new(),
            is_near_end: AtomicBool::new(false),
            locked: Mutex::new(Locked { state, next: Next::default(), asks: None }),
            me: me.clone(),
        })
    }

    /// The version it reads.
    pub fn object(&self) -> &ObjectId {
        &self.object
    }

    /// The object's size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the object is so small that it is fetched whole.
    pub fn is_small(&self) -> bool {
        self.size <= self.shared.config.small_object_bytes
    }

    /// Reads up to `len` bytes from `offset` and hands them to `reply`: fewer at the object's
    /// end, none behind it. Never waits: `reply` is called before this returns when the bytes are
    /// here, else later from another thread.
    pub fn read<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, None, reply);
    }

    /// Reads as [`read`](Self::read) does, and apart from all streams: what is fetched is what is asked
    /// for, rounded to blocks, even if a neighbour was read just before. A read of few pages is taken for a
    /// part of a small window: it is fetched with the next pages.
    pub fn read_apart<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, Some(Access::Paged), reply);
    }

    /// Starts the GET of the whole object, if it is small and nothing of it is here: its reader will
    /// ask for it in a moment. Nothing happens where memory is short.
    pub fn fetch_if_small(&self) {
        if self.is_small() {
            self.fetch_ahead(None);
        }
    }

    /// Whether `range`, which was fetched ahead, was not read yet: it is here or on its way, or was given
    /// back because memory was short.
    pub fn is_unread(&self, range: ByteRange) -> bool {
        let state = &mut self.lock().state;
        state.segments.covering(range.start()).is_some_and(|segment| !segment.is_consumed())
            || state.reclaimed.iter().any(|before| before.contains(range.start()))
    }

    /// Gives up what was fetched ahead of `range`: nobody is expected to read it any more.
    pub fn let_go(&self, range: ByteRange) {
        self.lock().state.drop_hinted(range);
    }

    /// Whether a stream that is being read goes on with `range`.
    pub fn is_streamed(&self, range: ByteRange) -> bool {
        let end = range.end().min(self.size);
        range.start() < end && self.lock().state.streams.is_going_on(ByteRange::new(range.start(), end))
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        lock(&self.locked)
    }

    /// The time that policies count in.
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Counts the streams of this reader that take a share of the memory.
    fn count_active(&self, state: &mut State) {
        let (before, active) = (state.active_streams, state.count_streams());
        let count = &self.shared.active_streams;
        if active > before {
            count.fetch_add(active - before, Ordering::Relaxed);
        } else if active < before {
            count.fetch_sub(before - active, Ordering::Relaxed);
        }
        state.active_streams = active;
    }

    /// The housekeeper's look, once a second.
    pub(crate) fn tick(&self) {
        let state = &mut self.lock().state;
        state.tick();
        self.count_active(state);
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.readers.forget(&self.object);
        self.note_reading(&mut self.lock().state, true);
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
