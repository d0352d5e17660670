//! Changes that the store may still carry out.
//!
//! An attempt that has no answer may be carried out seconds later, when the write was made again with success, and even
//! after later ones. Its condition stops it then, except in two cases. The name may be free again, because its file was
//! removed or renamed. Or the object may have the ETag again that the late write waits for, because its bytes are the
//! same again: an ETag is no more than their MD5. A late deletion, too, finds the version again that it is to delete.
//!
//! So the mount remembers the marks of such writes for as long as the store may take them. A write that meets one of
//! these objects knows it for the mount's own, and replaces it. And what is written next to such a key is written as an
//! upload of one part, or copied as one: this ETag is of another form than that of the same bytes in one request. Where
//! the version that the late change waits for was an upload itself, one request is what has the other form.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use s3mount_object::{Description, ETag};
use tokio::time::Instant;

use crate::own::{MARK, Mark};

/// How long the store may carry out a request: S3 refuses one whose signature is older.
const LIFE: Duration = Duration::from_secs(15 * 60);

/// So many keys have late writes at a time. Those of others meet conflicts.
const MOST_KEYS: usize = 4096;

/// So many late writes of one key are known.
const MOST_OF_A_KEY: usize = 16;

/// A change that may still be carried out.
#[derive(Debug)]
struct Late {
    until: Instant,
    /// The mark of what it writes, or what that begins with. A deletion writes nothing.
    mark: Option<Mark>,
    /// Whether it waits for the ETag of an object that was written, or copied, by one request.
    awaits_whole: bool,
}

/// Whether an ETag has the form of one request: that of an upload ends with the number of its parts.
fn is_of_one_request(etag: &ETag) -> bool {
    !etag.as_str().contains('-')
}

/// The changes that may still be carried out, by their keys.
#[derive(Debug, Default)]
pub(crate) struct LateWrites(Mutex<HashMap<String, Vec<Late>>>);

impl LateWrites {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Late>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt at the write with this mark, or at a deletion, has no answer. It changes only the version `awaited`.
    pub(crate) fn note(&self, key: &str, mark: Option<Mark>, awaited: Option<&ETag>) {
        let (now, mut keys) = (Instant::now(), self.lock());
        if keys.len() >= MOST_KEYS {
            keys.retain(|_, writes| writes.iter().any(|late| late.until > now));
        }
        if keys.len() < MOST_KEYS || keys.contains_key(key) {
            let writes = keys.entry(key.to_owned()).or_default();
            writes.retain(|late| late.until > now);
            if writes.len() == MOST_OF_A_KEY {
                writes.remove(0);
            }
            let awaits_whole = awaited.is_some_and(is_of_one_request);
            writes.push(Late { until: now + LIFE, mark, awaits_whole });
        }
    }

    /// Whether any change of this key may still be carried out.
    pub(crate) fn may_come(&self, key: &str) -> bool {
        self.has(key, |_| true)
    }

    /// Whether a change that may still be carried out may find the version that it waits for in an object that is
    /// written by one request now. If it may find it in an upload, too, nothing helps.
    pub(crate) fn may_find_whole(&self, key: &str) -> bool {
        self.has(key, |late| late.awaits_whole)
    }

    /// Whether a change of this key that may still be carried out is one of those that `is_meant` tells.
    fn has(&self, key: &str, is_meant: impl Fn(&Late) -> bool) -> bool {
        let now = Instant::now();
        let keys = self.lock();
        keys.get(key).is_some_and(|writes| writes.iter().any(|late| late.until > now && is_meant(late)))
    }

