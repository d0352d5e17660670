//! Promises about HEADs, checksums and the bucket.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use s3mount_object::{ETag, ErrorKind, KeptChecksum, ObjectChecksum, ObjectId, UploadPart};

use super::store::{LARGE, NOTHING, PART_BYTES, PARTS_KEY, SMALL, Store, kind};
use crate::object::Object;

/// A HEAD returns the size, the ETag and the time of an object, whatever characters the object's key has.
pub async fn a_head_tells_of_the_object(store: &Store<'_>) {
    for (key, bytes) in store.objects() {
        let meta = store.client.head_object(&key).await.expect("a HEAD");
        assert_eq!(meta.size, bytes.len() as u64, "the size of {key:?}");
        let etag = meta.etag.as_str();
        assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{key:?} has ETag {etag}");
        // The bucket was filled just now. The store's clock may differ from this machine's clock.
        let age = SystemTime::now().duration_since(meta.last_modified).unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{key:?} is {age:?} old");
    }
}

/// A HEAD of a key without an object fails with `NotFound`, also when other keys begin with this key.
pub async fn a_head_of_no_object_is_refused(store: &Store<'_>) {
    for key in [NOTHING, "order", "order/", "order/a/", "folder", "rolled/1", "large.bin/", "large.bin/x"] {
        assert_eq!(kind(store.client.head_object(key).await), Some(ErrorKind::NotFound), "{key:?}");
    }
}

/// If the store keeps a checksum of an object, it is the checksum of the object's bytes.
pub async fn checksums_are_of_the_bytes(store: &Store<'_>) {
    for key in [SMALL, LARGE] {
        let kept = store.client.checksum(&store.version(key).await).await.expect("an answer");
        match kept {
            KeptChecksum::Whole(checksum) => {
                assert!(store.has_checksums, "{key:?} has {checksum}");
                assert_eq!(checksum, own(&store.objects()[key], checksum), "the checksum of {key:?}");
            }
            KeptChecksum::None => assert!(!store.has_checksums, "{key:?} has no checksum"),
            KeptChecksum::OfParts => panic!("{key:?} was uploaded whole"),
        }
    }
}

/// The checksum of these bytes by the algorithm of `told`.
fn own(bytes: &Bytes, told: ObjectChecksum) -> ObjectChecksum {
    Object::bytes(bytes.clone()).checksum(told.algorithm).expect("a checksum of memory")
}

/// A request for the checksum of another version fails with `PreconditionFailed`. A request for the checksum
/// of a key without an object fails with `NotFound`.
pub async fn checksums_of_another_version_are_refused(store: &Store<'_>) {
    for key in [SMALL, PARTS_KEY] {
        let other = ObjectId::new(key, ETag::new("\"0123456789abcdef0123456789abcdef\""));
        let refused = kind(store.client.checksum(&other).await);
        assert_eq!(refused, Some(ErrorKind::PreconditionFailed), "{key:?}");
    }
    let other = ObjectId::new(PARTS_KEY, store.version(SMALL).await.etag().clone());
    if store.tells_part_checksums {
        let refused = kind(store.client.upload_parts(&other, 0).await);
        assert_eq!(refused, Some(ErrorKind::PreconditionFailed), "parts");
    }
    let missing = ObjectId::new(NOTHING, other.etag().clone());
    assert_eq!(kind(store.client.checksum(&missing).await), Some(ErrorKind::NotFound));
}

/// The store lists the parts of an upload in order, each with the checksum of its bytes. A store that can't
/// list them answers with no parts, and does not fail.
pub async fn parts_are_those_of_the_upload(store: &Store<'_>) {
    let object = store.version(PARTS_KEY).await;
    let (mut parts, mut after) = (Vec::<UploadPart>::new(), Some(0));
    while let Some(marker) = after {
        let page = store.client.upload_parts(&object, marker).await.expect("a page of parts");
        assert!(page.next.is_none_or(|next| next > marker), "after {marker} comes {:?}", page.next);
        parts.extend(page.parts);
        after = page.next;
    }
    let bytes = store.objects()[PARTS_KEY].clone();
    match store.client.checksum(&object).await.expect("an answer") {
        KeptChecksum::Whole(checksum) => assert_eq!(checksum, own(&bytes, checksum)),
        KeptChecksum::None => assert!(parts.is_empty(), "it has no checksum, and {} parts", parts.len()),
        KeptChecksum::OfParts => {}
    }
    let whole = store.client.upload_parts(&store.version(SMALL).await, 0).await.expect("an answer");
    assert_eq!((whole.parts, whole.next), (vec![], None), "of an object that was uploaded whole");
    let expected = if store.tells_part_checksums { bytes } else { Bytes::new() };
    let pieces: Vec<_> = expected.chunks(usize::try_from(PART_BYTES).unwrap_or(usize::MAX)).collect();
    assert_eq!(parts.len(), pieces.len(), "parts");
    for (part, piece) in parts.iter().zip(pieces) {
        let own = own(&expected.slice_ref(piece), part.checksum);
        assert_eq!((part.len, part.checksum), (piece.len() as u64, own));
    }
}

/// A HEAD of the bucket succeeds if the bucket is there, and fails with `NoSuchBucket` if it is not.
pub async fn the_bucket_is_there_or_not(store: &Store<'_>) {
    store.client.head_bucket().await.expect("the bucket");
    if let Some(missing) = store.missing_bucket {
        assert_eq!(kind(missing.head_bucket().await), Some(ErrorKind::NoSuchBucket));
    }
}
