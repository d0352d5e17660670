//! Promises about listings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use s3mount_object::{ErrorKind, ListObjects, ListPage, ListedObject};

use super::store::{NOTHING, Store, kind};

/// The keys and the rolled-up prefixes of a listing.
type Names = (Vec<String>, Vec<String>);

/// The names that `request` has to list. They are found by a look at each key of the store.
fn expected(store: &Store<'_>, request: &ListObjects) -> Names {
    let after = request.start_after.as_deref().unwrap_or_default();
    let (mut keys, mut prefixes) = (Vec::new(), BTreeSet::new());
    for key in store.objects().into_keys().filter(|key| key.as_str() > after) {
        let Some(rest) = key.strip_prefix(&request.prefix) else { continue };
        match rest.find('/').filter(|_| request.delimiter) {
            Some(slash) => {
                let prefix = &key[..=request.prefix.len() + slash];
                if prefix > after || (store.keeps_prefixes && prefix != after) {
                    prefixes.insert(prefix.to_owned());
                }
            }
            None => keys.push(key),
        }
    }
    (keys, prefixes.into_iter().collect())
}

/// Reads all pages. Each page is checked by itself, and its names have to come after those of the page before
/// it.
async fn pages(store: &Store<'_>, request: &ListObjects) -> Vec<ListPage> {
    let mut pages = Vec::<ListPage>::new();
    let mut request = request.clone();
    loop {
        let page = store.client.list_objects(request.clone()).await.expect("a page");
        let most = request.max_keys.unwrap_or(1000) as usize;
        let count = page.objects.len() + page.common_prefixes.len();
        assert!(count <= most, "{count} names in {request:?}");
        assert!(page.objects.is_sorted_by(|a, b| a.key < b.key), "keys of {request:?}");
        assert!(page.common_prefixes.is_sorted_by(|a, b| a < b), "prefixes of {request:?}");
        if let (Some(before), Some(first)) = (pages.last().and_then(ListPage::last_key), page.first_key()) {
            assert!(before < first, "{before:?} came before {first:?} in {request:?}");
        }
        let next = page.next.clone();
        pages.push(page);
        // The key to start after is for the first page only. The continuation says where each other page
        // begins.
        match next {
            Some(next) => (request.continuation, request.start_after) = (Some(next), None),
            None => return pages,
        }
        assert!(pages.len() <= store.objects().len(), "there is no end of pages: {request:?}");
    }
}

/// Checks that the pages have the names they must have, and returns the number of pages.
async fn check_names(store: &Store<'_>, request: &ListObjects) -> usize {
    let pages = pages(store, request).await;
    let count = pages.len();
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    for page in pages {
        keys.extend(page.objects.into_iter().map(|object| object.key));
        prefixes.extend(page.common_prefixes);
    }
    let expected = expected(store, request);
    assert_eq!(keys, expected.0, "keys of {request:?}");
    assert_eq!(prefixes, expected.1, "prefixes of {request:?}");
    count
}

fn request(prefix: &str, delimiter: bool) -> ListObjects {
    ListObjects { prefix: prefix.to_owned(), delimiter, ..ListObjects::default() }
}

/// Without a delimiter, a listing has every key, spelt as it was put, in the order of UTF-8 bytes.
pub async fn listings_have_every_key_in_order(store: &Store<'_>) {
    for prefix in
        ["", "o", "order/", "order/a", "order/é", "order/a/b", "odd/", "odd/a", "odd/a+", "odd/100%"]
    {
        check_names(store, &request(prefix, false)).await;
    }
}

/// A page has at most `max_keys` names, and prefixes count as names. All pages together have each name once.
pub async fn pages_are_no_longer_than_asked_for_and_add_up(store: &Store<'_>) {
    for (prefix, delimiter) in [("", false), ("", true), ("order/", true), ("odd/", true), ("rolled/", true)]
    {
        for max_keys in [1, 2, 3, 7, 1000] {
            let request = ListObjects { max_keys: Some(max_keys), ..request(prefix, delimiter) };
            let (keys, prefixes) = expected(store, &request);
            let least = (keys.len() + prefixes.len()).div_ceil(max_keys as usize);
            assert!(check_names(store, &request).await >= least, "{request:?}");
        }
    }
}

