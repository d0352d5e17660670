//! Which of several cache directories a version lies in.
//!
//! Each directory has a number of its own, which it keeps when it moves. For each version, each directory draws a lot
//! from both numbers, which counts by the size of its file system, and the largest lot wins: rendezvous hashing
//! (Thaler and Ravishankar, 1998), with `-weight / ln(u)` for the weights. So the order of the flags says nothing, and a
//! directory that comes takes its share from all others, and gives it back to them when it goes.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::Path;

use crate::disk::error::DiskError;
use crate::disk::io::Io;
use crate::disk::layout::{Hash, Layout};
use crate::disk::limit::Space;

/// One of several cache directories, as versions are spread over them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    number: u64,
    /// The size of its file system in bytes.
    weight: f64,
}

impl Place {
    /// The place of the only directory.
    pub(crate) const ALONE: Self = Self { number: 0, weight: 1.0 };

    /// The place of a directory that can be used. It gets its number if it has none yet.
    pub(crate) fn of(io: &Io, layout: &Layout) -> Result<Self, DiskError> {
        let path = layout.number();
        let number = number(io, &path).map_err(|error| DiskError::io("read", &path, error))?;
        let space = Space::of(layout).map_err(|error| DiskError::io("look at", layout.root(), error))?;
        Ok(Self { number, weight: space.total.max(1) as f64 })
    }

    /// Which of the `places` holds the version.
    pub(crate) fn choose(places: &[Self], hash: &Hash) -> usize {
        let lots = places.iter().map(|place| place.lot(hash.spread())).enumerate();
        lots.max_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(index, _)| index)
    }

    /// How many of `bytes` this one of `all` places may take.
    pub(crate) fn share(&self, all: &[Self], bytes: u64) -> u64 {
        let weight: f64 = all.iter().map(|place| place.weight).sum();
        (bytes as f64 * (self.weight / weight)) as u64
    }

    fn lot(&self, version: u64) -> f64 {
        // The 53 bits that a number between 0 and 1 has.
        let drawn = ((mix(version ^ self.number) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -self.weight / drawn.ln()
    }
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014): each bit depends on each.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The number in the file at `path`, which is made if it is missing. Of several processes that make it, one wins.
/// A file without a number, as a power cut may leave it, is made again.
#[expect(clippy::disallowed_methods, reason = "no two directories should draw the same number")]
fn number(io: &Io, path: &Path) -> io::Result<u64> {
    match io.load(path) {
        Ok(text) => {
            if let Some(number) = parse(&text) {
                return Ok(number);
            }
            io.remove(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let drawn = RandomState::new().hash_one(0_u8);
    let made = io.create(path)?;
    let written = io.write(&made.file, format!("{drawn:016x}\n").as_bytes(), 0);
    if let Err(error) = written {
        io.discard(made);
        return Err(error);
    }
    io.publish(&made, path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it should hold 16 hexadecimal digits");
    parse(&io.load(path)?).ok_or_else(wrong)
}

fn parse(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, ObjectId};

    use super::{Place, number};
    use crate::disk::io::Io;
    use crate::disk::layout::Hash;

    fn versions() -> Vec<Hash> {
        let named = |number| ObjectId::new(&format!("key{number}"), ETag::new("\"e\""));
        (0..20_000).map(|number| Hash::of("s3://b", &named(number))).collect()
    }

    fn places(weights: &[f64]) -> Vec<Place> {
        (1..).zip(weights).map(|(number, weight)| Place { number, weight: *weight }).collect()
    }

    #[test]
    fn a_directory_holds_its_share_in_whatever_order_they_are() {
        let (places, versions) = (places(&[1.0, 2.0, 5.0]), versions());
        let mut held = [0; 3];
        let turned: Vec<Place> = places.iter().rev().copied().collect();
        for version in &versions {
            let index = Place::choose(&places, version);
            held[index] += 1;
            assert_eq!(turned[Place::choose(&turned, version)], places[index]);
        }
        let expected = [2_500, 5_000, 12_500];
        for (held, expected) in held.into_iter().zip(expected) {
            assert!((expected * 95 / 100..expected * 105 / 100).contains(&held), "{held} of {expected}");
        }
        assert_eq!([0, 1, 2].map(|index| places[index].share(&places, 80)), [10, 20, 50]);
    }

    #[test]
    fn a_directory_that_comes_moves_only_what_it_takes() {
        let (after, versions) = (places(&[1.0; 4]), versions());
        let moved = versions.iter().filter(|version| {
            let (before, now) = (Place::choose(&after[..3], version), Place::choose(&after, version));
            assert!(now == before || now == 3, "nothing moves between the others");
            now == 3
        });
        let moved = moved.count();
        assert!((4_700..5_300).contains(&moved), "{moved} of 20,000");
    }

    #[test]
    fn a_directory_keeps_its_number() {
        let dir = tempfile::tempdir().expect("a folder");
        let (io, path) = (Io::new(), dir.path().join("number"));
        let drawn = number(&io, &path).expect("a number");
        assert_eq!(number(&io, &path).expect("a number"), drawn);
        assert_ne!(number(&io, &dir.path().join("another")).expect("a number"), drawn);

        std::fs::write(&path, "").expect("written");
        let again = number(&io, &path).expect("another number");
        assert_eq!(number(&io, &path).expect("a number"), again);
    }
}
