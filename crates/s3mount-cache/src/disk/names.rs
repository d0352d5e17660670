//! Kept listings: the names of directories, so that a later mount need not list them again.
//!
//! A file holds the listing of one directory: its pages in the order of their keys, then a table of each page's
//! position and last key, then the position of that table. A look-up reads the table and one page. The pages themselves
//! are opaque here. Each page and the table have a CRC-64/NVME behind them.
//!
//! A file is written under a temporary name and renamed when it is complete, so a file is whole or absent.

pub(crate) mod listings;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use s3mount_object::{ETag, ObjectId};

use super::blocks;
use super::dir::Dir;
use super::io::make_folder;
use super::layout::Hash;
use super::scan;
use listings::UNFINISHED_LISTING;

/// What a file begins with: the format's name and version.
const MAGIC: &[u8; 8] = b"s3mnam01";

/// A checksum, in bytes.
const CRC_BYTES: usize = 8;

/// The end of a file: where its table begins, how long the table is, and the checksum of these two.
const FOOTER_BYTES: usize = 24;

/// The listings that one cache keeps of one store.
#[derive(Clone, Debug)]
pub struct NameStore {
    dir: Arc<Dir>,
    source: String,
    /// How many bytes of the disk listings may take.
    most_bytes: u64,
    /// The bytes of all unfinished listings.
    unfinished: Arc<AtomicU64>,
}

/// Where a page lies in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The last key that the page covers. `None` for the last page of a listing.
    upto: Option<Box<str>>,
    start: u64,
    len: u64,
}

fn crc(bytes: &[u8]) -> [u8; CRC_BYTES] {
    blocks::sum(bytes).to_le_bytes()
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a kept listing is damaged: {what}"))
}