/// With the delimiter, keys are rolled up at the next `/` behind the prefix, and a listing has each rolled-up
/// prefix once.
pub async fn prefixes_are_rolled_up(store: &Store<'_>) {
    let prefixes =
        ["", "o", "order", "order/", "order/a", "order/a/", "odd/", "rolled/", "rolled/1", "rolled/3/"];
    for prefix in prefixes {
        check_names(store, &request(prefix, true)).await;
    }
}

/// A listing may start after any name, whether there is such a key or not. It does not have the name itself.
pub async fn listings_start_after_any_name(store: &Store<'_>) {
    let mut names: Vec<String> = store.objects().into_keys().collect();
    let not_keys = [
        "order/",
        "order/a/",
        "order/a/b/",
        "order/aa",
        "order/~",
        "odd/a",
        "rolled/1/",
        "rolled/3/xx",
        "z",
        " ",
    ];
    names.extend(not_keys.map(str::to_owned));
    for name in names {
        for (prefix, delimiter) in [("", false), ("", true), ("order/", true), ("rolled/", true)] {
            // One name that does not begin with the prefix is enough, for all others of its kind.
            if name.starts_with(prefix) || name == "odd/a" {
                let start_after = Some(name.clone());
                check_names(store, &ListObjects { start_after, ..request(prefix, delimiter) }).await;
            }
        }
    }
}

/// A key that ends in `/` is a prefix in the listing of the folder above it, and an object in the listing of
/// its own folder.
pub async fn markers_are_objects_of_their_folders(store: &Store<'_>) {
    for (folder, expected) in
        [("folder/", vec!["folder/", "folder/file"]), ("marker-alone/", vec!["marker-alone/"])]
    {
        let page = store.client.list_objects(request(folder, true)).await.expect("a page");
        let keys: Vec<_> = page.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!((keys, page.common_prefixes), (expected, vec![]), "{folder:?}");
        let above = store.client.list_objects(request("", true)).await.expect("a page");
        assert!(above.common_prefixes.iter().any(|prefix| prefix == folder), "{folder:?}");
        assert_eq!(store.client.head_object(folder).await.expect("a HEAD").size, 0);
    }
}

/// A LIST below a prefix without keys answers with a page without names, and does not fail. A LIST of a
/// bucket that is not there fails with `NoSuchBucket`.
pub async fn nothing_is_an_empty_page(store: &Store<'_>) {
    for delimiter in [false, true] {
        for prefix in [NOTHING, "nothing/", "order/a/b/c/d/", "large.bin/"] {
            let page = store.client.list_objects(request(prefix, delimiter)).await.expect("a page");
            assert_eq!(page, ListPage::default(), "{prefix:?}");
        }
    }
    if let Some(missing) = store.missing_bucket {
        let refused = missing.list_objects(ListObjects::default()).await;
        assert_eq!(kind(refused), Some(ErrorKind::NoSuchBucket));
    }
}

/// The size, the ETag, the time in whole seconds, and the storage class of a listed object. The class is
/// `STANDARD` where the store names none.
fn told(object: &ListedObject) -> (u64, &str, u64, &str) {
    let meta = &object.meta;
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let class = meta.storage_class.as_deref().unwrap_or_default();
    let class = if class.is_empty() { "STANDARD" } else { class };
    (meta.size, meta.etag.as_str(), seconds(meta.last_modified), class)
}

/// A LIST says the same of an object as a HEAD does. So a GET may use an ETag that a LIST brought.
pub async fn listings_tell_what_heads_tell(store: &Store<'_>) {
    let mut listed = BTreeMap::new();
    for page in pages(store, &ListObjects::default()).await {
        listed.extend(page.objects.into_iter().map(|object| (object.key.clone(), object)));
    }
    for key in store.objects().into_keys() {
        let meta = store.client.head_object(&key).await.expect("a HEAD");
        let head = ListedObject { key, meta };
        assert_eq!(told(&listed[&head.key]), told(&head), "{:?}", head.key);
    }
}
