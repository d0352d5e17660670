//! From reads to GETs: which bytes are fetched, when, and how long they are kept.
//!
//! [`Prefetcher::open`] returns an [`ObjectReader`]. There is one for each object *version*, shared by every
//! handle that has the version open. Behind its one lock it has:
//!
//! - the *segment map* ([`reader::segment`]): ordered ranges. Each is one GET, which is in flight with its waiters, or
//!   ready. A read is answered from the segments that cover it, or it waits for the first segment that is in
//!   flight. So a byte range is fetched once, however many readers want it;
//! - the *stream table* ([`stream`]): up to 512 sequential readers, recognised by offset and not by handle.
//!   Each has a [`limits::window`] of bytes to keep ahead of it. Both are pure: reads go in, and plans come out.
//!
//! A read that belongs to no stream is random. It fetches the bytes that it asked for, rounded to whole
//! blocks. When the blocks land, they move to the [`BlockCache`](s3mount_cache::BlockCache).
//!
//! **Memory.** A GET is sent only with a buffer of the pool in hand. A GET ahead of its reader takes memory that is
//! free, or waits for its next chance. A reader that waits queues at the pool. Then [`readers::reclaim`] takes memory back in
//! this order: consumed segments, bytes ahead of idle streams, cached blocks, the far ends of the largest windows. A
//! GET ahead of an active stream also takes memory from idle streams ([`readers::idle`]).
//!
//! **Verifying.** With [`PrefetchConfig::verify_whole`], the bytes of each GET pass a `Verifier` (`verify.rs`) on their
//! way into the segment map. When bytes of a version turn out to be wrong, the prefetcher drops the version everywhere,
//! and its readers fail. The next open of that object starts anew.
//!
//! **Threads.** [`ObjectReader::read`] never waits. When the bytes are in memory, it answers in the calling thread,
//! else in the task of the GET that brings them. No lock is held while a caller's reply runs.
//!
//! **Lock order:** the list of open readers or the reclaim order of [`readers::reclaim`], then the state of one reader,
//! then the reader's verifier, the list of changed readers or that of idle ones, then the pool. Two readers are never
//! locked at once. No other lock is taken under the locks of `limits/ahead.rs` and `limits/request_permits.rs`.
//!
//! **Layers:** [`shared`] knows no reader. [`fetch`] and [`verify`] send one GET on top of it. [`reader`]
//! decides with pure policies which GETs are sent, and [`prefetcher`] opens readers.

mod backfill_queue;
mod config;
mod error;
mod fetch;
mod fill;
mod learn;
mod limits;
mod memory_view;
mod metrics;
mod prefetcher;
mod reader;
mod readers;
mod shared;
mod stream;
mod sums;
mod sync;
mod tiers;
mod verify;
mod version;

pub use config::PrefetchConfig;
pub use error::ReadError;
pub use memory_view::MemoryView;
pub use metrics::{PrefetchMetrics, Tier};
pub use prefetcher::Prefetcher;
pub use prefetcher::lately::OpenReader;
pub use prefetcher::warm_cache::WarmError;
pub use reader::ObjectReader;
pub use reader::view::{ReaderView, StreamView};
pub use tiers::{KeyFilter, Tiers};

/// Where a plan has a choice, segments begin and end at multiples of this many bytes. The kernel's largest read request
/// has this length, so one segment answers it without a copy.
const EDGE_BYTES: u64 = 1 << 20;
