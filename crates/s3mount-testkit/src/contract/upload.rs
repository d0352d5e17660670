//! Promises about uploads in parts, copies, deletions and renames.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use s3mount_object::{
    Body, ByteRange, ChecksumAlgorithm, Completion, Condition, CopySource, ETag, ErrorKind, GetObject,
    NewObject, ObjectChecksum, ObjectError, ObjectId, UploadId, UserMetadata, Written, WrittenPart,
};

use super::lend::lend;
use super::store::{NOTHING, kind};
use super::write::WritableStore;
use crate::content::content;
use crate::uploads::MIN_PART;

/// The length of a part of the uploads of these checks.
const PART: usize = MIN_PART as usize;

fn bytes(seed: &str, len: usize) -> Bytes {
    content(seed, 0, len).into()
}

fn crc(bytes: &[u8]) -> ObjectChecksum {
    let algorithm = ChecksumAlgorithm::Crc64Nvme;
    ObjectChecksum { algorithm, value: checksum(CrcAlgorithm::Crc64Nvme, bytes) }
}

fn body(bytes: &Bytes) -> Body {
    Body::from(bytes.clone()).with_checksum(crc(bytes))
}

/// What a new object has beside its bytes.
fn beside(word: &str) -> NewObject {
    let metadata = UserMetadata::from([("word".to_owned(), word.to_owned())]);
    NewObject { content_type: Some(format!("text/{word}")), metadata, ..NewObject::default() }
}

fn another() -> ETag {
    ETag::new("\"0123456789abcdef0123456789abcdef\"")
}

fn source(key: &str, etag: &ETag) -> CopySource {
    CopySource { bucket: None, object: ObjectId::new(key, etag.clone()) }
}

impl WritableStore<'_> {
    async fn write(
        &self,
        key: &str,
        bytes: &Bytes,
        only_if: Option<&Condition>,
    ) -> Result<Written, ObjectError> {
        self.client.put(key, body(bytes), &beside("kept"), only_if).await
    }

    /// Checks that the version at `key` is `etag`, and has these bytes, and `word` beside them.
    async fn check(&self, key: &str, etag: &ETag, bytes: &Bytes, word: &str) {
        let found = self.client.describe(key).await.expect("a HEAD");
        assert_eq!((&found.meta.etag, found.meta.size), (etag, bytes.len() as u64), "{key:?}");
        let NewObject { content_type, metadata, .. } = beside(word);
        assert_eq!((found.object.content_type, found.object.metadata), (content_type, metadata), "{key:?}");
        if let Some(found) = found.checksum {
            assert_eq!(found, crc(bytes), "the checksum of {key:?}");
        }
        let (buffer, _loan) = lend(bytes.len() as u64);
        let range = ByteRange::new(0, bytes.len() as u64);
        let request = GetObject { object: ObjectId::new(key, etag.clone()), range };
        let got = self.client.get_object(request, buffer).await.expect("the object");
        assert!(got.bytes == *bytes, "{key:?} has other bytes");
    }

    async fn is_gone(&self, key: &str) -> bool {
        kind(self.client.head_object(key).await) == Some(ErrorKind::NotFound)
    }

    async fn begin(&self, key: &str) -> UploadId {
        self.client.create_upload(key, &beside("parts"), self.joins_checksums).await.expect("an upload")
    }

    async fn part(&self, upload: &UploadId, number: u32, bytes: &Bytes) -> WrittenPart {
        let part = self.client.put_part(upload, number, body(bytes)).await.expect("a part");
        assert_eq!((part.number, part.len), (number, bytes.len() as u64));
        if let Some(told) = part.checksum {
            assert_eq!(told, crc(bytes));
        }
        part
    }

    async fn complete(
        &self,
        upload: &UploadId,
        parts: &[WrittenPart],
        condition: Option<Condition>,
        whole: &[u8],
    ) -> Result<Written, ObjectError> {
        let checksum = self.joins_checksums.then(|| crc(whole));
        self.client.complete(upload, parts, &Completion { condition, checksum }).await
    }
}

