//! Promises about uploads.

use bytes::Bytes;
use futures::future::join_all;
use s3mount_object::{
    ByteRange, ErrorKind, LatestAnswer, ObjectError, ObjectWriter, PutAnswer, PutObject, UserMetadata,
};

use super::lend::lend;
use super::store::{NOTHING, kind};
use crate::content::content;

/// A store that is written to, and the differences from S3 that it is allowed to have.
#[derive(Debug)]
pub struct WritableStore<'a> {
    /// The client of a bucket that may be written to.
    pub client: &'a dyn ObjectWriter,
    /// Whether the store knows conditions on uploads.
    pub has_conditions: bool,
    /// Whether of several uploads of a new object at once exactly one wins. Some stores look whether an
    /// object is there, and write later.
    pub is_strict: bool,
    /// Whether the store compares the bytes of uploads with their checksums.
    pub verifies_checksums: bool,
    /// Whether the store knows conditions when an upload in parts is completed.
    pub completes_if_matched: bool,
    /// Whether the store refuses to copy another version than the one that is named, and a range that ends
    /// behind the end.
    pub checks_copies: bool,
    /// Whether the store refuses to delete another version than the one that is named.
    pub deletes_if_matched: bool,
    /// Whether the store says of uploads that have ended that it does not have them.
    pub knows_ended_uploads: bool,
    /// Whether the store keeps a CRC of all bytes of an object that was uploaded in parts.
    pub joins_checksums: bool,
    /// Whether it also does so if parts were copied.
    pub joins_checksums_of_copies: bool,
    /// Whether a copy with other metadata has the source's tags.
    pub copies_tags: bool,
    /// Whether the store can rename objects.
    pub renames: bool,
}

impl<'a> WritableStore<'a> {
    /// A store that lacks nothing that S3 has. Only directory buckets of S3 have renames.
    pub fn new(client: &'a dyn ObjectWriter) -> Self {
        Self {
            client,
            has_conditions: true,
            is_strict: true,
            verifies_checksums: true,
            completes_if_matched: true,
            checks_copies: true,
            deletes_if_matched: true,
            knows_ended_uploads: true,
            joins_checksums: true,
            joins_checksums_of_copies: true,
            copies_tags: true,
            renames: false,
        }
    }

    async fn put(&self, key: &str, bytes: &Bytes, only_new: bool) -> Result<PutAnswer, ObjectError> {
        let metadata = metadata(bytes);
        self.client
            .put_object(PutObject { key: key.to_owned(), bytes: bytes.clone(), metadata, only_new })
            .await
    }

    async fn get(&self, key: &str, start: u64, end: u64) -> Result<LatestAnswer, ObjectError> {
        let (buffer, _loan) = lend(end - start);
        self.client.get_latest(key, ByteRange::new(start, end), buffer).await
    }

    /// Checks that `key` has these bytes, and their metadata.
    async fn expect(&self, key: &str, bytes: &Bytes) {
        let LatestAnswer { bytes: got, metadata: kept } =
            self.get(key, 0, bytes.len() as u64).await.expect("the object");
        assert!(got == bytes, "{key:?} has other bytes");
        assert_eq!(kept, metadata(bytes), "the metadata of {key:?}");
    }
}

/// Metadata that tells versions apart. One value is as long as what a block of 8 MiB has.
fn metadata(bytes: &Bytes) -> UserMetadata {
    let digit = char::from(b'0' + bytes.first().copied().unwrap_or_default() % 10);
    let long: String = "+/=".chars().chain(std::iter::repeat_n(digit, 700)).collect();
    UserMetadata::from([("s3mount-a".to_owned(), bytes.len().to_string()), ("long".to_owned(), long)])
}

fn bytes(seed: &str, len: usize) -> Bytes {
    content(seed, 0, len).into()
}

