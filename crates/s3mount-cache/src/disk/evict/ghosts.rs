//! The last uses of objects that may not be in the cache: a table of fixed size in a file, for all mounts that share
//! the cache.
//!
//! The table has buckets of five entries, and an object's hash chooses its bucket. When a bucket is full, the entries
//! with the lowest tags stay. So the remembered objects are a sample of all objects by hash, and the sample is as large
//! as fits: every use of an object in it is seen, however many objects there are. Objects outside the sample are
//! unknown.
//!
//! Pure: takes a bucket of 64 bytes, and returns 64 bytes.

use std::time::Duration;

use crate::disk::layout::Hash;

/// One bucket: five entries of a tag (7 bytes), a count (1 byte) and seconds (4 bytes), and 4 bytes that are
/// not used.
pub(crate) type Bucket = [u8; 64];

const ENTRIES: usize = 5;
const ENTRY_BYTES: usize = 12;

/// How many buckets a table has: 2 MiB, for 160,000 objects.
pub(crate) const BUCKETS: u64 = 1 << 15;

/// Objects that were not used for this long are forgotten first: a month, because a job may run every week.
const REMEMBERED_S: u32 = 30 * 24 * 3600;

/// What the table knows of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seen {
    Before {
        /// When the object was used last.
        at: Duration,
        /// How many uses in a row were quick, with this one.
        quick: u8,
    },
    /// The object was not used for as long as the table remembers.
    Never,
    /// The object is not in the sample.
    Unknown,
}

/// Where an object's entry is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    bucket: u64,
    tag: u64,
}

impl Place {
    /// The place of the object with this hash.
    pub(crate) fn of(hash: &Hash) -> Self {
        let hash = hash.bytes();
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| hash[at + byte]));
        // A free entry has a tag of zero.
        Self { bucket: number(8) % BUCKETS, tag: (number(16) >> 8).max(1) }
    }

    /// Where its bucket begins in the table.
    pub(crate) fn offset(self) -> u64 {
        self.bucket * size_of::<Bucket>() as u64
    }
}

/// An entry that is not free.
#[derive(Clone, Copy)]
struct Entry {
    /// 56 bits of the object's hash.
    tag: u64,
    quick: u8,
    used_s: u32,
}

/// Notes in its bucket that an object was used at `now`, and returns what the bucket knew before. A use that
/// follows the last one within `quick` is a quick one.
pub(crate) fn note(bucket: &mut Bucket, place: Place, now: Duration, quick: Duration) -> Seen {
    let used_s = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
    let entries: [Entry; ENTRIES] = std::array::from_fn(|at| entry(bucket, at));
    let mut new = Entry { tag: place.tag, quick: 0, used_s };
    if let Some(index) = entries.iter().position(|entry| entry.tag == place.tag) {
        let before = entries[index];
        let at = Duration::from_secs(before.used_s.into());
        if now.saturating_sub(at) < quick {
            new.quick = before.quick.saturating_add(1);
        }
        set(bucket, index, new);
        return Seen::Before { at, quick: new.quick };
    }
    let is_free = |entry: &Entry| entry.tag == 0 || used_s.saturating_sub(entry.used_s) > REMEMBERED_S;
    let highest = (0..ENTRIES).max_by_key(|index| entries[*index].tag).expect("a bucket has entries");
    match entries.iter().position(is_free) {
        Some(index) => set(bucket, index, new),
        None if place.tag < entries[highest].tag => set(bucket, highest, new),
        None => return Seen::Unknown,
    }
    Seen::Never
}

fn entry(bucket: &Bucket, index: usize) -> Entry {
    let from = index * ENTRY_BYTES;
    let word = u64::from_le_bytes(std::array::from_fn(|byte| bucket[from + byte]));
    let used_s = u32::from_le_bytes(std::array::from_fn(|byte| bucket[from + 8 + byte]));
    Entry { tag: word >> 8, quick: word.to_le_bytes()[0], used_s }
}

fn set(bucket: &mut Bucket, index: usize, entry: Entry) {
    let from = index * ENTRY_BYTES;
    let word = entry.tag << 8 | u64::from(entry.quick);
    bucket[from..from + 8].copy_from_slice(&word.to_le_bytes());
    bucket[from + 8..from + ENTRY_BYTES].copy_from_slice(&entry.used_s.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use s3mount_object::{ETag, ObjectId};

    use super::{BUCKETS, Bucket, ENTRIES, Place, REMEMBERED_S, Seen, note};
    use crate::disk::layout::Hash;

    const QUICK: Duration = Duration::from_secs(50);
    const START: Duration = Duration::from_secs(1_800_000_000);

    fn place(number: u64) -> Place {
        Place::of(&Hash::of("", &ObjectId::new(&number.to_string(), ETag::new(""))))
    }

    /// Uses each of `count` objects once at `now`, and returns how many were seen before, never, and are not
    /// in the sample.
    fn use_all(table: &mut HashMap<u64, Bucket>, count: u64, now: Duration) -> [u64; 3] {
        let mut sums = [0; 3];
        for place in (0..count).map(place) {
            let bucket = table.entry(place.offset()).or_insert([0; 64]);
            sums[match note(bucket, place, now, QUICK) {
                Seen::Before { .. } => 0,
                Seen::Never => 1,
                Seen::Unknown => 2,
            }] += 1;
        }
        sums
    }

    #[test]
    fn few_objects_are_all_remembered() {
        let mut table = HashMap::new();
        assert_eq!(use_all(&mut table, 20_000, START), [0, 20_000, 0]);
        let [before, never, _] = use_all(&mut table, 20_000, START + QUICK);
        assert!(before > 19_990 && never == 0, "few buckets have more than five");
        let forgotten = START + QUICK + Duration::from_secs(2 * u64::from(REMEMBERED_S));
        let [before, never, _] = use_all(&mut table, 1_000_000, forgotten);
        assert!(before <= 20_000 && never > 100_000, "new objects take the place of old ones");
    }

    #[test]
    fn of_many_objects_a_sample_is_remembered() {
        let (mut table, count) = (HashMap::new(), 1_000_000);
        let [_, never, _] = use_all(&mut table, count, START);
        assert!(never > BUCKETS * ENTRIES as u64);
        for epoch in 1..3 {
            let [before, never, unknown] = use_all(&mut table, count, START + QUICK * epoch);
            assert_eq!(never, 0, "no object is taken for a new one");
            assert_eq!(before, BUCKETS * ENTRIES as u64);
            assert_eq!(before + unknown, count);
        }
        assert!(table.keys().all(|offset| *offset < BUCKETS * size_of::<Bucket>() as u64));
    }

    #[test]
    fn quick_uses_in_a_row_are_counted() {
        let (mut bucket, mut now) = ([0; 64], START);
        let counts: Vec<_> = [0, 10, 10, 60, 10]
            .into_iter()
            .map(|after| {
                now += Duration::from_secs(after);
                match note(&mut bucket, place(1), now, QUICK) {
                    Seen::Before { at, quick } => (now - at).as_secs() * 10 + u64::from(quick),
                    Seen::Never | Seen::Unknown => 0,
                }
            })
            .collect();
        assert_eq!(counts, [0, 101, 102, 600, 101]);
    }
}
