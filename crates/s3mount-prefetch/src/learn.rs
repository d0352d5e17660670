//! What a mount learns about its files: how far they are read, and how fast.
//!
//! A data set has many files of one *kind*: files of one folder with one extension. The reader of the next file mostly
//! does what the readers of the last ones did. So each reading from a file's beginning is noted when it reaches the
//! file's end or when the file is closed. The next reading begins accordingly: with the window that the last readings
//! needed in the end, or with nothing ahead if they all stopped after a header. The first file of a new folder begins
//! as other files of its extension do.
//!
//! The past may mislead about the next reader. So a beginning grants only the bytes that *each* of the last [`RECENT`]
//! readings went on to read. One reading that stopped early is enough to unlearn, and it takes [`RECENT`] whole
//! readings to trust a kind again. Bytes are withheld only after [`RECENT`] readings in a row have stopped at once. A
//! reader that goes on then waits for one GET.
//!
//! Pure, and bounded by [`KINDS`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use s3mount_object::{extension, folder_and_name};

/// The number of readings of a kind that count. A job that changes from whole files to headers is recognised at the
/// first header. A job that changes from headers to whole files is recognised after this many whole files.
const RECENT: usize = 4;

/// The most kinds that are remembered, at about 100 bytes each. The kind that was noted least recently is dropped
/// first.
const KINDS: usize = 1024;

/// A file up to this many times as large as the files that were read whole is expected to be read whole, too.
const LARGER: u64 = 4;

/// One reading of a file, from its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    /// How many bytes from the beginning were read.
    pub(crate) bytes: u64,
    /// Whether the file ends there.
    pub(crate) is_whole: bool,
    /// Bytes a second, where the reading was long enough to tell.
    pub(crate) rate: Option<f64>,
}

/// The prefetching that a new reader of a file starts with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beginning {
    /// As any other stream: little is known.
    Usual,
    /// No reader goes on beyond this many bytes.
    Header { bytes: u64 },
    /// Every reader goes on for this many bytes, at `rate` bytes a second.
    Stream { bytes: u64, rate: f64 },
}

/// The last readings of one kind.
#[derive(Clone, Debug, Default)]
struct KindHistory {
    /// The length of each of the last readings, and whether it reached the file's end, in a ring.
    recent: [(u64, bool); RECENT],
    readings: u64,
    /// Bytes a second of a stream, once a reading was long enough to tell.
    rate: Option<f64>,
    /// The clock when a reading of this kind was last noted.
    used: u64,
}

impl KindHistory {
    /// Notes a reading. Returns its number, and the reading that it replaced.
    fn note(&mut self, reading: Reading) -> (u64, (u64, bool)) {
        let number = self.readings;
        let replaced = std::mem::replace(&mut self.recent[slot(number)], (reading.bytes, reading.is_whole));
        self.readings += 1;
        if let Some(rate) = reading.rate {
            // Other readers may have held up a slower reading.
            self.rate = Some(rate.max(f64::midpoint(rate, self.rate.unwrap_or(0.0))));
        }
        (number, replaced)
    }

    /// Takes back the reading of this number, if it is one of the last, and restores `replaced`.
    fn take_back(&mut self, number: u64, replaced: (u64, bool)) {
        if number < self.readings && self.readings <= number + RECENT as u64 {
            (number + 1..self.readings)
                .for_each(|next| self.recent[slot(next - 1)] = self.recent[slot(next)]);
            self.readings -= 1;
            self.recent[slot(self.readings)] = replaced;
        }
    }

