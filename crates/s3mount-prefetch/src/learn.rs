//! What a mount learns of its files: how far they are read, and how fast.
//!
//! A data set is many files of one *kind*: of one folder, with one extension. A reader of the next
//! of them mostly does what the readers of the last did. So each reading from a file's beginning is
//! noted when it has come to the end of the file or when the file is closed, and tells where the next
//! one begins: with the window that the last ones came to need, or with nothing ahead where they all
//! stopped after a header. A folder that is new begins as the other files of its extension do.
//!
//! What is learnt may be wrong for the next reader. So a beginning only ever grants what *each* of
//! the last [`RECENT`] readings went on to read: one that stopped early is enough to unlearn, and it
//! takes so many whole readings to trust a kind again. And nothing is withheld before so many in a
//! row have stopped at once; who goes on then waits for one GET.
//!
//! Pure, and bounded by [`KINDS`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use s3mount_object::{extension, folder_and_name};

/// Readings of a kind that count. A job that changes from whole files to headers is believed after
/// the first header, one that changes from headers to whole files after so many.
const RECENT: usize = 4;

/// Kinds that are remembered, about 100 bytes each; the one that was noted least recently leaves first.
const KINDS: usize = 1024;

/// A file may be read whole that is so many times as large as those that were.
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

/// Where a reader of a file begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beginning {
    /// As any other stream: little is known.
    Usual,
    /// No reader goes on behind so many bytes.
    Header { bytes: u64 },
    /// Every reader goes on for so many bytes, at so many bytes a second.
    Stream { bytes: u64, rate: f64 },
}

/// The last readings of one kind.
#[derive(Clone, Debug, Default)]
struct Kind {
    /// How far the last ones came, and whether to the end, in a ring.
    recent: [(u64, bool); RECENT],
    readings: u64,
    /// Bytes a second of a stream, once one was long enough to tell.
    rate: Option<f64>,
    /// When it was noted last.
    used: u64,
}

impl Kind {
    fn note(&mut self, reading: Reading) {
        let slot = usize::try_from(self.readings % RECENT as u64).unwrap_or(0);
        self.recent[slot] = (reading.bytes, reading.is_whole);
        self.readings += 1;
        if let Some(rate) = reading.rate {
            // One that was slower may have been held up by the others.
            self.rate = Some(rate.max(f64::midpoint(rate, self.rate.unwrap_or(0.0))));
        }
    }

    /// `header_bytes` is what reading ahead begins with in any case: nothing is gained by withholding
    /// what lies behind it.
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

/// The kinds of files of a mount.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    /// By a hash of folder and extension, and of the extension alone.
    kinds: HashMap<u64, Kind>,
    clock: u64,
}

impl Learnt {
    /// The object `key` was read like this.
    pub(crate) fn note(&mut self, key: &str, reading: Reading) {
        self.clock += 1;
        for hash in hashes(key) {
            if self.kinds.len() >= KINDS && !self.kinds.contains_key(&hash) {
                let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.used).map(|(hash, _)| *hash);
                oldest.map(|hash| self.kinds.remove(&hash));
            }
            let kind = self.kinds.entry(hash).or_default();
            kind.used = self.clock;
            kind.note(reading);
        }
    }

    /// Where a reader of the object `key` begins. Headers are at most `header_bytes` long.
    pub(crate) fn beginning(&self, key: &str, header_bytes: u64) -> Beginning {
        let known = hashes(key).into_iter().find_map(|hash| self.kinds.get(&hash));
        known.map_or(Beginning::Usual, |kind| kind.beginning(header_bytes))
    }
}

/// What a key is remembered by: its folder and extension, and then its extension alone.
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

    /// What a mount that has seen these readings makes of the next.
    fn after(readings: &[Reading]) -> Beginning {
        let mut learnt = Learnt::default();
        readings.iter().for_each(|reading| learnt.note("d/a.tar", *reading));
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
    fn a_slower_reader_is_believed_by_half() {
        let slower = Reading { rate: Some(2e8), ..whole(64 * MIB) };
        assert_eq!(after(&[whole(64 * MIB), slower]), Beginning::Stream { bytes: 256 * MIB, rate: 6e8 });
    }

    #[test]
    fn kinds_are_folders_and_extensions_and_new_folders_begin_as_others_did() {
        let mut learnt = Learnt::default();
        (0..RECENT).for_each(|_| learnt.note("checkpoints/1/a.bin", part(MIB / 2)));
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