/// An upload comes back byte for byte, with its metadata, whatever characters the key has. So does each range
/// of it.
pub async fn uploads_come_back_with_their_metadata(store: &WritableStore<'_>) {
    let keys = [("written/large", 8 << 20), ("written/odd a+b%20&é", 3), ("written/one/deep/key", 70_000)];
    for (key, len) in keys {
        let bytes = bytes(key, len);
        assert_eq!(store.put(key, &bytes, false).await.expect("an upload"), PutAnswer::Written);
        store.expect(key, &bytes).await;
        let end = bytes.len();
        for (start, end) in [(0, 1), (1, end), (end / 2, end / 2 + 1)] {
            let answer = store.get(key, start as u64, end as u64).await.expect("a range");
            assert!(answer.bytes == bytes[start..end], "{start}..{end} of {key:?}");
            assert_eq!(answer.metadata, metadata(&bytes), "with {start}..{end} of {key:?}");
        }
        let meta = store.client.head_object(key).await.expect("a HEAD");
        assert_eq!(meta.size, len as u64, "the size of {key:?}");
    }
    let nothing = Bytes::new();
    assert_eq!(store.put("written/empty", &nothing, false).await.expect("an upload"), PutAnswer::Written);
    assert_eq!(store.client.head_object("written/empty").await.expect("a HEAD").size, 0);
}

/// An upload without a condition replaces bytes and metadata.
pub async fn an_upload_replaces_what_is_there(store: &WritableStore<'_>) {
    for seed in ["first", "second one"] {
        let bytes = bytes(seed, seed.len() * 1000);
        assert_eq!(store.put("replaced", &bytes, false).await.expect("an upload"), PutAnswer::Written);
        store.expect("replaced", &bytes).await;
    }
}

/// An upload of a new object leaves another object as it is, and says so. A store without conditions says
/// that it has none.
pub async fn an_upload_of_a_new_object_leaves_what_is_there(store: &WritableStore<'_>) {
    let (first, second) = (bytes("first", 1000), bytes("second", 2000));
    let answer = store.put("new", &first, true).await;
    if !store.has_conditions {
        assert_eq!(kind(answer), Some(ErrorKind::Unsupported));
        return;
    }
    assert_eq!(answer.expect("an upload"), PutAnswer::Written);
    assert_eq!(store.put("new", &second, true).await.expect("an answer"), PutAnswer::Exists);
    store.expect("new", &first).await;
}

/// Of several uploads of a new object at once, one is written. The object is then that one's.
pub async fn one_of_many_uploads_of_a_new_object_wins(store: &WritableStore<'_>) {
    if !store.has_conditions {
        return;
    }
    let uploads: Vec<_> = (1..=8).map(|number| bytes(&format!("upload {number}"), number * 1000)).collect();
    let answers = join_all(uploads.iter().map(|bytes| store.put("raced", bytes, true))).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    let written = answers.iter().filter(|answer| **answer == PutAnswer::Written).count();
    assert!(written == 1 || written > 1 && !store.is_strict, "{written} of 8 were written");
    let size = store.client.head_object("raced").await.expect("a HEAD").size;
    let winner = uploads.iter().zip(&answers).find(|(bytes, _)| bytes.len() as u64 == size);
    let (bytes, answer) = winner.expect("one of them");
    assert_eq!(*answer, PutAnswer::Written, "the object is of an upload that was refused");
    store.expect("raced", bytes).await;
}

/// A GET of the latest version fails as any other GET does, when there is no object, or not this range.
pub async fn a_get_of_the_latest_version_is_as_strict_as_others(store: &WritableStore<'_>) {
    let bytes = bytes("strict", 1000);
    store.put("strict", &bytes, false).await.expect("an upload");
    assert_eq!(kind(store.get(NOTHING, 0, 1).await), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.get("strict", 1000, 1001).await), Some(ErrorKind::RangeNotSatisfiable));
    assert_eq!(kind(store.get("strict", 900, 1001).await), Some(ErrorKind::Integrity));
    let (buffer, loan) = lend(99);
    let refused = store.client.get_latest("strict", ByteRange::new(0, 100), buffer).await;
    assert_eq!(kind(refused), Some(ErrorKind::Rejected), "100 bytes into 99");
    loan.wait().await;
}
