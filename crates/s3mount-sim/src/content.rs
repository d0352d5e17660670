//! Bytes that say who has written them, and where.
//!
//! A file is made of cells. Each cell names its writer, the call that wrote it, and its place in the file. So a byte
//! that is old, misplaced, or nobody's, is found by looking at it.

use std::fmt;
use std::ops::Range;

use s3mount_testkit::mix;

/// The length of a cell in bytes.
pub const CELL: u64 = 64;

/// The place of cells that were appended: whoever appends does not know where they come to lie.
pub const ANYWHERE: u64 = 0xffff_ffff;

/// Who writes what others write, too.
pub const COMMON: u16 = 0xffff;

/// One call that has written bytes: the writer, and the number of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The program, or a stranger.
    pub writer: u16,
    /// The number of its call.
    pub call: u16,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}.{}", self.writer, self.call)
    }
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellContent {
    /// Nobody has written it.
    Zeros,
    /// The bytes of a call, at their place.
    Written(Tag),
    /// The bytes of a call that belong to the cell of this number.
    Misplaced(Tag, u64),
    /// Bytes of no call, or of several.
    Garbage,
}

fn cell(tag: Tag, index: u64) -> [u8; CELL as usize] {
    let mut bytes = [b'\n'; CELL as usize];
    let head = format!("w{:04x}c{:04x}@{index:08x}", tag.writer, tag.call);
    bytes[..head.len()].copy_from_slice(head.as_bytes());
    let seed = mix(u64::from(tag.writer) << 48 ^ u64::from(tag.call) << 32 ^ index);
    for (at, byte) in bytes[head.len()..].iter_mut().enumerate() {
        *byte = b'a' + (mix(seed ^ (at as u64 / 8)) >> (at % 8 * 8)) as u8 % 26;
    }
    bytes
}

/// The bytes of a call from `at` on. Both numbers are of whole cells.
pub fn fill(tag: Tag, cells: Range<u64>) -> Vec<u8> {
    cells.flat_map(|index| cell(tag, index)).collect()
}

/// The bytes that a call appends.
pub fn appended(tag: Tag, cells: u64) -> Vec<u8> {
    (0..cells).flat_map(|_| cell(tag, ANYWHERE)).collect()
}

fn hex(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok().and_then(|text| u64::from_str_radix(text, 16).ok())
}

fn decode_cell(bytes: &[u8], place: u64) -> CellContent {
    if bytes.iter().all(|byte| *byte == 0) {
        return CellContent::Zeros;
    }
    let parsed = || {
        let (writer, call, index) =
            (hex(bytes.get(1..5)?)?, hex(bytes.get(6..10)?)?, hex(bytes.get(11..19)?)?);
        let tag = Tag { writer: u16::try_from(writer).ok()?, call: u16::try_from(call).ok()? };
        (*bytes == cell(tag, index)[..bytes.len()]).then_some((tag, index))
    };
    match parsed() {
        Some((tag, index)) if index == place || index == ANYWHERE => CellContent::Written(tag),
        Some((tag, index)) => CellContent::Misplaced(tag, index),
        None => CellContent::Garbage,
    }
}

/// What the cells of `bytes` hold, as runs of cells that hold the same. `bytes` begins at the cell `first`.
pub fn decode(bytes: &[u8], first: u64) -> Vec<(Range<u64>, CellContent)> {
    let mut runs: Vec<(Range<u64>, CellContent)> = Vec::new();
    for (at, bytes) in bytes.chunks(CELL as usize).enumerate() {
        let place = first + at as u64;
        let found = decode_cell(bytes, place);
        match runs.last_mut() {
            Some((range, before)) if *before == found => range.end = place + 1,
            _ => runs.push((place..place + 1, found)),
        }
    }
    runs
}

/// Runs as a line of text.
pub fn shown(runs: &[(Range<u64>, CellContent)]) -> String {
    let run = |(range, found): &(Range<u64>, CellContent)| match found {
        CellContent::Zeros => format!("{}..{} zeros", range.start, range.end),
        CellContent::Written(tag) => format!("{}..{} {tag}", range.start, range.end),
        CellContent::Misplaced(tag, index) => format!("{}..{} {tag} of cell {index}", range.start, range.end),
        CellContent::Garbage => format!("{}..{} garbage", range.start, range.end),
    };
    let mut shown: Vec<String> = runs.iter().take(12).map(run).collect();
    if runs.len() > shown.len() {
        shown.push(format!("and {} more", runs.len() - shown.len()));
    }
    format!("[{}]", shown.join(", "))
}
