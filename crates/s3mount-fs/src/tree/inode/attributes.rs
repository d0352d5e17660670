//! The attributes of inodes, and those that are stored with objects.

use std::sync::Arc;

use super::{InodeNo, InodeTable, Tables, Version};
use crate::attr::Attr;
use crate::attributes::known::{CachedAttr, KnownAttrs};
use crate::numbers::ROOT;
use s3mount_names::File;
use s3mount_names::time::millis;

impl Version {
    /// Notes when the version was written, according to the store, and its known attributes. The same bytes may be
    /// written again with other attributes.
    pub(super) fn update(&mut self, modified: i64, found: Option<Box<CachedAttr>>) {
        match found {
            Some(found) => (self.found, self.modified) = (Some(found), modified),
            None if self.modified != modified => self.found = None,
            None => {}
        }
    }
}

impl InodeTable {
    /// The attributes of an inode, if the kernel knows the inode.
    pub(crate) fn attr(&self, ino: InodeNo) -> Option<Attr> {
        let tables = self.lock();
        let has_name = ino == ROOT
            || tables.parent_and_name(ino).is_some_and(|place| tables.newest(place.0, place.1) == Some(ino));
        let attr = match tables.versions.get(&ino) {
            Some(version) => version.attr(ino),
            None if tables.directories.contains_key(&ino) => Tables::directory_attr(ino, self.mounted_at),
            None => {
                let file = tables.drafts.get(&ino)?.file.clone();
                drop(tables);
                file.attr(ino)
            }
        };
        Some(Attr { is_unlinked: attr.is_unlinked || !has_name, ..attr })
    }

    /// Shows the attributes that `attrs` knows.
    pub(crate) fn show_attrs(&self, attrs: Arc<KnownAttrs>) {
        // `attrs` was unset: this is called once.
        drop(self.attrs.set(attrs));
    }

    /// The known attributes of a version, if the kernel knows the version under this name.
    pub(crate) fn found(&self, parent: InodeNo, name: &str, file: &File) -> Option<CachedAttr> {
        let tables = self.lock();
        let ino = tables.newest(parent, name)?;
        let known = tables.versions.get(&ino)?;
        let is_same = known.etag() == file.object.etag().as_str() && known.modified == millis(file.mtime);
        known.found.as_deref().copied().filter(|_| is_same)
    }

    /// Whether all attributes of an inode are known. If not, it shows those of the flags.
    pub(crate) fn has_found(&self, ino: InodeNo) -> bool {
        self.lock().versions.get(&ino).is_none_or(|known| known.found.is_some())
    }

    /// Notes the attributes of a version that was restored without them.
    pub(crate) fn note_found(&self, ino: InodeNo, file: &File, found: CachedAttr) {
        let mut tables = self.lock();
        let known = tables.versions.get_mut(&ino);
        if let Some(known) = known.filter(|known| known.etag() == file.object.etag().as_str()) {
            known.found = Some(Box::new(found));
        }
    }

    /// A copy of a version onto itself changed its attributes: the version is `file` now. Until the guard is dropped,
    /// a page that shows the former version outdates no inode.
    #[must_use]
    pub(crate) fn replace_version(&self, ino: InodeNo, file: &File, found: CachedAttr) -> Replacing<'_> {
        let mut tables = self.lock();
        tables.replaced.push(ino);
        if let Some(known) = tables.versions.get_mut(&ino) {
            let name_len = known.name().len();
            known.text = format!("{}{}", &known.text[..name_len], file.object.etag().as_str()).into();
            (known.modified, known.found) = (millis(file.mtime), Some(Box::new(found)));
        }
        tables.record(ino);
        Replacing { table: self, ino }
    }
}

/// The names of a file whose version was replaced learn of it.
#[derive(Debug)]
pub(crate) struct Replacing<'a> {
    table: &'a InodeTable,
    ino: InodeNo,
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        let mut tables = self.table.lock();
        if let Some(at) = tables.replaced.iter().position(|ino| *ino == self.ino) {
            tables.replaced.swap_remove(at);
        }
    }
}