/// Checks that the folder was not moved away or replaced.
fn check(dir: &Dir) -> io::Result<()> {
    if dir.room.is_checked() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

impl NameStore {
    pub(super) fn new(dir: Arc<Dir>, source: String) -> Self {
        let most_bytes = dir.room.most_listing_bytes().unwrap_or_else(|error| {
            tracing::debug!(%error, "read the room for listings in the disk cache");
            0
        });
        Self { dir, source, most_bytes, unfinished: Arc::default() }
    }

    fn path(&self, directory: &str) -> PathBuf {
        // No object has an empty ETag.
        self.dir.layout.listing(&Hash::of(&self.source, &ObjectId::new(directory, ETag::new(""))))
    }

    /// Begins to keep the listing of `directory`. All unfinished listings together may take as many bytes as the kept
    /// ones: beyond that, the next page is an error.
    ///
    /// # Errors
    /// Those of the disk. `NotFound` while the cache's folder is gone: the housekeeper recreates it, with its mode.
    pub fn write(&self, directory: &str) -> io::Result<NamesWriter> {
        check(&self.dir)?;
        let path = self.path(directory);
        let folder = path.parent().unwrap_or(Path::new("/"));
        make_folder(&self.dir.layout.names())?;
        make_folder(folder)?;
        let file = tempfile::Builder::new().prefix(UNFINISHED_LISTING).tempfile_in(folder)?;
        let unfinished = Unfinished { all: self.unfinished.clone(), most: self.most_bytes, bytes: 0 };
        let (out, dir) = (BufWriter::new(file), self.dir.clone());
        let mut writer = NamesWriter { out, path, at: 0, places: Vec::new(), unfinished, dir };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    /// The kept listing of `directory`, if there is one.
    ///
    /// # Errors
    /// Those of the disk, and `InvalidData` for a file that is damaged. The caller may
    /// [forget](Self::forget) it.
    pub fn open(&self, directory: &str) -> io::Result<Option<NamesFile>> {
        let file = match File::open(self.path(directory)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        NamesFile::new(file).map(Some)
    }

    /// Drops the kept listing of `directory`.
    ///
    /// # Errors
    /// Those of the disk. A listing that is not there is no error.
    pub fn forget(&self, directory: &str) -> io::Result<()> {
        if !self.dir.room.is_checked() {
            return Ok(());
        }
        let path = self.path(directory);
        let bytes = taken_bytes(&path);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(()) => self.dir.room.on_listing(bytes, 0),
        }
        Ok(())
    }
}

/// A listing that is being kept. It is dropped without a trace if it is not finished.
#[derive(Debug)]
pub struct NamesWriter {
    out: BufWriter<tempfile::NamedTempFile>,
    path: PathBuf,
    at: u64,
    places: Vec<Place>,
    unfinished: Unfinished,
    dir: Arc<Dir>,
}

/// The share of one unfinished listing in the bytes that all of them may take.
#[derive(Debug)]
struct Unfinished {
    all: Arc<AtomicU64>,
    most: u64,
    bytes: u64,
}

impl Unfinished {
    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes += bytes;
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.most {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("kept listings may take {} bytes of the disk cache", self.most),
            ));
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How many bytes of the disk a file takes; 0 if it is missing.
fn taken_bytes(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |file| scan::taken_bytes(&file))
}

impl NamesWriter {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unfinished.grow(bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds the next page, which covers all keys up to `upto`, or up to the end of the directory.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn push(&mut self, upto: Option<&str>, page: &[u8]) -> io::Result<()> {
        let place = Place { upto: upto.map(Into::into), start: self.at, len: page.len() as u64 };
        self.places.push(place);
        self.put(page)?;
        self.put(&crc(page))
    }

    /// Writes the end of the file, and gives the file its name.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(mut self) -> io::Result<()> {
        let mut table = Vec::new();
        for Place { upto, start, len } in &self.places {
            let key = upto.as_deref().unwrap_or_default();
            let key_len =
                upto.as_ref().map_or(u32::MAX, |key| u32::try_from(key.len()).unwrap_or(u32::MAX - 1));
            table.extend_from_slice(&start.to_le_bytes());
            table.extend_from_slice(&len.to_le_bytes());
            table.extend_from_slice(&key_len.to_le_bytes());
            table.extend_from_slice(key.as_bytes());
        }
        let table_crc = crc(&table);
        table.extend_from_slice(&table_crc);
        let mut footer = [self.at.to_le_bytes(), (table.len() as u64).to_le_bytes()].concat();
        footer.extend_from_slice(&crc(&footer));
        self.put(&table)?;
        self.put(&footer)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        check(&self.dir)?;
        let (before, bytes) = (taken_bytes(&self.path), scan::taken_bytes(&file.as_file().metadata()?));
        file.persist(&self.path).map_err(|error| error.error)?;
        self.dir.room.on_listing(before, bytes);
        Ok(())
    }
}

/// A kept listing.
#[derive(Debug)]
pub struct NamesFile {
    file: File,
    places: Vec<Place>,
}

/// Takes `len` bytes off the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> io::Result<&'a [u8]> {
    let (front, back) = rest.split_at_checked(len).ok_or_else(|| damaged("the table is cut off"))?;
    *rest = back;
    Ok(front)
}

fn number(rest: &mut &[u8]) -> io::Result<u64> {
    let bytes = take(rest, 8)?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| damaged("a number"))?))
}

