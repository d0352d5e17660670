//! The single memory bound.
//!
//! [`MemoryBudget`] counts memory, and [`BufferPool`] hands it out. Every payload byte of the daemon lies in a
//! [`Buffer`] of the pool, and every buffer holds a [`Reservation`] of the budget. So the pool's region itself is the
//! bound: a caller can only wait, never exceed it.
//!
//! Memory is asked for with one of two priorities. A reader that waits ([`Priority::Demand`]) may take the last byte,
//! and queues when there is none. Requests are served in order of arrival, except that a bounded number of smaller ones
//! may pass a large one. Reading ahead ([`Priority::Prefetch`]) takes only memory that is free beyond a small reserve.
//! It never waits, and gets nothing while a reader queues. So reading ahead can't starve a reader. The pool can't
//! deadlock, because the buffers that a reader waits for are given back without that reader.
//!
//! Files that are being written hold bytes that are nowhere else, so their buffers can't be reclaimed. Their buffers
//! come through a [`Share`], which bounds all of them together. Readers always have the rest of the pool. Inside the
//! share, a caller that can give nothing back before it has got more ([`Need::Least`]) has a half that is handed out
//! only as a whole of all that such a caller needs: so callers that each have a piece never wait for one another. At
//! the pool, a share leaves the reserve to readers, or queues with them: then readers give memory back, and no reader
//! waits for a writer. What a share waits for may come in pieces: between buffers that nobody can ask back, large
//! pieces may never grow together.
//!
//! The limit may change while all this goes on ([`BufferPool::set_limit`]), so that the mounts of a machine share its
//! memory. Whoever holds memory that is not given back when readers want it counts with the least limit
//! ([`MemoryBudget::least_bytes`]).
//!
//! **Lock order:** the pool has one lock, which is taken last. Nothing is called while it is held.

mod available;
mod away;
mod buddy;
mod budget;
mod heap;
mod pages;
mod pool;
mod queue;
mod region;
mod share;
mod sync;

pub use available::{group_bytes, machine_bytes, page_cache_bytes};
pub use budget::{MemoryBudget, Reservation};
pub use heap::{keep_heap_small, share_heaps, trim_heap};
pub use pool::{Buffer, BufferFuture, BufferPool, Priority};
pub use share::{Line, Need, Pieces, Share, ShareBuffer};

/// Buffers are multiples of this many bytes. It is the largest page size in use (arm64's 64 KiB), and small
/// enough that a small file wastes little.
pub const UNIT_BYTES: usize = 64 << 10;