/// A put answers with the version that is then there, with all that was put beside the bytes.
pub async fn a_put_answers_with_its_version(store: &WritableStore<'_>) {
    for (key, len) in [("put/large", PART + 3), ("put/a b+c%é", 1)] {
        let bytes = bytes(key, len);
        let pieces = Body::new([bytes.slice(..len / 2), bytes.slice(len / 2..)]);
        let put = store.client.put(key, pieces.with_checksum(crc(&bytes)), &beside("pieces"), None).await;
        store.check(key, &put.expect("a put").etag, &bytes, "pieces").await;
    }
    let nothing = Body::default().with_checksum(crc(b""));
    let put = store.client.put("put/empty", nothing, &beside("empty"), None).await.expect("a put");
    let found = store.client.describe("put/empty").await.expect("a HEAD");
    assert_eq!((found.meta.etag, found.meta.size), (put.etag, 0));
}

/// A put with a condition writes only while the condition holds.
pub async fn a_put_keeps_to_its_condition(store: &WritableStore<'_>) {
    if !store.has_conditions {
        let refused = store.write("put/if", &bytes("1", 10), Some(&Condition::Absent)).await;
        assert_eq!(kind(refused), Some(ErrorKind::Unsupported));
        return;
    }
    let (first, second) = (bytes("first", 1000), bytes("second", 2000));
    let absent = store.write("put/if", &first, Some(&Condition::Matches(another()))).await;
    assert_eq!(kind(absent), Some(ErrorKind::NotFound));
    let one = store.write("put/if", &first, Some(&Condition::Absent)).await.expect("a put").etag;
    for condition in [Condition::Absent, Condition::Matches(another())] {
        let refused = store.write("put/if", &second, Some(&condition)).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed), "{condition:?}");
    }
    store.check("put/if", &one, &first, "kept").await;
    let two = store.write("put/if", &second, Some(&Condition::Matches(one))).await.expect("a put").etag;
    store.check("put/if", &two, &second, "kept").await;
}

/// Bytes that are not those of their checksum are not written, neither whole nor as a part.
pub async fn damaged_bytes_are_refused(store: &WritableStore<'_>) {
    if !store.verifies_checksums {
        return;
    }
    let body = || Body::from(bytes("damaged", 1000)).with_checksum(crc(b"other bytes"));
    let put = store.client.put("damaged", body(), &NewObject::default(), None).await;
    assert_eq!(kind(put), Some(ErrorKind::BadChecksum));
    assert!(store.is_gone("damaged").await);
    let upload = store.begin("damaged").await;
    assert_eq!(kind(store.client.put_part(&upload, 1, body()).await), Some(ErrorKind::BadChecksum));
    let good = store.part(&upload, 1, &bytes("good", 1000)).await;
    let completion = Completion { condition: None, checksum: Some(crc(b"other bytes")) };
    let refused = store.client.complete(&upload, &[good], &completion).await;
    assert_eq!(kind(refused), Some(ErrorKind::BadChecksum));
    assert!(store.is_gone("damaged").await);
    store.client.abort(&upload).await.expect("an end");
}