    /// The prefetching that a reader of this kind starts with. Any stream begins with `header_bytes`, so bytes beyond a
    /// longer header are not withheld.
    fn beginning(&self, header_bytes: u64) -> Beginning {
        let known = usize::try_from(self.readings).unwrap_or(RECENT).min(RECENT);
        let recent = &self.recent[..known];
        let longest = recent.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        let stopped = recent.iter().filter(|(_, is_whole)| !is_whole).map(|(bytes, _)| *bytes);
        let certain = stopped.clone().min().unwrap_or(longest.saturating_mul(LARGER));
        if known == RECENT && stopped.count() == RECENT && longest <= header_bytes {
            return Beginning::Header { bytes: longest };
        }
        match self.rate {
            Some(rate) if certain > header_bytes => Beginning::Stream { bytes: certain, rate },
            Some(_) | None => Beginning::Usual,
        }
    }
}

/// The place of a reading in the ring.
fn slot(number: u64) -> usize {
    usize::try_from(number % RECENT as u64).unwrap_or(0)
}

/// A noted reading that can be taken back: its number in each kind, and the reading that it replaced there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted([(u64, (u64, bool)); 2]);

/// The kinds of files of a mount.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    /// The key is a hash of folder and extension, or of the extension alone.
    kinds: HashMap<u64, KindHistory>,
    clock: u64,
}

impl Learnt {
    /// Notes how the object `key` was read.
    pub(crate) fn note(&mut self, key: &str, reading: Reading) -> Noted {
        self.clock += 1;
        Noted(hashes(key).map(|hash| {
            if self.kinds.len() >= KINDS && !self.kinds.contains_key(&hash) {
                let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.used).map(|(hash, _)| *hash);
                oldest.map(|hash| self.kinds.remove(&hash));
            }
            let kind = self.kinds.entry(hash).or_default();
            kind.used = self.clock;
            kind.note(reading)
        }))
    }

    /// Takes back a reading of the object `key`: its reader goes on.
    pub(crate) fn take_back(&mut self, key: &str, Noted(numbers): Noted) {
        for (hash, (number, replaced)) in hashes(key).into_iter().zip(numbers) {
            if let Some(kind) = self.kinds.get_mut(&hash) {
                kind.take_back(number, replaced);
            }
        }
    }

    /// The prefetching that a reader of the object `key` starts with. Headers are at most `header_bytes` long.
    pub(crate) fn beginning(&self, key: &str, header_bytes: u64) -> Beginning {
        let known = hashes(key).into_iter().find_map(|hash| self.kinds.get(&hash));
        known.map_or(Beginning::Usual, |kind| kind.beginning(header_bytes))
    }
}

/// The hashes under which a key is remembered: that of its folder and extension first, then that of its
/// extension alone.
fn hashes(key: &str) -> [u64; 2] {
    let (folder, extension) = (folder_and_name(key).0, extension(key));
    let hash = |folder: Option<&str>| {
        let mut hasher = DefaultHasher::new();
        (folder, extension).hash(&mut hasher);
        hasher.finish()
    };
    [hash(Some(folder)), hash(None)]
}

#[cfg(test)]
mod tests {
    use super::{Beginning, KINDS, Learnt, RECENT, Reading};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn whole(bytes: u64) -> Reading {
        Reading { bytes, is_whole: true, rate: Some(1e9) }
    }

    fn part(bytes: u64) -> Reading {
        Reading { bytes, is_whole: false, rate: None }
    }

    /// The prefetching that the next reading starts with after these.
    fn after(readings: &[Reading]) -> Beginning {
        let mut learnt = Learnt::default();
        for reading in readings {
            learnt.note("d/a.tar", *reading);
        }
        learnt.beginning("d/b.tar", MIB)
    }

    #[test]
    fn whole_files_are_learnt_at_once_and_unlearnt_by_one_header() {
        let (file, header) = (whole(64 * MIB), part(64 * KIB));
        assert_eq!(after(&[]), Beginning::Usual);
        let stream = Beginning::Stream { bytes: 256 * MIB, rate: 1e9 };
        assert_eq!(after(&[file]), stream, "a file of four times the size at most");
        assert_eq!(after(&[file, file, header]), Beginning::Usual);
        assert_eq!(after(&[file, header, file, file, file]), Beginning::Usual);
        assert_eq!(after(&[file, header, file, file, file, file]), stream);
    }

