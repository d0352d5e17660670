//! An index that has no name yet.

use std::fs::File;
use std::io::{BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use crate::error::ListedError;
use crate::file::block::BlockCursor;
use crate::file::frame;
use crate::file::writer::{HEADER_BYTES, IndexWriter, MAGIC};

/// How the names of files begin that are being written. They are locked so long.
pub(crate) const UNFINISHED: &str = "building-";

const BUFFER_BYTES: usize = 64 << 10;

/// An index, in a file that is removed with it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) file: NamedTempFile,
    pub(crate) keys: u64,
}

/// A run that is being written. A key may come twice, with the same version.
#[derive(Debug)]
pub(super) struct RunWriter {
    file: NamedTempFile,
    writer: IndexWriter,
    /// The key that was written last, and its version.
    last: Option<(Vec<u8>, Vec<u8>)>,
}

fn full(scratch: &Path) -> impl FnOnce(std::io::Error) -> ListedError {
    ListedError::of("write the index in", scratch)
}

impl RunWriter {
    pub(super) fn new(scratch: &Path, about: &str) -> Result<Self, ListedError> {
        let file = Builder::new().prefix(UNFINISHED).tempfile_in(scratch);
        let file = file.map_err(ListedError::of("make a file in", scratch))?;
        // Where no file can be locked, one that a killed process has left is removed after an hour.
        let _ = file.as_file().lock();
        let out = file.as_file().try_clone().map_err(full(scratch))?;
        let writer = IndexWriter::new(out, about).map_err(full(scratch))?;
        Ok(Self { file, writer, last: None })
    }

    /// Whether `key` comes after all that were written.
    pub(super) fn is_behind(&self, key: &[u8]) -> bool {
        self.last.as_ref().is_none_or(|(last, _)| **last < *key)
    }

    /// Adds a key that is not before those that were written.
    pub(super) fn push(&mut self, key: &[u8], version: &[u8]) -> Result<(), ListedError> {
        let (last, last_version) = match &mut self.last {
            None => self.last.insert((Vec::new(), Vec::new())),
            Some((last, last_version)) if **last == *key => {
                if **last_version == *version {
                    return Ok(());
                }
                return Err(twice(key, last_version, version));
            }
            Some(last) => last,
        };
        last.clear();
        last.extend_from_slice(key);
        last_version.clear();
        last_version.extend_from_slice(version);
        let directory = self.file.path().parent().unwrap_or(Path::new(""));
        self.writer.push(key, version).map_err(full(directory))
    }

    pub(super) fn finish(self) -> Result<Run, ListedError> {
        let directory = self.file.path().parent().unwrap_or(Path::new("")).to_owned();
        let (_, keys) = self.writer.finish().map_err(full(&directory))?;
        Ok(Run { file: self.file, keys })
    }
}

fn twice(key: &[u8], first: &[u8], second: &[u8]) -> ListedError {
    let key = String::from_utf8_lossy(key);
    let [first, second] = [first, second].map(crate::file::version::shown);
    let what = format!(
        "the key {key:?} is there twice, with {first} and with {second}; list each key once, and give a list of versions the \
         columns IsLatest and IsDeleteMarker"
    );
    ListedError::wrong("the list", what)
}

/// Reads a run from front to back.
#[derive(Debug)]
pub(super) struct RunReader {
    /// Removes the file in the end.
    _run: Run,
    from: BufReader<File>,
    id: u64,
    place: u64,
    left: u64,
    cursor: BlockCursor,
}

impl RunReader {
    /// Begins at the first key of a run that has one.
    pub(super) fn new(run: Run, about: &str) -> Result<Self, ListedError> {
        let place = (HEADER_BYTES + about.len()) as u64;
        let failed =
            |source| ListedError::File { action: "read a sorted part of the list".to_owned(), source };
        let mut file = run.file.as_file().try_clone().map_err(failed)?;
        let mut id = [0; 8];
        file.read_exact_at(&mut id, MAGIC.len() as u64).map_err(failed)?;
        let id = u64::from_le_bytes(id);
        file.seek(SeekFrom::Start(place)).map_err(failed)?;
        let mut from = BufReader::with_capacity(BUFFER_BYTES, file);
        let (left, mut place) = (run.keys, place);
        let cursor = leaf(&mut from, id, &mut place)?;
        Ok(Self { _run: run, from, id, place, left, cursor })
    }

    pub(super) fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    pub(super) fn version(&self) -> &[u8] {
        self.cursor.value()
    }

    /// Goes to the next key. Returns whether there is one.
    pub(super) fn advance(&mut self) -> Result<bool, ListedError> {
        self.left -= 1;
        if self.left == 0 {
            return Ok(false);
        }
        self.cursor.advance()?;
        if self.cursor.is_behind() {
            self.cursor = leaf(&mut self.from, self.id, &mut self.place)?;
        }
        Ok(true)
    }
}

/// The next leaf. Between leaves are the blocks that lead to them.
fn leaf(from: &mut BufReader<File>, id: u64, place: &mut u64) -> Result<BlockCursor, ListedError> {
    loop {
        let (level, block) = frame::next(from, id, place)?;
        if level == 0 {
            return BlockCursor::new(block);
        }
    }
}
