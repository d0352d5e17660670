//! Which of several cache directories a version lies in.
//!
//! Each directory has a number, which it keeps when it moves. For each version, each directory draws a lot from its
//! number and the version's hash, weighted by the size of its file system, and the largest lot wins: rendezvous hashing
//! (Thaler and Ravishankar, 1998), with `-weight / ln(u)` for the weights. So the order of the flags does not matter.
//! An added directory takes its share from all others, and gives it back to them when it is removed.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::disk::blocks;
use crate::disk::check::{self, DiskNote};
use crate::disk::error::DiskError;
use crate::disk::evict::limit::Space;
use crate::disk::io::Io;
use crate::disk::io::identity;
use crate::disk::layout::{Hash, Layout};

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

    /// Writes the number to a recreated directory, so that later mounts use the same one.
    pub(crate) fn keep(&self, io: &Io, layout: &Layout) {
        if *self != Self::ALONE && matches!(load(io, layout), Ok(None)) {
            write(io, layout, self.number);
        }
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
        // A float between 0 and 1 has 53 bits.
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

/// A usable directory, a note about it for the user, and its place among the others.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) layout: Layout,
    pub(crate) note: Option<DiskNote>,
    pub(crate) place: Place,
}

/// The usable directories, paths that name one of them again, and why others can't be used.
#[derive(Debug, Default)]
pub(crate) struct PreparedDirs {
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) twice: Vec<DiskNote>,
    pub(crate) failed: Vec<DiskError>,
}

/// Makes the directories, or checks them, and finds their places.
pub(crate) fn prepare(io: &Io, dirs: &[impl AsRef<Path>]) -> PreparedDirs {
    let mut found = PreparedDirs::default();
    let mut usable: Vec<(Layout, Option<DiskNote>, f64)> = Vec::new();
    for layout in dirs.iter().map(|path| Layout::new(path.as_ref())) {
        let weighed = check::prepare(io, &layout).and_then(|note| Ok((note, weight(&layout)?)));
        let (note, weight) = match weighed {
            Ok(weighed) => weighed,
            Err(error) => {
                found.failed.push(error);
                continue;
            }
        };
        let is_same = |other: &&(Layout, _, _)| identity::at(other.0.root()) == identity::at(layout.root());
        if let Some((other, ..)) = usable.iter().find(is_same) {
            let (path, other) = (layout.root().to_owned(), other.root().to_owned());
            found.twice.push(DiskNote::Twice { path, other });
        } else {
            usable.push((layout, note, weight));
        }
    }
    let numbers = if dirs.len() == 1 { None } else { Some(numbers(io, &usable)) };
    for (index, (layout, note, weight)) in usable.into_iter().enumerate() {
        let place = numbers.as_ref().map_or(Place::ALONE, |of| Place { number: of[index], weight });
        found.prepared.push(Prepared { layout, note, place });
    }
    found
}

/// The size of its file system in bytes.
fn weight(layout: &Layout) -> Result<f64, DiskError> {
    let space = Space::of(layout).map_err(|error| DiskError::io("look at", layout.root(), error))?;
    Ok(space.total.max(1) as f64)
}

/// The numbers of the directories, no two alike. A directory without a number gets one.
///
/// A directory and its copies have the same number, and one of them keeps it: the one whose path gives it, or whose
/// path comes first.
fn numbers<T>(io: &Io, dirs: &[(Layout, Option<DiskNote>, T)]) -> Vec<u64> {
    let known: Vec<_> = dirs.iter().map(|(layout, ..)| load(io, layout)).collect();
    let known: Vec<_> = known.into_iter().map(|known| known.unwrap_or_default()).collect();
    let mut order: Vec<usize> = (0..dirs.len()).collect();
    order.sort_by_key(|index| {
        let layout = &dirs[*index].0;
        (known[*index].is_none(), known[*index] != Some(draw(layout, 0)), layout.root())
    });
    let mut numbers = vec![None; dirs.len()];
    for index in order {
        let layout = &dirs[index].0;
        let mut number = known[index].filter(|number| !numbers.contains(&Some(*number)));
        if number.is_none() {
            let is_free = |drawn: &u64| !numbers.contains(&Some(*drawn)) && !known.contains(&Some(*drawn));
            number = (0..).map(|turn| draw(layout, turn)).find(is_free);
            number.into_iter().for_each(|number| write(io, layout, number));
        }
        numbers[index] = number;
    }
    numbers.into_iter().map(Option::unwrap_or_default).collect()
}

