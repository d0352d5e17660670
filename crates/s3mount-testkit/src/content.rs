//! Content that can be computed from a key and an offset.
//!
//! An object is a row of blocks of 1 MiB. Each block is a part of one ring of random bytes. The key and the
//! block's number decide where in the ring the block begins. So any range of an object of any size can be
//! read, and nothing of it is stored. A check also notices blocks that were swapped, shifted or taken from
//! another object.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::random::mix;

/// The length of a block in bytes.
const BLOCK: u64 = 1 << 20;

/// The length of the ring in bytes. It is twice the last-level cache of a small machine. So to send bytes of
/// the ring costs as much as to send any other memory.
const RING: usize = 32 << 20;

/// The hash FNV-1a of the text's bytes, with its bits mixed.
pub(crate) fn hash(text: &str) -> u64 {
    let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

/// The ring, with its first block repeated behind its end.
fn ring() -> &'static Bytes {
    static RING_BYTES: OnceLock<Bytes> = OnceLock::new();
    RING_BYTES.get_or_init(|| {
        let words = (RING as u64 / 8)..;
        let mut bytes = Vec::with_capacity(RING + BLOCK as usize);
        for word in words.take(RING / 8) {
            bytes.extend_from_slice(&mix(word).to_le_bytes());
        }
        bytes.extend_from_within(..BLOCK as usize);
        bytes.into()
    })
}

/// The bytes of an object from `offset` to the end of the block. `key` is the hash of the object's key. The
/// bytes are memory of the ring, not a copy.
pub(crate) fn block_from(key: u64, offset: u64) -> Bytes {
    let start = mix(key ^ (offset / BLOCK)) as usize % RING;
    let within = (offset % BLOCK) as usize;
    ring().slice(start + within..start + BLOCK as usize)
}

/// The `len` bytes at `offset` of the synthetic object `key`.
pub fn content(key: &str, offset: u64, len: usize) -> Vec<u8> {
    let hash = hash(key);
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let block = block_from(hash, offset + bytes.len() as u64);
        let take = block.len().min(len - bytes.len());
        bytes.extend_from_slice(&block[..take]);
    }
    bytes
}

/// Compares `got` with the bytes at `offset` of the synthetic object `key`.
///
/// # Errors
/// Names the first offset at which the bytes differ.
pub fn check(key: &str, offset: u64, got: &[u8]) -> Result<(), String> {
    let hash = hash(key);
    let mut done = 0;
    while done < got.len() {
        let block = block_from(hash, offset + done as u64);
        let take = block.len().min(got.len() - done);
        let (got, want) = (&got[done..done + take], &block[..take]);
        if got != want {
            let at = got.iter().zip(want).position(|(got, want)| got != want).unwrap_or(0);
            return Err(format!("{key:?} differs at offset {}", offset + (done + at) as u64));
        }
        done += take;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, content};

    #[test]
    fn any_range_is_the_same_as_of_the_whole() {
        let whole = content("a/b", 0, 5 << 20);
        for (offset, len) in [(0, 10), (1 << 20, 1 << 20), ((1 << 20) - 3, 7), (4_000_001, 900_001)] {
            let part = content("a/b", offset as u64, len);
            assert_eq!(part, whole[offset..offset + len]);
            assert_eq!(check("a/b", offset as u64, &part), Ok(()));
        }
    }

    #[test]
    fn wrong_bytes_are_found() {
        let mut bytes = content("k", 1 << 40, 3 << 20);
        assert!(check("other", 1 << 40, &bytes).is_err());
        assert!(check("k", (1 << 40) + 1, &bytes).is_err());
        bytes[2_000_000] ^= 1;
        let message = check("k", 1 << 40, &bytes).expect_err("a bit was flipped");
        assert!(message.ends_with(&format!(" {}", (1u64 << 40) + 2_000_000)), "{message}");
    }
}