/// Parts that come in any order become one object when the upload is completed, and not before.
pub async fn parts_become_an_object(store: &WritableStore<'_>) {
    let key = "parts/a b+c%é";
    let whole = bytes(key, 2 * PART + 1000);
    let upload = store.begin(key).await;
    let (replaced, third) = (bytes("replaced", PART), whole.slice(2 * PART..));
    store.part(&upload, 1, &replaced).await;
    // A directory bucket takes no numbers with a gap between them.
    let third = store.part(&upload, if store.renames { 3 } else { 7 }, &third).await;
    let first = store.part(&upload, 1, &whole.slice(..PART)).await;
    let second = store.part(&upload, 2, &whole.slice(PART..2 * PART)).await;
    assert!(store.is_gone(key).await, "it is there before it is complete");
    let parts = [first, second, third];
    let listed = store.client.list_parts(&upload, 0).await.expect("a page");
    let seen: Vec<_> = listed.parts.iter().map(|part| (part.number, &part.etag, part.len)).collect();
    let sent: Vec<_> = parts.iter().map(|part| (part.number, &part.etag, part.len)).collect();
    assert_eq!((seen, listed.next), (sent, None));
    let completion = Completion { condition: None, checksum: store.joins_checksums.then(|| crc(&whole)) };
    let written = store.client.complete(&upload, &parts, &completion).await.expect("an object");
    store.check(key, &written.etag, &whole, "parts").await;
    if let Some(told) = written.checksum {
        assert_eq!(told, crc(&whole));
    }
    if store.knows_ended_uploads {
        assert_eq!(kind(store.client.list_parts(&upload, 0).await), Some(ErrorKind::NoSuchUpload));
        let late = store.client.put_part(&upload, 8, body(&replaced)).await;
        assert_eq!(kind(late), Some(ErrorKind::NoSuchUpload));
    }
}

/// An upload whose parts are not as they are named, or are too small, does not become an object. It stays,
/// and may be completed as it should be.
pub async fn wrong_parts_become_nothing(store: &WritableStore<'_>) {
    let key = "parts/wrong";
    let (small, large) = (bytes("small", 1000), bytes("large", PART));
    let upload = store.begin(key).await;
    let first = store.part(&upload, 1, &small).await;
    let second = store.part(&upload, 2, &large).await;
    let other = WrittenPart { etag: another(), ..second.clone() };
    let missing = WrittenPart { number: 3, ..second.clone() };
    for wrong in [[first.clone(), second.clone()], [second.clone(), other], [second.clone(), missing]] {
        let refused = store.complete(&upload, &wrong, None, &large).await;
        assert_eq!(kind(refused), Some(ErrorKind::InvalidPart), "{wrong:?}");
    }
    assert!(store.is_gone(key).await);
    let only = if store.renames { store.part(&upload, 1, &large).await } else { second };
    let written = store.complete(&upload, &[only], None, &large).await.expect("an object");
    store.check(key, &written.etag, &large, "parts").await;
}

/// An upload with a condition becomes an object only if the condition holds when it is completed.
pub async fn a_completion_keeps_to_its_condition(store: &WritableStore<'_>) {
    if !store.has_conditions || !store.completes_if_matched {
        return;
    }
    let key = "parts/if";
    let (before, after) = (bytes("before", 10), bytes("after", 1000));
    let upload = store.begin(key).await;
    let part = [store.part(&upload, 1, &after).await];
    let absent = store.complete(&upload, &part, Some(Condition::Matches(another())), &after).await;
    assert_eq!(kind(absent), Some(ErrorKind::NotFound));
    let etag = store.write(key, &before, None).await.expect("a put").etag;
    for condition in [Condition::Absent, Condition::Matches(another())] {
        let refused = store.complete(&upload, &part, Some(condition.clone()), &after).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed), "{condition:?}");
    }
    store.check(key, &etag, &before, "kept").await;
    let written =
        store.complete(&upload, &part, Some(Condition::Matches(etag)), &after).await.expect("an object");
    store.check(key, &written.etag, &after, "parts").await;
}

/// An upload that was given up is gone, with its parts, and may be given up again.
pub async fn an_aborted_upload_leaves_nothing(store: &WritableStore<'_>) {
    let upload = store.begin("aborted").await;
    let part = store.part(&upload, 1, &bytes("aborted", 1000)).await;
    for _ in 0..2 {
        store.client.abort(&upload).await.expect("an end");
    }
    let refused = kind(store.complete(&upload, &[part], None, b"").await);
    assert!(refused.is_some() && (refused == Some(ErrorKind::NoSuchUpload) || !store.knows_ended_uploads));
    assert!(store.is_gone("aborted").await);
    let page = store.client.list_uploads("aborted", None).await.expect("a page");
    assert_eq!((page.uploads.len(), page.next), (0, None));
}

