//! A client that has its names from a list is as good as the client of the bucket.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use s3mount_bucket::Bucket;
use s3mount_listed::{List, ListedClient, Named, Names, Shelf};
use s3mount_object::{ByteRange, ErrorKind, GetObject, ListObjects, ObjectClient, ObjectId};
use s3mount_testkit::MemoryClient;
use s3mount_testkit::contract::{self, Store};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// A list of all objects of `client`.
async fn csv(client: &MemoryClient) -> Vec<u8> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["Key", "Size", "ETag", "LastModified", "StorageClass"]).expect("memory");
    for key in client.keys() {
        let meta = client.head_object(&key).await.expect("an object");
        let seconds = meta.last_modified.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let time = time::OffsetDateTime::from_unix_timestamp(seconds.cast_signed()).expect("a time");
        let time = time.format(&time::format_description::well_known::Rfc3339).expect("a time");
        let class = meta.storage_class.unwrap_or_default();
        csv.write_record([&key, &meta.size.to_string(), meta.etag.as_str(), &time, &class]).expect("memory");
    }
    csv.into_inner().expect("memory")
}

fn names(list: List, folder: &TempDir) -> Names {
    Names {
        list,
        shelf: Shelf::new(&folder.path().join("shelf"), SystemTime::UNIX_EPOCH),
        memory_bytes: 1 << 20,
        threads: NonZero::new(2).expect("it is not 0"),
        rows: Arc::default(),
    }
}

async fn named(client: &MemoryClient, folder: &TempDir) -> Named {
    let list = folder.path().join("list.csv");
    std::fs::write(&list, csv(client).await).expect("a list");
    names(List::File(list), folder).build().expect("an index")
}

#[tokio::test]
async fn it_keeps_the_promises_of_a_client() {
    let (folder, client) = (TempDir::new().expect("a folder"), MemoryClient::new());
    for (key, bytes) in contract::objects() {
        client.put(&key, bytes);
    }
    let client = ListedClient::new(named(&client, &folder).await, Arc::new(client));
    let store = Store { missing_bucket: None, tells_part_checksums: false, ..Store::new(&client, &client) };
    contract::check(&store).await;
}

#[tokio::test]
async fn the_list_is_the_truth_about_names_and_the_bucket_about_bytes() {
    let (folder, client) = (TempDir::new().expect("a folder"), Arc::new(MemoryClient::new()));
    client.make_directory_bucket();
    client.put("d/a", "first");
    client.put("d/gone", "first");
    let named = named(&client, &folder).await;
    client.put("d/later", "not listed");
    client.put("d/a", "second");
    client.delete("d/gone");
    client.take_requests();
    let listed = ListedClient::new(named, client.clone());
    assert!(listed.lists_in_order(), "whatever the bucket does");
    let page =
        listed.list_objects(ListObjects { start_after: Some("d".into()), ..ListObjects::default() }).await;
    let page = page.expect("a page");
    let keys: Vec<_> = page.objects.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys, ["d/a", "d/gone"]);
    let error = listed.head_object("d/later").await.expect_err("it is not listed");
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    for (object, kind) in page.objects.iter().zip([ErrorKind::PreconditionFailed, ErrorKind::NotFound]) {
        let meta = listed.head_object(&object.key).await.expect("it is listed");
        let (object, range) = (ObjectId::new(&object.key, meta.etag), ByteRange::new(0, 5));
        let answer = listed.get_object(GetObject { object, range }, Box::new(vec![0; 5])).await;
        assert_eq!(*answer.expect_err("it is another version").kind(), kind);
    }
    let requests = client.requests();
    assert_eq!([requests.list, requests.head, requests.get], [0, 0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_may_lie_in_a_bucket() {
    let (folder, client) = (TempDir::new().expect("a folder"), Arc::new(MemoryClient::new()));
    client.put("a", "bytes");
    let text = csv(&client).await;
    // More than one GET fetches it.
    let many = (0..150_000).map(|number| format!("{number:06},1,\"e\",2026-01-31T12:00:00Z,STANDARD\n"));
    let text = text.into_iter().chain(many.collect::<String>().into_bytes()).collect::<Vec<_>>();
    assert!(text.len() > 5 << 20);
    client.put("lists/names.csv", text);
    let list = List::Object {
        bucket: Bucket::from(client.clone()),
        bucket_name: "lists".to_owned(),
        key: "lists/names.csv".to_owned(),
        runtime: Handle::current(),
    };
    let names = names(list, &folder);
    let build = tokio::task::spawn_blocking(move || {
        let named = names.build().expect("an index");
        (names.find("").expect("a list").is_some(), named, names)
    });
    let (is_found, named, names) = build.await.expect("it ends");
    assert!(is_found);
    assert_eq!(named.index.keys(), 150_001);
    client.put("lists/names.csv", "Key,Size,ETag\n");
    let found = tokio::task::spawn_blocking(move || names.find("").expect("a list").is_some());
    assert!(!found.await.expect("it ends"), "the list is another one");
}
