//! Kinds of files: those of one folder and one extension are mostly read in the same way.

use s3mount_object::extension;

use crate::numbers::InodeNo;
use crate::tree::inode::InodeTable;

/// A folder and an extension.
pub(crate) type KindKey = (InodeNo, Box<str>);

/// The kind of a file, unless the kernel has forgotten its inode.
pub(crate) fn kind_of(inodes: &InodeTable, ino: InodeNo) -> Option<KindKey> {
    let (parent, name) = inodes.parent_and_name(ino)?;
    Some((parent, extension(&name).into()))
}