    #[test]
    fn headers_are_learnt_after_four_and_unlearnt_by_one_that_goes_on() {
        let (file, header) = (whole(64 * MIB), part(64 * KIB));
        assert_eq!(after(&[header; RECENT - 1]), Beginning::Usual);
        assert_eq!(after(&[header; RECENT]), Beginning::Header { bytes: 64 * KIB });
        assert_eq!(after(&[header, header, header, part(300 * KIB)]), Beginning::Header { bytes: 300 * KIB });
        assert_eq!(after(&[header, header, header, header, file]), Beginning::Usual);
        assert_eq!(after(&[part(2 * MIB); RECENT]), Beginning::Usual, "its rate is not known");
    }

    #[test]
    fn who_stops_in_the_middle_begins_with_no_more_than_that() {
        let stopped = |bytes| Reading { bytes, is_whole: false, rate: Some(1e9) };
        let readings = [whole(500 * MIB), stopped(20 * MIB), stopped(30 * MIB)];
        assert_eq!(after(&readings), Beginning::Stream { bytes: 20 * MIB, rate: 1e9 });
    }

    #[test]
    fn a_reading_that_goes_on_is_taken_back() {
        let (file, header) = (whole(64 * MIB), part(64 * KIB));
        for (before, since) in [(0, 0), (0, 2), (2, 0), (2, 1), (5, 0), (5, 3), (6, 2)] {
            let mut learnt = Learnt::default();
            for _ in 0..before {
                learnt.note("d/a.tar", file);
            }
            let noted = learnt.note("d/a.tar", header);
            for _ in 0..since {
                learnt.note("d/a.tar", file);
            }
            learnt.take_back("d/a.tar", noted);
            let expected = after(&vec![file; before + since]);
            assert_eq!(learnt.beginning("d/b.tar", MIB), expected, "{before} before, {since} since");
        }
        let mut learnt = Learnt::default();
        let noted = learnt.note("d/a.tar", header);
        for _ in 0..RECENT + 1 {
            learnt.note("d/a.tar", file);
        }
        learnt.take_back("d/a.tar", noted);
        assert_eq!(learnt.beginning("d/b.tar", MIB), after(&[file; RECENT]), "it has left already");
    }

    #[test]
    fn a_slower_reader_is_believed_by_half() {
        let slower = Reading { rate: Some(2e8), ..whole(64 * MIB) };
        assert_eq!(after(&[whole(64 * MIB), slower]), Beginning::Stream { bytes: 256 * MIB, rate: 6e8 });
    }

    #[test]
    fn kinds_are_folders_and_extensions_and_new_folders_begin_as_others_did() {
        let mut learnt = Learnt::default();
        for _ in 0..RECENT {
            learnt.note("checkpoints/1/a.bin", part(MIB / 2));
        }
        learnt.note("data/a.tar", whole(64 * MIB));
        assert_eq!(learnt.beginning("checkpoints/2/a.bin", MIB), Beginning::Header { bytes: MIB / 2 });
        assert_eq!(learnt.beginning("data/a.idx", MIB), Beginning::Usual);
        learnt.note("other/a.tar", part(KIB));
        assert_eq!(
            learnt.beginning("data/b.tar", MIB),
            Beginning::Stream { bytes: 256 * MIB, rate: 1e9 },
            "its own folder is known"
        );
        assert_eq!(learnt.beginning("no-extension/part-1", MIB), Beginning::Usual);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut learnt = Learnt::default();
        for folder in 0..2 * KINDS {
            learnt.note(&format!("{folder}/a.tar"), whole(64 * MIB));
        }
        assert_eq!(learnt.kinds.len(), KINDS);
        assert_ne!(learnt.beginning("1/b.tar", MIB), Beginning::Usual, "as others of its extension");
    }
}
