//! Which large files are opened around the kernel's page cache: `--direct-io auto`.
//!
//! The page cache takes half of the processor time of a large read, and gives something for it only where
//! the same bytes are read again before they leave it, by small pieces, or through maps. So a file is opened
//! *directly* when the data set that it belongs to (the known files of its folder and extension) is far
//! larger than what the page cache can hold. How its readers ask shows in the READs of a file that is open
//! directly, and nowhere else. So the first such file of a kind is a *probe*, one at a time, and the others
//! are opened as ever until it has shown large pieces; then its kind is opened directly, until a reader asks
//! for small pieces or maps the file. Two files in a row that were wanted by two readers at once, or again
//! while the page cache could have had them, end it as well. What was wrong is tried again after many more
//! opens.
//!
//! A file that is open keeps what it was opened with. Both kinds of opens of a file at once show the same
//! bytes: an inode is one version.
//!
//! Pure, and bounded by [`MAX_KINDS`] and [`MAX_RECENT`].

use std::collections::HashMap;

use s3mount_metrics::labels;

use crate::numbers::InodeNo;
use crate::page_cache::kind::Kind;

/// Files below this size are left alone, in bytes: looking at the machine's memory takes 0.1 ms at each
/// open, 1 to 2 % of the time in which such a file is read.
pub(crate) const LEAST_BYTES: u64 = 16 << 20;

/// A data set is too large for the page cache that is so many times as large as that. In epochs that shuffle
/// the files, a cache that drops what was used least recently serves 1/(2 n²) of the reads: an eighth.
const TOO_LARGE: u64 = 2;

/// Largest file, in bytes, that is a probe although nothing is known of its readers: in pieces of 4 KiB, it
/// takes them 3 s instead of 0.2 s.
const PROBE_BYTES: u64 = 256 << 20;

/// READs that show how a reader asks. The readers of archives (`np.load`) begin with a dozen small ones.
const WINDOW_READS: u32 = 128;

/// Large pieces bring so many bytes in a READ, on average. With 96 KiB both ways take the same processor
/// time; with 256 KiB a direct one takes two thirds of it, with 64 KiB a sixth more. `np.load` of an `.npz`
/// asks for 252 KiB and 4 KiB in turn.
const LARGE_BYTES: u64 = 96 << 10;

/// What a file counts for that should not have been opened directly; each further one counts one against it.
const WRONG: u32 = 4;

/// With so much counted, a kind goes back: two wrong ones in a row, or a quarter of all.
const TOO_WRONG: u32 = 2 * WRONG - 1;

/// Opens of a kind before it is tried again, and how much longer it takes each time.
const PAUSE: u32 = 16;

/// Kinds that are known, at most; then all are forgotten.
const MAX_KINDS: usize = 256;

/// Files that were read lately and are remembered, at most: the smallest would fill 128 GiB of page cache.
const MAX_RECENT: usize = 8192;

labels! {
    /// Why a kind goes back to the page cache.
    pub enum Reason("reason") {
        /// Its readers ask for small pieces.
        SmallPieces = "small_pieces",
        /// It is mapped.
        Mapped = "mapped",
        /// Several readers have the same file open at once.
        Shared = "shared",
        /// Files are read again that the page cache could hold.
        Again = "again",
    }
}

impl Reason {
    /// All of them, in the order of [`Counts::back`].
    pub(crate) const ALL: [Self; 4] = [Self::SmallPieces, Self::Mapped, Self::Shared, Self::Again];
}

/// News of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its files are opened directly from now on.
    Direct,
    /// They are opened through the page cache again.
    Cached(Reason),
}

/// What was decided since the mount, and what stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Files that were opened directly.
    pub(crate) opens: u64,
    /// Kinds of which all files are.
    pub(crate) kinds: usize,
    /// How often a kind went back for each reason, in their order.
    pub(crate) back: [u64; 4],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Unknown,
    /// This file shows how its readers ask.
    Probing(InodeNo),
    Direct,
    /// Not before so many opens.
    Cached(u32),
}

