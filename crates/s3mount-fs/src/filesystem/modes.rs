//! Execute permissions, on mounts that keep no attributes.

use super::Filesystem;
use crate::attr::FileKind;
use crate::numbers::InodeNo;
use crate::tree::inode::Node;

impl Filesystem {
    /// Notes the permissions that a program sets for a file. A mount that keeps no attributes remembers the execute
    /// bits of these until it ends.
    pub fn note_mode(&self, ino: InodeNo, permissions: u32) {
        if self.attributes.kept.is_some() || self.writing.writes.is_none() {
            return;
        }
        match self.inodes.node(ino) {
            Some(Node::File(file)) => {
                self.attributes.modes.set(file.object.key(), permissions, Some(file.object.etag()));
            }
            Some(Node::Draft(file)) => {
                let (prefix, name) = file.place();
                if !file.is_unlinked() {
                    self.attributes.modes.set(&format!("{prefix}{name}"), permissions, None);
                }
            }
            Some(Node::Directory(_)) | None => {}
        }
    }

    /// The permissions of a file of this kind, if they differ from those of other files.
    pub fn mode(&self, ino: InodeNo, kind: FileKind) -> Option<u16> {
        if self.attributes.modes.is_empty() || kind != FileKind::File {
            return None;
        }
        let mode = match self.inodes.node(ino)? {
            Node::File(file) => {
                let version = &file.object;
                let is_own =
                    || self.writing.writes.as_ref().is_some_and(|writes| writes.writer.has_written(version));
                self.attributes.modes.get(version.key()).filter(|mode| mode.is_of(version, is_own))
            }
            Node::Draft(file) => {
                let (prefix, name) = file.place();
                self.attributes.modes.get(&format!("{prefix}{name}"))
            }
            Node::Directory(_) => None,
        };
        Some(mode?.shown(self.config.file_mode))
    }
}
