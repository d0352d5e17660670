//! Decides which large files are opened around the kernel's page cache (`--direct-io auto`).
//!
//! The page cache takes half of the processor time of a large read. It only helps if the same bytes are read again
//! before their eviction, if files are read in small pieces, or if they are mapped. So a file is opened *directly* when
//! its data set is far larger than the page cache. The data set is the known files of the same kind: the same folder
//! and extension.
//!
//! Only the READs of a file that is open directly show the sizes of a program's reads. So the first such file of a kind
//! is a *probe*. There is one probe at a time, and other files of the kind are opened through the page cache until the
//! probe has shown large pieces. Then all files of the kind are opened directly, until a reader asks for small pieces
//! or maps a file. Two files in a row that several readers had open at once, or that were read again while the page
//! cache could have held them, end it, too. After many more opens the kind is tried again.
//!
//! An open file keeps the mode that it was opened with. A file that is open in both modes shows the same
//! bytes in both, because an inode is one version.
//!
//! Pure, and bounded by [`MAX_KINDS`] and [`MAX_RECENT`].

use std::collections::HashMap;

use s3mount_metrics::labels;

use crate::numbers::InodeNo;
use crate::page_cache::kind::KindKey;

/// Smaller files, in bytes, are always opened through the page cache. To measure the machine's memory takes
/// 0.1 ms at each open, which is 1 to 2 % of the time to read a file of this size.
pub(crate) const LEAST_BYTES: u64 = 16 << 20;

/// A data set this many times as large as the page cache is too large for it. In epochs that shuffle the
/// files, a least recently used cache then serves 1/(2 n²) of the reads: an eighth.
const TOO_LARGE: u64 = 2;

/// The largest file, in bytes, that may be a probe while its readers are unknown. In pieces of 4 KiB, it takes them 3 s
/// instead of 0.2 s.
const PROBE_BYTES: u64 = 256 << 20;

/// The number of READs after which a reader is judged. Readers of archives (`np.load`) begin with a dozen small READs.
const WINDOW_READS: u32 = 128;

/// The average size of a READ, in bytes, from which pieces are large. At 96 KiB both modes take the same
/// processor time. At 256 KiB the direct mode takes two thirds of it, at 64 KiB a sixth more. `np.load` of an
/// `.npz` reads 252 KiB and 4 KiB in turn.
const LARGE_BYTES: u64 = 96 << 10;

/// What one file that should not have been opened directly adds to `wrong`. Each later direct open subtracts
/// one.
const WRONG: u32 = 4;

/// The value of `wrong` at which a kind goes back to the page cache: two wrong files in a row, or a quarter
/// of all.
const TOO_WRONG: u32 = 2 * WRONG - 1;

/// The number of opens after which a kind is tried again. Each time, it takes this many times as long.
const PAUSE: u32 = 16;

/// How many kinds are known. When there are more, all are forgotten.
const MAX_KINDS: usize = 256;

/// How many recently read files are remembered. This many of the smallest ones fill 128 GiB of page cache.
const MAX_RECENT: usize = 8192;

labels! {
    /// Why a kind goes back to the page cache.
    pub enum Reason("reason") {
        /// Its readers ask for small pieces.
        SmallPieces = "small_pieces",
        /// A file of the kind is mapped.
        Mapped = "mapped",
        /// Several readers have the same file open at once.
        Shared = "shared",
        /// Files are read again that the page cache could have held.
        Again = "again",
    }
}

/// A change of a kind's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its files are opened directly from now on.
    Direct,
    /// Its files are opened through the page cache again.
    Cached(Reason),
}

/// The decisions since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many files were opened directly.
    pub(crate) opens: u64,
    /// How many kinds are opened directly now.
    pub(crate) kinds: usize,
    /// How often a kind went back to the page cache, for each [`Reason`] in its order.
    pub(crate) back: [u64; 4],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Unknown,
    /// This file is the probe.
    Probing(InodeNo),
    Direct,
    /// The kind is tried again after this many opens.
    Cached(u32),
}

#[derive(Debug, Default)]
struct KindState {
    stage: Stage,
    /// The most bytes that its known files had together.
    data_set_bytes: u64,
    /// Whether a reader began with a large piece.
    asks_large: bool,
    wrong: u32,
    /// How often the kind went back to the page cache.
    given_up: u32,
}

/// A file that was read lately.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// How many bytes of large files the mount had read at that time.
    at: u64,
    /// How many bytes of the file were read.
    bytes: u64,
    is_direct: bool,
}

/// How many readers have a file open, and how many of them directly.
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
    /// How much the page cache may hold for the reader, in bytes.
    pub(crate) cache_bytes: u64,
}

/// A large file that is closed after it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) ino: InodeNo,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// How many bytes this reader's READs asked for.
    pub(crate) read_bytes: u64,
    pub(crate) is_direct: bool,
}

/// The policy of one mount.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    kinds: HashMap<KindKey, KindState>,
    recent: HashMap<InodeNo, Recent>,
    open: HashMap<InodeNo, Readers>,
    /// How many bytes of large files were read since the mount.
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
    pub(crate) fn data_set_bytes(&self, kind: &KindKey) -> u64 {
        self.kinds.get(kind).map_or(0, |known| known.data_set_bytes)
    }

    /// Decides whether a file is opened directly. Also returns whether that changes the mode of its kind. The
    /// known files of its kind have `data_set_bytes` together.
    pub(crate) fn on_open(
        &mut self,
        kind: &KindKey,
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

    /// Notes that a reader of a file that is open through the page cache begins with a large piece.
    pub(crate) fn on_large_beginning(&mut self, kind: &KindKey) {
        if let Some(known) = self.kinds.get_mut(kind) {
            known.asks_large = true;
        }
    }

    /// Notes whether a reader of a file that is open directly asks for large pieces.
    pub(crate) fn on_pieces(&mut self, kind: &KindKey, ino: InodeNo, are_large: bool) -> Option<Change> {
        let known = self.kinds.get_mut(kind)?;
        if !are_large {
            return self.give_up(kind, Reason::SmallPieces);
        }
        (known.stage == Stage::Probing(ino)).then(|| {
            known.stage = Stage::Direct;
            Change::Direct
        })
    }

    /// Notes that a file that is open directly is mapped.
    pub(crate) fn on_map(&mut self, kind: &KindKey) -> Option<Change> {
        self.give_up(kind, Reason::Mapped)
    }

    fn give_up(&mut self, kind: &KindKey, reason: Reason) -> Option<Change> {
        let change = self.kinds.get_mut(kind)?.give_up(reason);
        change.inspect(|change| count(&mut self.back, *change))
    }

    /// Notes that a large file is closed.
    pub(crate) fn on_close(&mut self, kind: &KindKey, file: &Closed) {
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
            // The probe was too short to judge its reader.
            known.stage = Stage::Unknown;
        }
        self.read_bytes += file.read_bytes;
        // A file that is wholly in the page cache is read without READs.
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

    /// The decisions so far.
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
    /// Whether a file of this kind is opened directly, if the file itself allows it.
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

/// The READs of one reader of a file that is open directly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) reads: u32,
    pub(crate) bytes: u64,
}

impl Pieces {
    /// Whether these READs show large pieces. `None` if they are too few.
    pub(crate) fn are_large(self) -> Option<bool> {
        let enough = u64::from(WINDOW_READS) * LARGE_BYTES;
        if self.bytes >= enough { Some(true) } else { (self.reads >= WINDOW_READS).then_some(false) }
    }
}

#[cfg(test)]
mod tests;
