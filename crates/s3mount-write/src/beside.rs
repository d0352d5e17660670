//! What an object keeps beside its bytes when it is written anew or copied. Pure.

use s3mount_object::{NewObject, UserMetadata};

/// Objects have this storage class only in directory buckets, and these give it to all of their objects.
const EXPRESS: &str = "EXPRESS_ONEZONE";

/// Text of the user that tells of the bytes or of their time: the names of s3fs, rclone and s3cmd. It would be false
/// of other bytes, and programs that compare it would take the object for damaged, or for unchanged.
const OF_THE_BYTES: [&str; 5] = ["mtime", "ctime", "atime", "md5chksum", "s3cmd-attrs"];

/// What an object gets that takes the place of one that had `found`, or is a copy of it. How the bytes are stored is
/// as `wanted` says, if it says so.
pub(crate) fn keep(found: NewObject, wanted: NewObject) -> NewObject {
    let class = found.storage_class.filter(|class| class != EXPRESS);
    NewObject {
        storage_class: wanted.storage_class.or(class),
        encryption: wanted.encryption.or(found.encryption),
        tags: wanted.tags.or(found.tags),
        ..found
    }
}

/// Drops the text of the user that is false once the bytes have changed.
pub fn forget_bytes(metadata: &mut UserMetadata) {
    for name in OF_THE_BYTES {
        metadata.remove(name);
    }
}