impl NamesFile {
    fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let end = len.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| damaged("it is too short"))?;
        let footer = checked(read(&file, end, FOOTER_BYTES as u64)?, "its end")?;
        let mut rest = &*footer;
        let (start, table_len) = (number(&mut rest)?, number(&mut rest)?);
        if start.checked_add(table_len) != Some(end) {
            return Err(damaged("the table does not lie at its end"));
        }
        let table = checked(read(&file, start, table_len)?, "its table")?;
        let (mut rest, mut places) = (&*table, Vec::new());
        while !rest.is_empty() {
            let (first, len) = (number(&mut rest)?, number(&mut rest)?);
            let key_len =
                u32::from_le_bytes(take(&mut rest, 4)?.try_into().map_err(|_| damaged("a length"))?);
            let upto = if key_len == u32::MAX {
                None
            } else {
                let key = take(&mut rest, key_len as usize)?;
                Some(std::str::from_utf8(key).map_err(|_| damaged("a key"))?.into())
            };
            places.push(Place { upto, start: first, len });
        }
        if places.iter().any(|place| place.start.saturating_add(place.len) > start) {
            return Err(damaged("a page lies beyond its table"));
        }
        Ok(Self { file, places })
    }

    /// How many pages it has.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has no pages. The listing of a directory always has one.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of the page that covers `key`.
    pub fn index_of(&self, key: &str) -> Option<usize> {
        let index = self.places.partition_point(|place| place.upto.as_deref().is_some_and(|upto| upto < key));
        (index < self.places.len()).then_some(index)
    }

    /// The page with this number.
    ///
    /// # Errors
    /// Those of the disk, and `InvalidData` for a page that is damaged, or not there.
    pub fn page(&self, index: usize) -> io::Result<Vec<u8>> {
        let place = self.places.get(index).ok_or_else(|| damaged("there is no such page"))?;
        checked(read(&self.file, place.start, place.len.saturating_add(CRC_BYTES as u64))?, "a page")
    }
}

