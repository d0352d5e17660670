//! Power cuts: each write since the last sync may be lost, cut short, or complete, in any combination.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::disk::io::RECORD_ATTRIBUTE;

/// A file as it was at the last sync.
#[derive(Debug)]
struct Was {
    inode: u64,
    bytes: Vec<u8>,
    record: Option<Vec<u8>>,
}

/// The objects of a cache directory as they were at the last sync.
#[derive(Debug, Default)]
pub struct Synced(BTreeMap<PathBuf, Was>);

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, RECORD_ATTRIBUTE, value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

fn set_attribute(path: &Path, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, RECORD_ATTRIBUTE, value, rustix::fs::XattrFlags::empty())?)
}

/// All files below `folder`, in order.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

impl Synced {
    /// Takes the present contents of the cache directory `dir` as synced.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn now(dir: &Path) -> io::Result<Self> {
        let file = |path: PathBuf| {
            // The housekeeper may replace a map meanwhile: a file that is gone by now is not on the disk after the cut.
            let bytes = fs::read(&path).ok()?;
            let inode = fs::metadata(&path).ok()?.ino();
            let record = attribute(&path);
            Some((path, Was { inode, bytes, record }))
        };
        Ok(Self(files(&dir.join("v1"))?.into_iter().filter_map(file).collect()))
    }

    /// Loses some writes since the last sync, in any order. `below` draws a number below its argument. Call it while
    /// nothing uses the directory.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn cut_power(&self, dir: &Path, mut below: impl FnMut(u64) -> u64) -> io::Result<()> {
        for file in files(&dir.join("v1"))? {
            self.cut(&file, &mut below)?;
        }
        Ok(())
    }

    fn cut(&self, path: &Path, below: &mut impl FnMut(u64) -> u64) -> io::Result<()> {
        let (now, inode) = (fs::read(path)?, fs::metadata(path)?.ino());
        let old = self.0.get(path);
        let is_same_file = old.is_some_and(|old| old.inode == inode);
        // The same bytes may have been in another file before: a partial object that became whole.
        let synced = self.0.values().find(|old| old.inode == inode).map(|old| &old.bytes);
        let has_same_record = old.is_some_and(|old| old.record == attribute(path));
        if is_same_file && synced == Some(&now) && has_same_record {
            return Ok(());
        }
        let open = || OpenOptions::new().write(true).open(path);
        match below(6) {
            // The name, or the new file behind it, was not written.
            0 if !is_same_file => {
                fs::remove_file(path)?;
                if let Some(old) = old {
                    fs::write(path, &old.bytes)?;
                    old.record.as_ref().map_or(Ok(()), |record| set_attribute(path, record))?;
                }
            }
            // The length was not written.
            1 if synced.is_none() => open()?.set_len(below(now.len() as u64 + 1))?,
            // The attribute was not written.
            2 if attribute(path).is_some() && synced.is_none() => {
                rustix::fs::removexattr(path, RECORD_ATTRIBUTE)?;
            }
            // Some pages were not written: they are as before, or empty.
            3 | 4 => {
                let open = open()?;
                for _ in 0..1 + below(4) {
                    let page = below(now.len() as u64 / 4096 + 1) * 4096;
                    let end = (page + 4096 * (1 + below(40))).min(now.len() as u64);
                    for at in (page..end).step_by(4096) {
                        let (from, to) = (at as usize, (at + 4096).min(end) as usize);
                        let empty = vec![0; to - from];
                        let was = synced.and_then(|bytes| bytes.get(from..to)).unwrap_or(&empty);
                        open.write_all_at(was, at)?;
                    }
                }
            }
            // All of it was written.
            _ => {}
        }
        Ok(())
    }
}