#[derive(Debug, Default)]
struct KindState {
    stage: Stage,
    /// Most bytes that its known files had together.
    data_set_bytes: u64,
    /// A reader began with a large piece.
    asks_large: bool,
    wrong: u32,
    /// How often it was given up.
    given_up: u32,
}

/// A file that was read lately.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// How many bytes of large files the mount had read then.
    at: u64,
    /// Bytes of it that were read.
    bytes: u64,
    is_direct: bool,
}

/// Who has a file open.
#[derive(Clone, Copy, Debug, Default)]
struct Readers {
    count: u32,
    direct: u32,
}

/// A large file that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    pub(crate) ino: InodeNo,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// What the page cache may hold for the reader, in bytes.
    pub(crate) cache_bytes: u64,
}

/// A file that was read, and is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) ino: InodeNo,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// How many bytes this reader's READs asked for.
    pub(crate) read_bytes: u64,
    pub(crate) is_direct: bool,
}

/// The policy of a mount.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    kinds: HashMap<Kind, KindState>,
    recent: HashMap<InodeNo, Recent>,
    open: HashMap<InodeNo, Readers>,
    /// Bytes of large files that were read since the mount.
    read_bytes: u64,
    opens: u64,
    back: [u64; 4],
}

impl Large {
    /// The least size of a data set that the page cache cannot hold, in bytes.
    pub(crate) fn too_large_bytes(&self) -> u64 {
        self.cache_bytes.saturating_mul(TOO_LARGE)
    }
}

impl Direct {
    /// The most bytes that the known files of a kind had together.
    pub(crate) fn data_set_bytes(&self, kind: &Kind) -> u64 {
        self.kinds.get(kind).map_or(0, |known| known.data_set_bytes)
    }

    /// Whether a file is opened directly, and what its kind has become by that. The known files of its kind
    /// have `data_set_bytes` together.
    pub(crate) fn on_open(
        &mut self,
        kind: &Kind,
        file: &Large,
        data_set_bytes: u64,
    ) -> (bool, Option<Change>) {
        let readers = self.open.entry(file.ino).or_default();
        readers.count += 1;
        let (is_shared, beside_direct) = (readers.count > 1, readers.direct > 0);
        let recent = self.recent.get(&file.ino).copied();
        let is_cacheable =
            |known: &Recent| (self.read_bytes - known.at).saturating_add(known.bytes) <= file.cache_bytes;
        let again = recent.filter(is_cacheable);
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(kind) {
            self.kinds.clear();
        }
        let known = self.kinds.entry(kind.clone()).or_default();
        known.data_set_bytes = known.data_set_bytes.max(data_set_bytes);
        let reason = match again {
            _ if beside_direct => Some(Reason::Shared),
            Some(again) if again.is_direct => Some(Reason::Again),
            _ => None,
        };
        if let Some(reason) = reason {
            return (false, known.count_wrong(reason).inspect(|change| count(&mut self.back, *change)));
        }
        if is_shared || again.is_some() || known.data_set_bytes < file.too_large_bytes() {
            return (false, None);
        }
        let is_direct = known.takes(file);
        if is_direct {
            self.opens += 1;
            self.open.entry(file.ino).or_default().direct += 1;
        }
        (is_direct, None)
    }

    /// A reader of a file that is open through the page cache begins with a large piece.
    pub(crate) fn on_large_beginning(&mut self, kind: &Kind) {
        if let Some(known) = self.kinds.get_mut(kind) {
            known.asks_large = true;
        }
    }

    /// A reader of a file that is open directly asks for large pieces, or for small ones.
    pub(crate) fn on_pieces(&mut self, kind: &Kind, ino: InodeNo, are_large: bool) -> Option<Change> {
        let known = self.kinds.get_mut(kind)?;
        if !are_large {
            return self.give_up(kind, Reason::SmallPieces);
        }
        (known.stage == Stage::Probing(ino)).then(|| {
            known.stage = Stage::Direct;
            Change::Direct
        })
    }