/// Uploads that are not complete are listed, those below a prefix only, and the pages add up.
pub async fn uploads_are_listed_until_they_end(store: &WritableStore<'_>) {
    let keys = ["listed/a", "listed/b b+%é", "listed/b b+%é", "listed/c", "listed/d", "other/e"];
    let mut uploads = Vec::new();
    for key in keys {
        uploads.push(store.begin(key).await);
    }
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..keys.len() {
        let page = store.client.list_uploads("listed/", after.as_ref()).await.expect("a page");
        seen.extend(page.uploads.into_iter().map(|listed| listed.upload));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // Not every store has an order for uploads to one key.
    seen.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
    let mut expected = uploads[..5].to_vec();
    expected.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
    assert_eq!(seen, expected);
    let mut rest = Vec::new();
    for number in 1..=5 {
        store.part(&uploads[0], number, &bytes("p", 10)).await;
    }
    let mut next = Some(0);
    while let Some(after) = next.filter(|_| rest.len() < 10) {
        let page = store.client.list_parts(&uploads[0], after).await.expect("a page");
        rest.extend(page.parts.iter().map(|part| part.number));
        next = page.next;
    }
    assert_eq!(rest, [1, 2, 3, 4, 5]);
    for upload in &uploads {
        store.client.abort(upload).await.expect("an end");
    }
}

/// A copy has the source's bytes, and what is beside them unless something else is given.
pub async fn copies_are_of_the_version_that_is_named(store: &WritableStore<'_>) {
    let (from, bytes) = ("copied/from a+b%é", bytes("copied", 100_000));
    let etag = store.write(from, &bytes, None).await.expect("a put").etag;
    let copy = store.client.copy(&source(from, &etag), "copied/to", None, None).await.expect("a copy");
    store.check("copied/to", &copy.etag, &bytes, "kept").await;
    let new = beside("new");
    let copy = store.client.copy(&source(from, &etag), "copied/to", Some(&new), None).await.expect("a copy");
    store.check("copied/to", &copy.etag, &bytes, "new").await;
    let missing = store.client.copy(&source(NOTHING, &etag), "copied/to", None, None).await;
    assert_eq!(kind(missing), Some(ErrorKind::NotFound));
    if store.checks_copies {
        let stale = store.client.copy(&source(from, &another()), "copied/to", None, None).await;
        assert_eq!(kind(stale), Some(ErrorKind::PreconditionFailed));
    }
    store.check("copied/to", &copy.etag, &bytes, "new").await;
}

/// A part may be a range of an object, and an object may have such parts beside others.
pub async fn parts_may_be_ranges_of_objects(store: &WritableStore<'_>) {
    let (from, key) = ("ranges/from a+b%é", "ranges/to");
    let old = bytes("old", PART + 2000);
    let etag = store.write(from, &old, None).await.expect("a put").etag;
    let has_checksums = store.joins_checksums_of_copies;
    let upload = store.client.create_upload(key, &beside("parts"), has_checksums).await.expect("an upload");
    let range = ByteRange::new(1000, PART as u64 + 1000);
    let from_here = source(from, &etag);
    let first = store.client.copy_part(&upload, 1, &from_here, range).await.expect("a part");
    assert_eq!((first.number, first.len), (1, PART as u64));
    let missing = store.client.copy_part(&upload, 2, &source(NOTHING, &etag), range).await;
    assert_eq!(kind(missing), Some(ErrorKind::NotFound));
    if store.checks_copies {
        let stale = store.client.copy_part(&upload, 2, &source(from, &another()), range).await;
        assert_eq!(kind(stale), Some(ErrorKind::PreconditionFailed));
    }
    let behind = ByteRange::new(PART as u64, PART as u64 + 2001);
    let refused = store.client.copy_part(&upload, 2, &from_here, behind).await;
    assert!(kind(refused).is_some() || !store.checks_copies, "a range behind the end was copied");
    let tail = bytes("tail", 500);
    let second = store.part(&upload, if store.renames { 2 } else { 3 }, &tail).await;
    let expected = [&old[1000..PART + 1000], &tail[..]].concat();
    let completion = Completion { condition: None, checksum: has_checksums.then(|| crc(&expected)) };
    let written = store.client.complete(&upload, &[first, second], &completion).await.expect("an object");
    store.check(key, &written.etag, &expected.into(), "parts").await;
}

/// The tags of an object are told, and a copy by one request has them, also if it has other metadata.
pub async fn tags_are_told_and_copied(store: &WritableStore<'_>) {
    if store.renames {
        // Objects of directory buckets have no tags.
        return;
    }
    let (from, bytes) = ("tagged/from a+b%é", bytes("tagged", 1000));
    store.write(from, &bytes, None).await.expect("a put");
    assert_eq!(store.client.tags(from).await.expect("none"), None);
    let told = Some("kind=a%20b&owner=1%2B2");
    // A store may tell them in any order.
    let sorted = |tags: Option<String>| {
        let mut tags: Vec<_> = tags?.split('&').map(str::to_owned).collect();
        tags.sort_unstable();
        Some(tags)
    };
    let expected = sorted(told.map(str::to_owned));
    let object = NewObject { tags: told.map(str::to_owned), ..beside("tagged") };
    let put = store.client.put(from, body(&bytes), &object, None).await.expect("a put").etag;
    assert_eq!(store.client.tags(from).await.map(sorted).expect("two"), expected);
    store.client.copy(&source(from, &put), "tagged/to", Some(&beside("new")), None).await.expect("a copy");
    if store.copies_tags {
        assert_eq!(store.client.tags("tagged/to").await.map(sorted).expect("two"), expected);
    }
    assert_eq!(kind(store.client.tags(NOTHING).await), Some(ErrorKind::NotFound));
}

/// A deletion deletes what is there, or only the version that is named.
pub async fn deletions_keep_to_their_version(store: &WritableStore<'_>) {
    let (key, bytes) = ("deleted a+b%é", bytes("deleted", 10));
    let etag = store.write(key, &bytes, None).await.expect("a put").etag;
    if store.deletes_if_matched {
        let refused = store.client.delete(key, Some(&another())).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed));
        store.check(key, &etag, &bytes, "kept").await;
        store.client.delete(key, Some(&etag)).await.expect("a deletion");
        assert!(store.is_gone(key).await);
        store.write(key, &bytes, None).await.expect("a put");
    }
    for _ in 0..2 {
        store.client.delete(key, None).await.expect("a deletion");
        assert!(store.is_gone(key).await);
    }
}

/// A store that can rename objects moves them. All others say that they can't.
pub async fn renames_move_objects_or_are_unsupported(store: &WritableStore<'_>) {
    let (from, to, bytes) = ("renamed/from a+b%é", "renamed/to", bytes("renamed", 1000));
    let etag = store.write(from, &bytes, None).await.expect("a put").etag;
    let rename = |etag: ETag, only_if: Option<Condition>, token: &'static str| async move {
        store.client.rename(&ObjectId::new(from, etag), to, only_if.as_ref(), token).await
    };
    if !store.renames {
        assert_eq!(kind(rename(etag, None, "t1").await), Some(ErrorKind::Unsupported));
        return;
    }
    let stale = rename(another(), None, "t2").await;
    assert_eq!(kind(stale), Some(ErrorKind::PreconditionFailed));
    rename(etag.clone(), Some(Condition::Absent), "t3").await.expect("a rename");
    assert!(store.is_gone(from).await);
    store.check(to, &etag, &bytes, "kept").await;
    let etag = store.write(from, &bytes, None).await.expect("a put").etag;
    let occupied = rename(etag, Some(Condition::Absent), "t4").await;
    assert_eq!(kind(occupied), Some(ErrorKind::PreconditionFailed));
}