/// A number for the directory, made from its path. So a directory whose number can't be written, or was lost, has the
/// same one at the next mount.
fn draw(layout: &Layout, turn: u64) -> u64 {
    let path = std::fs::canonicalize(layout.root()).unwrap_or_else(|_| layout.root().to_owned());
    mix(blocks::sum(path.as_os_str().as_bytes()).wrapping_add(turn))
}

/// Whether the directory, without its number, would get the same one again.
pub(crate) fn is_drawn_again(io: &Io, layout: &Layout) -> bool {
    load(io, layout).is_ok_and(|known| known.is_none_or(|known| known == draw(layout, 0)))
}

/// The number of the directory. A power cut may leave an empty file.
fn load(io: &Io, layout: &Layout) -> io::Result<Option<u64>> {
    match io.load(&layout.number()) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the number, if the disk accepts it.
fn write(io: &Io, layout: &Layout, number: u64) {
    let written = io.replace(&layout.number(), format!("{number:016x}\n").as_bytes());
    if let Err(error) = written {
        tracing::debug!(%error, dir = ?layout.root(), "write the number of a cache folder");
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::io::Errno;
    use s3mount_object::{ETag, ObjectId};

    use super::{Place, prepare};
    use crate::disk::io::Io;
    use crate::disk::io::faults::Op;
    use crate::disk::layout::{Hash, Layout};

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

    /// The places of these directories, by their paths.
    fn numbers_of(io: &Io, paths: &[&Path]) -> Vec<u64> {
        let found = prepare(io, paths);
        assert!(found.failed.is_empty() && found.twice.is_empty(), "{found:?}");
        found.prepared.iter().map(|prepared| prepared.place.number).collect()
    }

    #[test]
    fn a_directory_keeps_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let (io, [a, b, c]) = (Io::new(), ["a", "b", "c"].map(|name| folder.path().join(name)));
        let drawn = numbers_of(&io, &[&a, &b]);
        assert_ne!(drawn[0], drawn[1]);
        assert_eq!(numbers_of(&io, &[&b, &a]), [drawn[1], drawn[0]]);

        // It moves, and another one takes its path.
        fs::rename(&a, &c).expect("renamed");
        assert_eq!(numbers_of(&io, &[&c, &b]), drawn);
        let three = numbers_of(&io, &[&a, &b, &c]);
        assert_eq!([three[2], three[1]], [drawn[0], drawn[1]]);
        assert!(!drawn.contains(&three[0]), "no two are alike");

        // A power cut leaves the file empty, beside two mounts.
        fs::write(Layout::new(&b).number(), "").expect("written");
        assert_eq!(numbers_of(&io, &[&a, &b]), numbers_of(&io, &[&a, &b]));
        assert_eq!(numbers_of(&io, &[&b, &c]), [drawn[1], drawn[0]]);
    }

    #[test]
    fn a_full_directory_has_a_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let (io, [a, b]) = (Io::new(), ["a", "b"].map(|name| folder.path().join(name)));
        [&a, &b].iter().for_each(|path| drop(prepare(&io, &[path])));
        io.faults.set(|op| if op == Op::Publish { Err(Errno::NOSPC.into()) } else { Ok(()) });
        let drawn = numbers_of(&io, &[&a, &b]);
        assert!(drawn[0] != drawn[1] && !Layout::new(&a).number().exists());
        io.faults.clear();
        assert_eq!(numbers_of(&io, &[&b, &a]), [drawn[1], drawn[0]], "it is written once there is room");
        assert!(Layout::new(&a).number().exists());
    }

    #[test]
    fn a_copy_gets_a_number_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (io, [a, b, copy]) = (Io::new(), ["b", "c", "a"].map(|name| folder.path().join(name)));
        let drawn = numbers_of(&io, &[&a, &b]);
        prepare(&io, &[&copy]);
        fs::copy(Layout::new(&a).number(), Layout::new(&copy).number()).expect("copied");
        let three = numbers_of(&io, &[&copy, &a, &b]);
        assert_eq!(three[1..], drawn, "it is clear which is the copy");
        assert!(!drawn.contains(&three[0]));
        assert_eq!(numbers_of(&io, &[&b, &copy]), [drawn[1], three[0]], "it keeps what it has got");
    }

    #[test]
    fn one_directory_by_two_paths_is_used_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let [a, b, link] = ["a", "b", "link"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&a, &link).expect("a link");
        let found = prepare(&Io::new(), &[&a, &b, &link]);
        assert_eq!((found.prepared.len(), found.failed.len()), (2, 0));
        let note = format!("--cache {link:?} is the same folder as --cache {a:?}; it is used once");
        assert_eq!(found.twice.iter().map(ToString::to_string).collect::<Vec<_>>(), [note]);
    }
}
