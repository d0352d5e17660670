//! An index that is read.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use s3mount_object::{ListObjects, ListPage, ObjectMeta};

use crate::error::ListedError;
use crate::file::blocks::Blocks;
use crate::file::cursor::Cursor;
use crate::file::writer::MAGIC;
use crate::file::{page, version};

/// The names of a list in order, in a file. Cheap to ask from many threads.
#[derive(Debug)]
pub struct Index(Blocks);

/// Whether a file begins as an index does.
///
/// # Errors
/// Those of opening and reading the file.
pub fn is_index(path: &Path) -> Result<bool, ListedError> {
    // To open a pipe would wait for who writes to it.
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(false);
    }
    let mut begin = Vec::with_capacity(MAGIC.len());
    let file = File::open(path).map_err(ListedError::of("open", path))?;
    file.take(MAGIC.len() as u64).read_to_end(&mut begin).map_err(ListedError::of("read", path))?;
    Ok(begin == MAGIC)
}

impl Index {
    /// Opens the index in a file. Looks at its beginning, its end and its root; all other blocks are checked when they are
    /// read.
    ///
    /// # Errors
    /// `Damaged`, or those of reading the file.
    pub fn open(file: File) -> Result<Self, ListedError> {
        Blocks::open(file).map(Self)
    }

    /// Of which list it is, as the text that it was built with.
    pub fn about(&self) -> &str {
        &self.0.about
    }

    /// How many names it has.
    pub fn keys(&self) -> u64 {
        self.0.keys
    }

    /// The length of its file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// A number below 2^63 that no other index has, however often its file is overwritten.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The open file, for another process that is to go on with it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// The file, for locks.
    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }

    /// What the list says of a key, if it has the key.
    ///
    /// # Errors
    /// `Damaged`, or those of reading the file.
    pub fn head(&self, key: &str) -> Result<Option<ObjectMeta>, ListedError> {
        let cursor = Cursor::at(&self.0, key.as_bytes())?;
        let Some((found, version)) = cursor.entry() else { return Ok(None) };
        if found != key.as_bytes() {
            return Ok(None);
        }
        version::meta(version).map(Some).ok_or(ListedError::Damaged("a version is not readable"))
    }

    /// Whether a key begins with `prefix`.
    ///
    /// # Errors
    /// As of [`head`](Self::head).
    pub fn has_below(&self, prefix: &str) -> Result<bool, ListedError> {
        let cursor = Cursor::at(&self.0, prefix.as_bytes())?;
        Ok(cursor.entry().is_some_and(|(key, _)| key.starts_with(prefix.as_bytes())))
    }

    /// A page of names, as a store that has exactly the objects of the list answers.
    ///
    /// # Errors
    /// As of [`head`](Self::head).
    pub fn list(&self, request: &ListObjects) -> Result<ListPage, ListedError> {
        page::list(&self.0, request)
    }
}