    /// A file that is open directly is mapped.
    pub(crate) fn on_map(&mut self, kind: &Kind) -> Option<Change> {
        self.give_up(kind, Reason::Mapped)
    }

    fn give_up(&mut self, kind: &Kind, reason: Reason) -> Option<Change> {
        let change = self.kinds.get_mut(kind)?.give_up(reason);
        change.inspect(|change| count(&mut self.back, *change))
    }

    /// A large file is closed.
    pub(crate) fn on_close(&mut self, kind: &Kind, file: &Closed) {
        if let Some(readers) = self.open.get_mut(&file.ino) {
            readers.count -= 1;
            readers.direct = readers.direct.saturating_sub(u32::from(file.is_direct));
            if readers.count == 0 {
                self.open.remove(&file.ino);
            }
        }
        if let Some(known) = self.kinds.get_mut(kind)
            && file.is_direct
            && known.stage == Stage::Probing(file.ino)
        {
            // It was too short to tell.
            known.stage = Stage::Unknown;
        }
        self.read_bytes += file.read_bytes;
        // One that was in the page cache as a whole is read without READs.
        if file.read_bytes < LEAST_BYTES.min(file.size / 2) && !self.recent.contains_key(&file.ino) {
            return;
        }
        if self.recent.len() >= MAX_RECENT && !self.recent.contains_key(&file.ino) {
            let oldest = self.recent.iter().min_by_key(|(_, known)| known.at).map(|(ino, _)| *ino);
            oldest.map(|oldest| self.recent.remove(&oldest));
        }
        let before = self.recent.get(&file.ino).map_or(0, |known| known.bytes);
        let bytes = before.max(file.read_bytes.min(file.size));
        self.recent.insert(file.ino, Recent { at: self.read_bytes, bytes, is_direct: file.is_direct });
    }

    /// What was decided.
    pub(crate) fn counts(&self) -> Counts {
        let kinds = self.kinds.values().filter(|known| known.stage == Stage::Direct).count();
        Counts { opens: self.opens, kinds, back: self.back }
    }
}

fn count(back: &mut [u64; 4], change: Change) {
    if let Change::Cached(reason) = change {
        back[reason as usize] += 1;
    }
}

impl KindState {
    /// Whether a file that nothing speaks against is opened directly.
    fn takes(&mut self, file: &Large) -> bool {
        if let Stage::Cached(opens) = self.stage {
            self.stage = opens.checked_sub(1).map_or(Stage::Unknown, Stage::Cached);
        }
        match self.stage {
            Stage::Unknown if file.size <= PROBE_BYTES || self.asks_large => {
                self.stage = Stage::Probing(file.ino);
                true
            }
            Stage::Unknown | Stage::Probing(_) | Stage::Cached(_) => false,
            Stage::Direct => {
                self.wrong = self.wrong.saturating_sub(1);
                true
            }
        }
    }

    fn count_wrong(&mut self, reason: Reason) -> Option<Change> {
        self.wrong += WRONG;
        if self.wrong < TOO_WRONG {
            return None;
        }
        self.give_up(reason)
    }

    fn give_up(&mut self, reason: Reason) -> Option<Change> {
        if !matches!(self.stage, Stage::Probing(_) | Stage::Direct) {
            return None;
        }
        self.given_up += 1;
        self.stage = Stage::Cached(PAUSE.saturating_pow(self.given_up));
        self.wrong = 0;
        Some(Change::Cached(reason))
    }
}

/// How one reader of a file that is open directly asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) reads: u32,
    pub(crate) bytes: u64,
}

impl Pieces {
    /// Whether these READs show large pieces, or small ones; `None` where they are too few.
    pub(crate) fn are_large(self) -> Option<bool> {
        let enough = u64::from(WINDOW_READS) * LARGE_BYTES;
        if self.bytes >= enough { Some(true) } else { (self.reads >= WINDOW_READS).then_some(false) }
    }
}

#[cfg(test)]
mod tests;
