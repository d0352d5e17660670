//! The single memory bound.
//!
//! [`MemoryBudget`] counts; [`BufferPool`] hands out. Every payload byte of the daemon lies in a
//! [`Buffer`] of the pool, and every buffer holds a [`Reservation`] of the budget, so the bound is
//! the pool's region itself: it cannot be exceeded, only waited for.
//!
//! Two classes ask for memory. A reader that waits ([`Priority::Demand`]) may take the last byte
//! and queues when there is none: first come first served, except that a bounded number of those behind
//! may take what is too small for the first. Reading ahead
//! ([`Priority::Prefetch`]) takes only what is free beyond a small reserve, never waits, and gets
//! nothing while a reader queues. So reading ahead can't starve a reader, and the pool can't
//! deadlock: whatever a reader waits for is held by buffers that are given back without it.
//!
//! **Lock order:** the pool has one lock, taken last; nothing is called while it is held.

mod available;
mod buddy;
mod budget;
mod heap;
mod pages;
mod pool;
mod queue;
mod region;
mod sync;

pub use available::{group_bytes, machine_bytes, page_cache_bytes};
pub use budget::{MemoryBudget, Reservation};
pub use heap::trim_heap;
pub use pool::{Buffer, BufferFuture, BufferPool, Priority};

/// Buffers are multiples of this many bytes: a page of the slowest page size in use (arm64's 64
/// KiB), and fine enough that a small file wastes little.
pub const UNIT_BYTES: usize = 64 << 10;
