//! Several buckets as one: each is a folder of its own, at the top.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::SystemTime;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use s3mount_object::{
    BucketInfo, ETag, ErrorKind, GetAnswer, GetObject, KeptChecksum, ListObjects, ListPage, ListedObject,
    ObjectClient, ObjectError, ObjectId, ObjectMeta, PartBuffer, UploadParts,
};

/// The continuation after a page that has nothing but the folder's own key. No store has it.
const AFTER_MARKER: &str = "\0";

/// Several buckets as one, which can be read. A bucket's keys below its prefix have the keys of a folder instead, so the
/// key `p/a` of a bucket with the prefix `p/` and the folder `x/` is `x/a`.
///
/// Each folder is there, also if the bucket has no key below the prefix: a listing shows its own key, as if somebody had
/// made an empty object there.
pub struct BucketFolders<C: ?Sized = dyn ObjectClient> {
    /// By their keys, which end in `/`.
    folders: BTreeMap<String, BucketFolder<C>>,
}

/// What a folder shows: the keys of a bucket below a prefix.
pub struct BucketFolder<C: ?Sized = dyn ObjectClient> {
    /// The client of the bucket.
    pub client: Arc<C>,
    /// The prefix. It is empty or ends in `/`.
    pub prefix: String,
}

impl<C: ?Sized> fmt::Debug for BucketFolders<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = self.folders.iter().map(|(folder, shown)| (folder, &shown.prefix));
        f.debug_map().entries(prefixes).finish()
    }
}

impl<C: ObjectClient + ?Sized> BucketFolders<C> {
    /// Shows each bucket as the folder of this name, which has no slash.
    pub fn new(folders: impl IntoIterator<Item = (String, BucketFolder<C>)>) -> Self {
        Self { folders: folders.into_iter().map(|(name, shown)| (format!("{name}/"), shown)).collect() }
    }

    /// The folder of a key, and what the key has after the folder's.
    fn find<'a>(&self, key: &'a str) -> Option<(&BucketFolder<C>, &'a str)> {
        let (folder, rest) = split(key)?;
        Some((self.folders.get(folder)?, rest))
    }

    /// What the bucket calls a version.
    fn object(
        &self,
        object: &ObjectId,
        operation: &'static str,
    ) -> Result<(&BucketFolder<C>, ObjectId), ObjectError> {
        let (folder, rest) = self.find(object.key()).ok_or_else(|| not_found(operation, object.key()))?;
        Ok((folder, ObjectId::new(&folder.key(rest), object.etag().clone())))
    }

    /// The page of a listing whose prefix lies above the folders.
    async fn list_top(&self, request: ListObjects) -> Result<ListPage, ObjectError> {
        if !request.delimiter {
            return self.list_all(request).await;
        }
        let after = request.continuation.or(request.start_after).unwrap_or_default();
        let most = request.max_keys.map_or(usize::MAX, |most| most as usize);
        let folders = self.folders.keys().filter(|folder| folder.starts_with(&request.prefix));
        let mut names = folders.filter(|folder| **folder > after).cloned();
        let common_prefixes: Vec<_> = names.by_ref().take(most).collect();
        let next = names.next().and(common_prefixes.last().cloned());
        Ok(ListPage { objects: Vec::new(), common_prefixes, next })
    }

    /// A page of all keys: those of one folder after those of another. A continuation has the key of the folder and that of
    /// the bucket's own listing.
    async fn list_all(&self, request: ListObjects) -> Result<ListPage, ObjectError> {
        let (first, continuation) = match &request.continuation {
            Some(continuation) => {
                let (folder, own) = continuation.split_once('/').unwrap_or((continuation, ""));
                (Included(format!("{folder}/")), (!own.is_empty()).then(|| own.to_owned()))
            }
            None => match request.start_after.as_deref().map(|after| split(after).unwrap_or((after, ""))) {
                Some((folder, _)) => (Included(folder.to_owned()), None),
                None => (Unbounded, None),
            },
        };
        let wanted = |folder: &&String| folder.starts_with(&request.prefix);
        let Some(name) = self.folders.range((first, Unbounded)).map(|(name, _)| name).find(wanted) else {
            return Ok(ListPage::default());
        };
        let own = ListObjects { prefix: name.clone(), continuation, ..request.clone() };
        let page = self.list_folder(own).await?;
        let after = || self.folders.range((Excluded(name.clone()), Unbounded)).map(|(name, _)| name);
        let next = match page.next {
            Some(own) => Some(format!("{name}{own}")),
            None => after().find(wanted).cloned(),
        };
        Ok(ListPage { next, ..page })
    }

    /// The page of a listing inside of a folder.
    async fn list_folder(&self, request: ListObjects) -> Result<ListPage, ObjectError> {
        let Some((name, rest)) = split(&request.prefix) else { return Ok(ListPage::default()) };
        let Some(folder) = self.folders.get(name) else { return Ok(ListPage::default()) };
        let start_after = match &request.start_after {
            Some(after) => match after.strip_prefix(name) {
                Some(after) => Some(folder.key(after)),
                None if after.as_str() < name => None,
                None => return Ok(ListPage::default()),
            },
            None => None,
        };
        let was_marker = request.continuation.as_deref() == Some(AFTER_MARKER);
        let is_first = request.continuation.is_none() && start_after.is_none();
        let has_marker = rest.is_empty() && is_first;
        if has_marker && request.max_keys == Some(1) {
            let next = Some(AFTER_MARKER.to_owned());
            return Ok(ListPage { objects: vec![marker(name)], common_prefixes: Vec::new(), next });
        }
        let own = ListObjects {
            prefix: folder.key(rest),
            delimiter: request.delimiter,
            continuation: request.continuation.filter(|continuation| continuation != AFTER_MARKER),
            start_after: start_after.filter(|after| !after.is_empty()),
            max_keys: request.max_keys.map(|most| most - u32::from(has_marker)),
        };
        let page = folder.client.list_objects(own).await?;
        let shown = |key: &str| key.strip_prefix(&folder.prefix).map(|rest| format!("{name}{rest}"));
        // The bucket may have an object at the prefix.
        let keys = page.objects.into_iter().filter(|object| !(was_marker && object.key == folder.prefix));
        let mut objects: Vec<_> =
            keys.filter_map(|object| Some(ListedObject { key: shown(&object.key)?, ..object })).collect();
        if has_marker && objects.first().is_none_or(|first| first.key != name) {
            objects.insert(0, marker(name));
        }
        let common_prefixes = page.common_prefixes.iter().filter_map(|prefix| shown(prefix)).collect();
        Ok(ListPage { objects, common_prefixes, next: page.next })
    }
}

