//! The ageing's statistics of uses, as bytes of a file that all mounts share.

use std::time::Duration;

use super::{Ageing, BINS, Round};
use crate::disk::blocks;

/// The first bytes. Bytes that begin otherwise are ignored: they count as no statistics.
const MAGIC: &[u8; 8] = b"s3mpace1";

/// The length of the encoding.
pub(crate) const ENCODED_BYTES: usize = 8 + 4 * BINS + 4 * 8 + 8 + 2 * 8;

impl Ageing {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENCODED_BYTES);
        out.extend_from_slice(MAGIC);
        for number in self.weights.iter().chain([&self.known]) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.since_decay.to_le_bytes());
        let Round { start, uses, firsts, faster, faster_reuse } = &self.round;
        out.extend_from_slice(&[*uses, *firsts, *faster, u8::from(self.is_era_open)]);
        out.extend_from_slice(&[0; 4]);
        let faster_now = self.faster_reuse.unwrap_or(Duration::MAX);
        for time in [*start, *faster_reuse, self.era, faster_now] {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            out.extend_from_slice(&ns.to_le_bytes());
        }
        let sum = blocks::sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the statistics; `None` if the bytes are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk()?;
        if bytes.len() != ENCODED_BYTES || blocks::sum(body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (floats, rest) = rest.split_at_checked(4 * (BINS + 1))?;
        let floats = floats.as_chunks::<4>().0;
        let float = |index: usize| f32::from_le_bytes(floats[index]);
        let (since_decay, rest) = rest.split_first_chunk()?;
        let (&[uses, firsts, faster, is_era_open], rest) = rest.split_first_chunk()?;
        let times = rest.get(4..)?.as_chunks::<8>().0;
        let time = |index: usize| Some(u64::from_le_bytes(*times.get(index)?));
        let (start, faster_reuse) = (Duration::from_nanos(time(0)?), Duration::from_nanos(time(1)?));
        let faster_now = time(3)?;
        Some(Self {
            weights: std::array::from_fn(float),
            known: float(BINS),
            since_decay: u32::from_le_bytes(*since_decay),
            round: Round { start, uses, firsts, faster, faster_reuse },
            era: Duration::from_nanos(time(2)?),
            is_era_open: is_era_open == 1,
            faster_reuse: (faster_now != u64::MAX).then(|| Duration::from_nanos(faster_now)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ageing, ENCODED_BYTES};
    use crate::disk::evict::ageing::Use;

    #[test]
    fn what_was_encoded_is_decoded() {
        let (mut ageing, mut now) = (Ageing::default(), Duration::from_secs(1_800_000_000));
        for number in 0..2000u64 {
            now += Duration::from_secs(7);
            let again = |after| Use::Again { after: Duration::from_secs(after), quick: 9, was_here: false };
            ageing.note(if number % 5 < 3 { Use::First } else { again(number * 5) }, now);
            let bytes = ageing.encode();
            assert_eq!(bytes.len(), ENCODED_BYTES);
            assert_eq!(Ageing::decode(&bytes).as_ref(), Some(&ageing), "{number}");
        }
    }

    #[test]
    fn damaged_bytes_are_none() {
        let bytes = Ageing::default().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(Ageing::decode(&damaged), None);
            assert_eq!(Ageing::decode(&bytes[..at]), None);
        }
    }
}
