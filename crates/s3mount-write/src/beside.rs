//! What an object keeps beside its bytes when it is written anew or copied. Pure.

use s3mount_object::{Description, NewObject, ObjectId, UserMetadata};

/// Objects have this storage class only in directory buckets, and these give it to all of their objects.
const EXPRESS: &str = "EXPRESS_ONEZONE";

/// Text of the user that tells of the bytes or of their time: the names of s3fs, rclone and s3cmd. It would be false
/// of other bytes, and programs that compare it would take the object for damaged, or for unchanged.
const OF_THE_BYTES: [&str; 5] = ["mtime", "ctime", "atime", "md5chksum", "s3cmd-attrs"];

/// What is not known of the object that a file was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// All that this version has beside its bytes.
    All(ObjectId),
    /// Its tags.
    Tags(ObjectId),
}

/// What an object gets that takes the place of one that had `found`, or is a copy of it. How the bytes are stored is
/// as `wanted` says, if it says so.
pub(crate) fn keep(found: NewObject, wanted: NewObject) -> NewObject {
    // A directory bucket encrypts as its session says, too, and refuses a request that says something else.
    let is_express = found.storage_class.as_deref() == Some(EXPRESS);
    let (class, encryption) = (found.storage_class, found.encryption);
    NewObject {
        storage_class: wanted.storage_class.or(class.filter(|_| !is_express)),
        encryption: wanted.encryption.or(encryption.filter(|_| !is_express)),
        tags: wanted.tags.or(found.tags),
        ..found
    }
}

/// What an object gets that is written in the place of `version`, which the store has `found` or has not been asked for,
/// and what is not known of that. How the bytes are stored is as `wanted` says, if it says so.
pub(crate) fn in_place_of(
    version: &ObjectId,
    found: Option<&Description>,
    wanted: NewObject,
) -> (NewObject, Option<Unknown>) {
    match found {
        Some(found) => {
            let unknown = (found.tag_count > 0).then(|| Unknown::Tags(version.clone()));
            (keep(found.object.clone(), wanted), unknown)
        }
        None => (wanted, Some(Unknown::All(version.clone()))),
    }
}

/// Drops the text of the user that is false once the bytes have changed.
pub fn forget_bytes(metadata: &mut UserMetadata) {
    for name in OF_THE_BYTES {
        metadata.remove(name);
    }
}
