//! From reads to GETs: what is fetched, when, and how long it is kept.
//!
//! [`Prefetcher::open`] gives an [`ObjectReader`], one for each object *version*, shared by every
//! handle that has it open. Its state, behind one lock:
//!
//! - the *segment map* ([`segment`]): ordered ranges, each one GET: in flight with its waiters, or
//!   ready. A read is answered from the segments that cover it, or waits on the first one that is
//!   not there yet. So a byte range is fetched once, however many want it;
//! - the *stream table* ([`stream`]): up to 512 sequential readers, recognised by offset and not by
//!   handle, each with a [`window`] of bytes to keep ahead of it. Both are pure: reads in, plans out.
//!
//! A read that belongs to no stream is random. It fetches what it asked for, rounded to whole
//! blocks, and the blocks move to the [`BlockCache`](s3mount_cache::BlockCache) when they land.
//!
//! **Memory.** A GET is only started with a buffer of the pool in hand. Reading ahead takes what
//! is free, or waits for its next chance; a reader that waits queues at the pool, and
//! [`reclaim`] then takes back, in this order: segments that were consumed, cached blocks,
//! the far end of the largest windows.
//!
//! **Verifying.** With [`PrefetchConfig::verify_whole`], each GET's bytes pass a `Verifier` on their
//! way into the segment map (`verify.rs`). A version that turns out to be wrong is dropped from
//! everywhere, and its readers fail; the next one to open it starts anew.
//!
//! **Threads.** [`ObjectReader::read`] never waits: it answers in the calling thread when the bytes
//! are there, else from the task of the GET that brings them. A caller's reply is never called
//! with a lock held.
//!
//! **Lock order:** the prefetcher's registry or reclaim's givers, then one reader's state, then its
//! verifier's or reclaim's list, then the pool. Two readers are never locked at once. The locks of `ahead.rs`
//! and `turns.rs` are held for nothing else.

mod ahead;
mod concurrency;
mod config;
mod error;
mod fetch;
mod hedge;
mod latency;
mod learn;
mod metrics;
mod need;
mod prefetcher;
mod reader;
mod readers;
mod reclaim;
mod segment;
mod shared;
mod stream;
mod sums;
mod sync;
mod turns;
mod upload_parts;
mod verify;
mod window;

pub use config::PrefetchConfig;
pub use error::ReadError;
pub use metrics::{PrefetchMetrics, Tier};
pub use prefetcher::Prefetcher;
pub use reader::ObjectReader;

/// Segment edges lie on multiples of this many bytes wherever a plan may choose: the largest read
/// request of the kernel, so that one is answered from one segment, without a copy.
const EDGE_BYTES: u64 = 1 << 20;