impl<C: ?Sized> BucketFolder<C> {
    /// The key in the bucket.
    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }
}

/// The key of the folder at the top, and the rest.
fn split(key: &str) -> Option<(&str, &str)> {
    key.find('/').map(|slash| key.split_at(slash + 1))
}

/// The folder's own key, as if it were an object.
fn marker(folder: &str) -> ListedObject {
    let meta = ObjectMeta {
        etag: ETag::new("\"\""),
        size: 0,
        last_modified: SystemTime::UNIX_EPOCH,
        storage_class: None,
    };
    ListedObject { key: folder.to_owned(), meta }
}

fn not_found(operation: &'static str, key: &str) -> ObjectError {
    ObjectError::new(ErrorKind::NotFound, operation, key)
}

#[deny(clippy::missing_trait_methods)]
impl<C: ObjectClient + ?Sized> ObjectClient for BucketFolders<C> {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        match self.object(&request.object, "GetObject") {
            Ok((folder, object)) => folder.client.get_object(GetObject { object, ..request }, into),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        async move {
            let (folder, rest) = self.find(key).ok_or_else(|| not_found("HeadObject", key))?;
            folder.client.head_object(&folder.key(rest)).await
        }
        .boxed()
    }

    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        async move {
            let (folder, object) = self.object(object, "HeadObject")?;
            folder.client.checksum(&object).await
        }
        .boxed()
    }

    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        async move {
            let (folder, object) = self.object(object, "GetObjectAttributes")?;
            folder.client.upload_parts(&object, after).await
        }
        .boxed()
    }

    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>> {
        match split(&request.prefix) {
            Some(_) => self.list_folder(request).boxed(),
            None => self.list_top(request).boxed(),
        }
    }

    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>> {
        async {
            let all = self.folders.values().map(|folder| folder.client.head_bucket());
            let infos = futures::future::try_join_all(all).await?;
            Ok(infos.into_iter().next().unwrap_or(BucketInfo { region: None }))
        }
        .boxed()
    }

    fn refused_requests(&self) -> u64 {
        self.folders.values().map(|folder| folder.client.refused_requests()).sum()
    }

    fn repeated_requests(&self) -> u64 {
        self.folders.values().map(|folder| folder.client.repeated_requests()).sum()
    }

    fn lists_in_order(&self) -> bool {
        self.folders.values().all(|folder| folder.client.lists_in_order())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::executor::block_on;
    use proptest::prelude::*;
    use s3mount_object::{
        ByteRange, ETag, ErrorKind, GetObject, ListObjects, ListPage, ObjectClient, ObjectId,
    };
    use s3mount_testkit::MemoryClient;

    use super::{BucketFolder, BucketFolders};

    /// The folders, and the prefixes that they show.
    const FOLDERS: [(&str, &str); 3] = [("a", ""), ("a-b", "p/q/"), ("b", "p/")];

    fn folders() -> (Vec<Arc<MemoryClient>>, BucketFolders<MemoryClient>) {
        let clients: Vec<_> = FOLDERS.iter().map(|_| Arc::new(MemoryClient::new())).collect();
        let shown = FOLDERS.iter().zip(&clients).map(|((name, prefix), client)| {
            ((*name).to_owned(), BucketFolder { client: client.clone(), prefix: (*prefix).to_owned() })
        });
        let shown = BucketFolders::new(shown.collect::<Vec<_>>());
        (clients, shown)
    }

    /// All pages of a listing: keys and rolled-up prefixes.
    async fn listed(client: &dyn ObjectClient, mut request: ListObjects) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..100 {
            let page = client.list_objects(request.clone()).await.expect("a page");
            let ListPage { objects, common_prefixes, next } = page;
            let count = objects.len() + common_prefixes.len();
            assert!(request.max_keys.is_none_or(|most| count <= most as usize), "{count}: {request:?}");
            let mut page: Vec<_> =
                objects.into_iter().map(|object| object.key).chain(common_prefixes).collect();
            page.sort();
            names.extend(page);
            let Some(next) = next else { return names };
            request.continuation = Some(next);
        }
        panic!("endless: {request:?}");
    }

    proptest! {
        /// As if all keys were in one bucket, in which each folder has an object of its own.
        #[test]
        fn folders_are_listed_as_those_of_one_bucket(
            keys in prop::collection::vec((0..FOLDERS.len(), "[a-b-]{0,2}/?[a-b]{0,2}"), 0..12),
            prefix in "(|a|a-|a/|a-b/|b/|b/a|a/a/|c/)",
            delimiter: bool,
            start_after in prop::option::of("(|a|a-b|b|c)/?[a-b]{0,2}/?[a-b]{0,1}"),
            max_keys in prop::option::of(1..4_u32),
        ) {
            let (clients, shown) = folders();
            let whole = MemoryClient::new();
            for (name, _) in FOLDERS {
                whole.put(&format!("{name}/"), "");
            }
            for (folder, rest) in &keys {
                let (name, prefix) = FOLDERS[*folder];
                if !(prefix.is_empty() && rest.is_empty()) {
                    clients[*folder].put(&format!("{prefix}{rest}"), "");
                }
                whole.put(&format!("{name}/{rest}"), "");
            }
            // They have other keys, too.
            clients[1].put("p/x", "");
            clients[2].put("a/x", "");
            let request =
                ListObjects { prefix, delimiter, start_after, max_keys, ..ListObjects::default() };
            let found = block_on(listed(&shown, request.clone()));
            let expected = block_on(listed(&whole, request.clone()));
            prop_assert_eq!(found, expected, "{:?}", request);
        }
    }

    #[tokio::test]
    async fn objects_are_those_of_their_buckets() {
        let (clients, shown) = folders();
        let object = clients[1].put("p/q/x/y", "bytes");
        clients[0].put("x/y", "others");
        let named = ObjectId::new("a-b/x/y", object.etag().clone());
        let range = ByteRange::new(0, 5);
        let get = GetObject { object: named.clone(), range };
        let answer = shown.get_object(get, Box::new(vec![0_u8; 5])).await.expect("the bytes");
        assert_eq!(answer.bytes, Bytes::from("bytes"));
        assert_eq!(shown.head_object("a-b/x/y").await.expect("it is there").etag, *object.etag());
        shown.checksum(&named).await.expect("it is there");
        shown.upload_parts(&named, 0).await.expect("it is there");
        for key in ["a-b/x", "b/x/y", "c/x/y", "x", ""] {
            let error = shown.head_object(key).await.expect_err(key);
            assert_eq!(*error.kind(), ErrorKind::NotFound, "{key}");
        }
        let get = GetObject { object: ObjectId::new("c/x", ETag::new("\"e\"")), range };
        let error = shown.get_object(get, Box::new(vec![0_u8; 5])).await.expect_err("no folder");
        assert_eq!(*error.kind(), ErrorKind::NotFound);
    }
}
