//! The metadata that an object keeps when it is written anew or copied. Pure.

use s3mount_object::{Description, NewObject, ObjectId, UserMetadata};

/// Objects have this storage class only in directory buckets, and these give it to all of their objects.
const EXPRESS: &str = "EXPRESS_ONEZONE";

/// Text of the user that describes the bytes or their time: the names of s3fs, rclone and s3cmd. It would be false of
/// other bytes, and programs that compare it would take the object for damaged, or for unchanged.
const OF_THE_BYTES: [&str; 5] = ["mtime", "ctime", "atime", "md5chksum", "s3cmd-attrs"];

/// What is unknown of a file's former object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// All metadata of this version.
    All(ObjectId),
    /// Its tags.
    Tags(ObjectId),
}

/// The metadata of an object that replaces one with `found`, or is a copy of it. `wanted` overrides how the bytes are
/// stored.
pub(crate) fn keep(found: NewObject, wanted: NewObject) -> NewObject {
    // A directory bucket also encrypts as its session says, and refuses a request that says otherwise.
    let is_express = found.storage_class.as_deref() == Some(EXPRESS);
    let (class, encryption) = (found.storage_class, found.encryption);
    NewObject {
        storage_class: wanted.storage_class.or(class.filter(|_| !is_express)),
        encryption: wanted.encryption.or(encryption.filter(|_| !is_express)),
        tags: wanted.tags.or(found.tags),
        ..found
    }
}

/// The metadata of an object that is written in the place of `version`, and what is unknown of it. `found` is the
/// answer of the store, if it was asked. `wanted` overrides how the bytes are stored.
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