    /// Whether an object is one of these writes.
    pub(crate) fn is_one(&self, key: &str, found: &Description) -> bool {
        let keys = self.lock();
        let (Some(writes), Some(mark)) = (keys.get(key), found.object.metadata.get(MARK)) else {
            return false;
        };
        writes.iter().any(|late| late.mark.as_ref().is_some_and(|Mark(late)| mark.starts_with(late.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use s3mount_object::{Body, Condition, ErrorKind, NewObject, ObjectId, ObjectWriter, Written};
    use s3mount_testkit::MemoryClient;

    use crate::WritableBucket;
    use crate::own::MARK;

    const KEY: &str = "k";

    fn body(text: &'static str) -> Body {
        Body::new([Bytes::from_static(text.as_bytes())])
    }

    /// A bucket, and its store without the bucket's retries.
    fn bucket() -> (WritableBucket, Arc<MemoryClient>) {
        let client = Arc::new(MemoryClient::new());
        (WritableBucket::from(client.clone()), client)
    }

    async fn put(bucket: &WritableBucket, text: &'static str, condition: Condition) -> Written {
        let written = bucket.put(KEY, &body(text), &NewObject::default(), Some(&condition)).await;
        written.expect("nobody else writes")
    }

    /// What the store has at the key, to be written again as it is.
    async fn as_it_is(client: &MemoryClient) -> NewObject {
        client.describe(KEY).await.expect("an object").object
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_replaces_an_earlier_one_that_the_store_has_done_late() {
        let (bucket, client) = bucket();
        client.lose_next(1);
        put(&bucket, "one", Condition::Absent).await;
        let late = as_it_is(&client).await;
        bucket.delete_whatever(KEY).await.expect("it is gone");
        ObjectWriter::put(&*client, KEY, body("one"), &late, Some(&Condition::Absent))
            .await
            .expect("nothing is there");
        put(&bucket, "two", Condition::Absent).await;
        assert_eq!(client.stored(KEY).0, b"two");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_stranger_has_written_meanwhile_is_not_replaced() {
        let (bucket, client) = bucket();
        client.lose_next(1);
        put(&bucket, "one", Condition::Absent).await;
        bucket.delete_whatever(KEY).await.expect("it is gone");
        ObjectWriter::put(&*client, KEY, body("theirs"), &NewObject::default(), None).await.expect("a store");
        let refused = bucket.put(KEY, &body("two"), &NewObject::default(), Some(&Condition::Absent)).await;
        assert_eq!(*refused.expect_err("it is not this mount's").kind(), ErrorKind::PreconditionFailed);
        assert_eq!(client.stored(KEY).0, b"theirs");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_daemon_replaces_what_the_one_before_has_written_at_its_end() {
        let (dead, client) = bucket();
        dead.join_family(0x0aff_1234);
        let first = put(&dead, "zero", Condition::Absent).await;
        let of_file =
            NewObject { metadata: [(MARK.to_owned(), "0000000b".to_owned())].into(), ..NewObject::default() };
        let condition = Condition::Matches(first.etag.clone());
        let last = dead.put(KEY, &body("one"), &of_file, Some(&condition)).await.expect("nobody else writes");
        let next = WritableBucket::from(client.clone());
        let refused = Some(Condition::Matches(first.etag.clone()));
        let again = next.put(KEY, &body("two"), &NewObject::default(), refused.as_ref()).await;
        assert_eq!(*again.expect_err("it knows of no other").kind(), ErrorKind::PreconditionFailed);
        for other in [(0x0aff_1235, 0xb), (0x0aff_1234, 0xa)] {
            next.expect_late(KEY, other, Some(&first.etag));
            let again = next.put(KEY, &body("two"), &NewObject::default(), refused.as_ref()).await;
            assert_eq!(*again.expect_err("it is another's").kind(), ErrorKind::PreconditionFailed);
        }
        next.expect_late(KEY, (0x0aff_1234, 0xb), Some(&first.etag));
        let written = put(&next, "two", Condition::Matches(first.etag)).await;
        assert_eq!(client.stored(KEY).0, b"two");
        assert_ne!(written.etag, last.etag);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_deletion_finds_no_version_of_the_same_bytes() {
        let (bucket, client) = bucket();
        let first = put(&bucket, "A", Condition::Absent).await;
        client.lose_next(1);
        bucket.delete(&ObjectId::new(KEY, first.etag.clone())).await.expect("it is gone");
        put(&bucket, "A", Condition::Absent).await;
        let refused = ObjectWriter::delete(&*client, KEY, Some(&first.etag)).await;
        assert_eq!(*refused.expect_err("it comes too late").kind(), ErrorKind::PreconditionFailed);
        assert_eq!(client.stored(KEY).0, b"A");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_write_finds_no_version_of_the_bytes_that_it_was_to_replace() {
        let (bucket, client) = bucket();
        let first = put(&bucket, "A", Condition::Absent).await;
        client.lose_next(1);
        let second = put(&bucket, "B", Condition::Matches(first.etag.clone())).await;
        let late = as_it_is(&client).await;
        put(&bucket, "A", Condition::Matches(second.etag)).await;
        let refused =
            ObjectWriter::put(&*client, KEY, body("B"), &late, Some(&Condition::Matches(first.etag))).await;
        assert_eq!(*refused.expect_err("it comes too late").kind(), ErrorKind::PreconditionFailed);
        assert_eq!(client.stored(KEY).0, b"A");
        assert_eq!(client.open_uploads().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_deletion_of_an_upload_finds_no_version_of_the_same_bytes() {
        let (bucket, client) = bucket();
        let first = put(&bucket, "A", Condition::Absent).await;
        client.lose_next(1);
        bucket.delete(&ObjectId::new(KEY, first.etag)).await.expect("it is gone");
        let upload = put(&bucket, "A", Condition::Absent).await;
        // The first deletion can't come any more.
        tokio::time::advance(super::LIFE).await;
        client.lose_next(1);
        bucket.delete(&ObjectId::new(KEY, upload.etag.clone())).await.expect("it is gone");
        put(&bucket, "A", Condition::Absent).await;
        let refused = ObjectWriter::delete(&*client, KEY, Some(&upload.etag)).await;
        assert_eq!(*refused.expect_err("it comes too late").kind(), ErrorKind::PreconditionFailed);
        assert_eq!(client.stored(KEY).0, b"A");
    }
}