/// Reads bytes inside the file, as its checked footer and table say.
fn read(file: &File, start: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| damaged("a length"))?];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// The bytes before the checksum at their end, if the checksum is right.
fn checked(mut bytes: Vec<u8>, what: &str) -> io::Result<Vec<u8>> {
    let len = bytes.len().checked_sub(CRC_BYTES).ok_or_else(|| damaged(what))?;
    if bytes[len..] != crc(&bytes[..len]) {
        return Err(damaged(what));
    }
    bytes.truncate(len);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::Path;

    use tempfile::TempDir;

    use super::NameStore;
    use crate::disk::DiskCache;
    use crate::disk::layout::Layout;
    use crate::disk::tests::config;

    fn store_of(path: &Path, source: &str) -> NameStore {
        let (cache, _hands) = DiskCache::open_by_hand(&config(path), 1, || 1 << 40).expect("a cache");
        NameStore { most_bytes: 1 << 20, ..NameStore::new(cache.0.disks[0].dir().clone(), source.to_owned()) }
    }

    fn store(dir: &TempDir) -> NameStore {
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("changed");
        store_of(dir.path(), "s3://bucket")
    }

    /// Keeps a listing of three pages.
    fn keep(store: &NameStore) {
        let mut writer = store.write("d/").expect("a listing");
        for (upto, page) in [(Some("c"), "one"), (Some("m"), "two"), (None, "three")] {
            writer.push(upto, page.as_bytes()).expect("a page");
        }
        writer.finish().expect("a file");
    }

    #[test]
    fn a_key_is_found_on_the_page_that_covers_it() {
        let dir = TempDir::new().expect("a folder");
        let store = store(&dir);
        assert!(store.open("d/").expect("no error").is_none(), "nothing is kept yet");
        keep(&store);
        let file = store.open("d/").expect("no error").expect("a listing");
        assert_eq!(file.len(), 3);
        for (key, page) in [("a", "one"), ("c", "one"), ("c1", "two"), ("m", "two"), ("z", "three")] {
            let index = file.index_of(key).expect("it is covered");
            assert_eq!(file.page(index).expect("a page"), page.as_bytes(), "{key}");
        }
        assert!(store.open("e/").expect("no error").is_none(), "another directory");
        let other = store_of(dir.path(), "s3://other");
        assert!(other.open("d/").expect("no error").is_none(), "another bucket");
    }

    #[test]
    fn folders_are_for_their_owner_alone_and_the_cache_itself_is_not_made() {
        let dir = TempDir::new().expect("a folder");
        keep(&store(&dir));
        let layout = Layout::new(dir.path());
        let listing = store(&dir).path("d/");
        for folder in [layout.names(), listing.parent().expect("a folder").to_owned()] {
            let mode = std::fs::metadata(&folder).expect("it was made").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
        }
        let gone = dir.path().join("gone");
        let store = store_of(&gone, "s3://bucket");
        std::fs::remove_dir_all(&gone).expect("deleted");
        let error = store.write("d/").map(drop).expect_err("its folder is gone");
        assert!(error.kind() == io::ErrorKind::NotFound && !gone.exists(), "{error}");
    }

    #[test]
    fn a_listing_that_is_not_finished_leaves_nothing() {
        let dir = TempDir::new().expect("a folder");
        let mut writer = store(&dir).write("d/").expect("a listing");
        writer.push(Some("c"), b"one").expect("a page");
        drop(writer);
        let mut shards = std::fs::read_dir(dir.path().join("names")).expect("a folder");
        let shard = shards.next().expect("a folder").expect("a folder").path();
        assert_eq!(std::fs::read_dir(shard).expect("a folder").count(), 0);
    }

    /// The bytes of two listings count for both, and the one that is dropped gives its bytes back.
    #[test]
    fn a_listing_that_is_too_long_is_not_kept() {
        let dir = TempDir::new().expect("a folder");
        let store = NameStore { most_bytes: 100_000, ..store(&dir) };
        let (page, begin) = ([7; 30_000], |directory| store.write(directory).expect("a listing"));
        let (mut one, mut other) = (begin("d/"), begin("e/"));
        one.push(Some("c"), &page).expect("a page");
        other.push(Some("c"), &page).expect("a page");
        one.push(Some("d"), &page).expect("a page");
        let error = one.push(Some("e"), &page).expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(one);
        other.push(None, &page).expect("a page");
        other.finish().expect("a file");
        assert!(store.open("d/").expect("no error").is_none());
        assert_eq!(store.open("e/").expect("no error").expect("a listing").len(), 2);
        assert_eq!(store.unfinished.load(super::Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_is_kept_in_a_folder_that_was_put_in_place_of_the_cache() {
        let dir = TempDir::new().expect("a folder");
        let path = dir.path().join("cache");
        let store = store_of(&path, "s3://bucket");
        let mut writer = store.write("e/").expect("a listing");
        keep(&store);
        std::fs::rename(&path, dir.path().join("elsewhere")).expect("renamed");
        let mine = store.path("d/");
        std::fs::create_dir_all(mine.parent().expect("a folder")).expect("made");
        std::fs::write(&mine, "mine").expect("a file");
        assert_eq!(store.write("d/").map(drop).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        writer.push(None, b"one").expect("a page");
        assert_eq!(writer.finish().expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        store.forget("d/").expect("no error");
        assert_eq!(std::fs::read(&mine).expect("a file"), b"mine");
        assert!(!store.path("e/").exists());
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let dir = TempDir::new().expect("a folder");
        let store = store(&dir);
        keep(&store);
        let whole = std::fs::read(store.path("d/")).expect("a file");
        let file = std::fs::File::options().write(true).open(store.path("d/")).expect("a file");
        let pages = || -> io::Result<Vec<Vec<u8>>> {
            let file = store.open("d/")?.expect("it is there");
            (0..file.len()).map(|index| file.page(index)).collect()
        };
        let right = pages().expect("it is whole");
        for (at, byte) in whole.iter().enumerate().skip(super::MAGIC.len()) {
            file.write_all_at(&[byte ^ 1], at as u64).expect("a byte");
            assert_eq!(pages().expect_err("a bit is wrong").kind(), io::ErrorKind::InvalidData, "{at}");
            file.write_all_at(&[*byte], at as u64).expect("a byte");
        }
        assert_eq!(pages().expect("it is whole again"), right);
        for len in 0..whole.len() {
            std::fs::write(store.path("d/"), &whole[..len]).expect("a file");
            pages().expect_err("it is cut");
        }
    }
}
