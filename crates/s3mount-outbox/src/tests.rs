//! Entries that live through kills, power cuts and a disk that refuses.

mod damage;
mod faulty;
mod folder;
mod many;
mod model;
mod names;
mod refusals;
mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use s3mount_object::NewObject;

use crate::{Entry, EntryId, Kept, KeptBytes, Mark, Outbox, OutboxError};

/// Waits for what does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// An entry with something in all its fields.
fn entry(id: EntryId, key: &str) -> Entry {
    Entry {
        key: key.to_owned(),
        condition: None,
        object: NewObject {
            content_type: Some("text/plain".into()),
            metadata: [("mode".to_owned(), id.to_string())].into(),
            tags: Some("a=1&b=2".into()),
            ..NewObject::default()
        },
        leaves: None,
        modified: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789 + id.0),
        mark: Mark { family: 7, file: id.0 as u32 },
    }
}

/// Bytes that no other seed gives.
fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..).flat_map(|at: u64| (seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.take(len).collect()
}

/// Puts bytes in two pieces, and notes the number of the entry.
fn put(
    outbox: &Outbox,
    key: &str,
    bytes: &[u8],
    replaced: Option<EntryId>,
    given: &Arc<AtomicU64>,
) -> Result<Kept, OutboxError> {
    let (one, other) = bytes.split_at(bytes.len() / 3);
    let (key, given) = (key.to_owned(), given.clone());
    let make = move |id: EntryId| {
        given.store(id.0, Ordering::Relaxed);
        entry(id, &key)
    };
    now(outbox.put(make, vec![Bytes::copy_from_slice(one), Bytes::copy_from_slice(other)], replaced))
}

/// All bytes of an entry.
fn read(kept: &KeptBytes) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(kept.size()).expect("a short one")];
    kept.read(0, &mut bytes).expect("they can be read");
    bytes
}
