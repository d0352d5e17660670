//! How a write finds out that it was done although its answer was lost.
//!
//! The answer to a write can be lost on its way, and the write be done. Sent again, it meets its own success: its
//! condition does not hold any more, or its upload is gone. So each object is written with a mark beside its bytes,
//! which no other write has, and a HEAD tells whose the object is that is there. Neither its bytes nor its ETag could
//! tell: somebody else may have written the same bytes, and an empty object has the ETag of all empty objects
//! (`docs/decisions/0047-a-mark-on-each-write.md`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use s3mount_object::{Description, NewObject, ObjectChecksum, UserMetadata};

/// The name of the mark among the metadata of an object (`x-amz-meta-s3mount-write`). Whoever copies an object may
/// leave it away or keep it: it is asked for only while the write is under way.
pub const MARK: &str = "s3mount-write";

/// The number of a file has so many hexadecimal digits in a mark.
const FILE_DIGITS: usize = 8;

/// S3 takes so many bytes of names and values together.
const MOST_METADATA: usize = 2 << 10;

/// What S3 may count of a header beside the name and the value.
const PREFIX: usize = "x-amz-meta-".len();

/// The marks of so many uploads are known at a time. Those of others are proved by their checksums.
const MOST_UPLOADS: usize = 1 << 14;

/// The mark of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) String);

/// The uploads that are under way, by their ids, and the marks of their objects.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<String, Mark>>);

/// What a version is known by that a write has made.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) mark: Option<Mark>,
    /// The length in bytes.
    pub(crate) size: u64,
    pub(crate) checksum: Option<ObjectChecksum>,
}

impl Own {
    /// Whether a version is the one that was written. Without a mark, its checksum tells. A version without a checksum
    /// proves nothing then, and neither does an empty one.
    pub(crate) fn is(&self, found: &Description) -> bool {
        let has_mark = match &self.mark {
            Some(Mark(mark)) => found.object.metadata.get(MARK) == Some(mark),
            None => self.size > 0 && self.checksum.is_some() && found.checksum == self.checksum,
        };
        has_mark && found.meta.size == self.size
    }
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An upload has begun.
    pub(crate) fn begun(&self, id: &str, mark: Option<Mark>) {
        let mut uploads = self.lock();
        if let Some(mark) = mark.filter(|_| uploads.len() < MOST_UPLOADS) {
            uploads.insert(id.to_owned(), mark);
        }
    }

    /// The mark that the object of an upload is to have.
    pub(crate) fn mark(&self, id: &str) -> Option<Mark> {
        self.lock().get(id).cloned()
    }

    /// An upload has ended.
    pub(crate) fn ended(&self, id: &str) {
        self.lock().remove(id);
    }
}

/// What is to be written, with a mark that is made of `random`, if there is room for one. What the caller has put there,
/// the number of the file, goes into the middle: see [`Bucket::expect_late`](crate::Bucket::expect_late).
pub(crate) fn marked(random: u64, object: &NewObject) -> (NewObject, Option<Mark>) {
    let mut object = object.clone();
    let mut mark = format!("{random:016x}");
    if let Some(file) = object.metadata.get(MARK).filter(|file| file.len() == FILE_DIGITS) {
        mark.insert_str(8, file);
    }
    object.metadata.insert(MARK.to_owned(), mark.clone());
    if len(&object.metadata) > MOST_METADATA {
        object.metadata.remove(MARK);
        return (object, None);
    }
    (object, Some(Mark(mark)))
}

fn len(metadata: &UserMetadata) -> usize {
    metadata.iter().map(|(name, value)| PREFIX + name.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use s3mount_object::{Body, Condition, ErrorKind, NewObject, ObjectWriter};
    use s3mount_testkit::MemoryClient;

    use super::{MARK, marked};
    use crate::WritableBucket;

    #[test]
    fn each_write_has_a_mark_of_its_own_unless_there_is_no_room() {
        let (first, mark) = marked(1, &NewObject::default());
        let (second, _) = marked(2, &first);
        assert!(mark.is_some() && first.metadata[MARK] != second.metadata[MARK]);
        assert_eq!(second.metadata.len(), 1);
        let mut full = first;
        full.metadata.insert("note".to_owned(), "x".repeat(2000));
        let (full, mark) = marked(3, &full);
        assert!(mark.is_none() && !full.metadata.contains_key(MARK), "the user's own text goes first");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_was_lost_and_replaced_since_met_another_write() {
        let client = Arc::new(MemoryClient::new());
        let (bucket, object) = (WritableBucket::from(client.clone()), NewObject::default());
        let upload = bucket.create_upload("k", &object, false, &mut false).await.expect("an upload");
        let body = Body::new([Bytes::from_static(b"ours")]);
        let parts = [bucket.put_part(&upload, 1, &body).await.expect("a part")];
        client.lose_next(1);
        let complete = bucket.complete(&upload, &parts, (None, false), Some(&Condition::Absent));
        let replace = async {
            let theirs = Body::new([Bytes::from_static(b"theirs")]);
            ObjectWriter::put(&*client, "k", theirs, &NewObject::default(), None).await.expect("a store");
        };
        let (refused, ()) = tokio::join!(complete, replace);
        assert_eq!(*refused.expect_err("it is not there").error.kind(), ErrorKind::PreconditionFailed);
        assert_eq!(client.stored("k").0, b"theirs");
    }
}
