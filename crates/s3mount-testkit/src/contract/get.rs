//! Promises about GETs.

use std::time::Duration;

use futures::future::join_all;
use s3mount_object::{ByteRange, ETag, ErrorKind, GetAnswer, GetObject, ListObjects, ObjectId, Origin};
use tokio::time::timeout;

use super::lend::lend;
use super::store::{EMPTY, LARGE, NOTHING, SMALL, Store, kind};
use crate::content::check as check_content;

/// A GET brings an object byte for byte, whatever characters the object's key has.
pub async fn whole_objects_come_as_they_were_put(store: &Store<'_>) {
    for (key, bytes) in store.objects().into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let object = store.version(&key).await;
        let got = store.get(&object, 0, bytes.len() as u64).await.expect("the object");
        assert!(got == bytes, "{key:?} has other bytes");
    }
}

/// A GET of a range brings exactly the bytes of this range, at the front of the buffer that was lent. The
/// buffer comes back when the last of these bytes is dropped.
pub async fn ranges_come_exactly_and_in_the_lent_memory(store: &Store<'_>) {
    let object = store.version(LARGE).await;
    let size = store.objects()[LARGE].len() as u64;
    let ranges =
        [(0, 1), (1, 2), (size - 1, size), (1000, 70_000), ((1 << 20) - 3, (2 << 20) + 5), (7, size)];
    for (start, end) in ranges {
        for spare in [0, 1, 5000] {
            let (buffer, loan) = lend(end - start + spare);
            let request = GetObject { object: object.clone(), range: ByteRange::new(start, end) };
            let GetAnswer { bytes: got, origin, .. } =
                store.client.get_object(request, buffer).await.expect("the range");
            assert_eq!(origin, Origin::Store, "nothing stands between the client and its store");
            assert_eq!(got.len() as u64, end - start, "bytes of {start}..{end}");
            check_content(LARGE, start, &got).expect("the range's bytes");
            assert!(loan.is_front(&got), "{start}..{end} was copied");
            let tail = got.slice(got.len() - 1..);
            drop(got);
            assert!(!loan.is_back(), "one byte keeps the buffer");
            drop(tail);
            loan.wait().await;
        }
    }
}

/// Many GETs run at once, and each fills its own buffer.
pub async fn gets_at_once_keep_to_their_buffers(store: &Store<'_>) {
    const PART: u64 = 64 << 10;
    let object = store.version(LARGE).await;
    let gets = (0..48).map(|number| {
        let range = ByteRange::new(number * PART, (number + 1) * PART);
        let (buffer, loan) = lend(PART);
        let get = store.client.get_object(GetObject { object: object.clone(), range }, buffer);
        async move { (range, loan, get.await) }
    });
    for (range, loan, got) in join_all(gets).await {
        let got = got.expect("the part").bytes;
        check_content(LARGE, range.start(), &got).expect("the part's bytes");
        assert!(loan.is_front(&got), "{range} was copied");
    }
}

/// A GET of a version that is not there, or no longer there, fails with `PreconditionFailed`.
pub async fn a_get_of_another_version_is_refused(store: &Store<'_>) {
    let other = store.version(LARGE).await.etag().clone();
    for etag in [other, ETag::new("\"0123456789abcdef0123456789abcdef\"")] {
        let object = ObjectId::new(SMALL, etag);
        let refused = kind(store.get(&object, 0, 1).await);
        assert_eq!(refused, Some(ErrorKind::PreconditionFailed), "{object:?}");
    }
}

/// A GET of a key without an object fails with `NotFound`. A GET in a bucket that is not there fails with
/// `NoSuchBucket`.
pub async fn a_get_of_no_object_is_refused(store: &Store<'_>) {
    let etag = store.version(SMALL).await.etag().clone();
    let (object, folder) = (ObjectId::new(NOTHING, etag.clone()), ObjectId::new("order", etag));
    assert_eq!(kind(store.get(&object, 0, 1).await), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.get(&folder, 0, 1).await), Some(ErrorKind::NotFound), "a folder is no object");
    if let Some(client) = store.missing_bucket {
        let missing = Store { client, ..*store };
        assert_eq!(kind(missing.get(&object, 0, 1).await), Some(ErrorKind::NoSuchBucket));
    }
}

/// A GET of a range that begins at the object's end, or behind it, fails with `RangeNotSatisfiable`. A GET of
/// a range that only ends behind the object's end fails with `Integrity`. So a GET never brings fewer bytes
/// than were asked for.
pub async fn a_range_that_is_not_in_the_object_is_refused(store: &Store<'_>) {
    for key in [LARGE, SMALL, EMPTY] {
        let (object, size) = (store.version(key).await, store.objects()[key].len() as u64);
        for start in [size, size + 1, 1 << 40] {
            let refused = kind(store.get(&object, start, start + 10).await);
            assert_eq!(refused, Some(ErrorKind::RangeNotSatisfiable), "{key:?} from {start}");
        }
        for start in [0, size / 2].into_iter().filter(|start| *start < size) {
            let refused = kind(store.get(&object, start, size + 1).await);
            assert_eq!(refused, Some(ErrorKind::Integrity), "{key:?} from {start}");
        }
    }
}

/// A GET of an empty range fails with `Rejected`, and so does a GET of a range that is longer than the
/// buffer. The buffer comes back.
pub async fn a_range_that_does_not_fit_is_refused(store: &Store<'_>) {
    let object = store.version(LARGE).await;
    for (end, len) in [(5, 10), (16, 10), (1005, 999)] {
        let (buffer, loan) = lend(len);
        let request = GetObject { object: object.clone(), range: ByteRange::new(5, end) };
        let refused = kind(store.client.get_object(request, buffer).await);
        assert_eq!(refused, Some(ErrorKind::Rejected), "5..{end} into {len} bytes");
        loan.wait().await;
    }
}

/// A GET of a version whose ETag is empty fails with `NoEtag`. Without an ETag, ranges of several versions
/// could be mixed.
pub async fn a_version_without_etag_is_refused(store: &Store<'_>) {
    for etag in ["", "\"\""] {
        let object = ObjectId::new(SMALL, ETag::new(etag));
        assert_eq!(kind(store.get(&object, 0, 1).await), Some(ErrorKind::NoEtag), "{etag:?}");
    }
}

/// The future of a request may be dropped at any point. The buffer that was lent then comes back, and the
/// client answers later requests.
pub async fn dropped_requests_leave_nothing_behind(store: &Store<'_>) {
    let (object, end) = (store.version(LARGE).await, store.objects()[LARGE].len() as u64);
    for pause in [None, Some(0), Some(1), Some(3), Some(10)] {
        let (buffer, loan) = lend(end);
        let request = GetObject { object: object.clone(), range: ByteRange::new(0, end) };
        let get = store.client.get_object(request, buffer);
        let head = store.client.head_object(SMALL);
        let list = store.client.list_objects(ListObjects::default());
        if let Some(pause) = pause {
            // It does not matter here whether an answer comes in time, since it is dropped.
            let all = async { drop(futures::join!(get, head, list)) };
            let _ = timeout(Duration::from_millis(pause), all).await;
        } else {
            drop((get, head, list));
        }
        loan.wait().await;
        let got = store.get(&object, 1000, 2000).await.expect("the next GET");
        check_content(LARGE, 1000, &got).expect("its bytes");
    }
}
