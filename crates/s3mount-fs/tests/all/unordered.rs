//! A directory bucket: its listings are in no order and can't begin behind a key.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use s3mount_fs::{DirOffset, FileKind, FsError, MetadataTtl, ROOT};
use s3mount_testkit::{MemoryClient, Requests, mix};

use crate::common::{bucket, mount, names, walk};

/// A directory bucket with these keys.
fn directory_bucket<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Arc<MemoryClient> {
    let client = bucket(keys);
    client.make_directory_bucket();
    client
}

/// The folder `d` with `count` files and a folder.
fn folder(count: usize) -> Vec<String> {
    let files = (0..count).map(|index| format!("d/{index:05}"));
    files.chain(["d/sub/file".to_owned(), "other".to_owned()]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_folder_of_several_pages_is_shown_once_and_in_order() {
    let client = directory_bucket(folder(3500));
    let fs = mount(&client, |_| {});
    let ino = walk(&fs, "d").await.expect("a folder");
    client.take_requests();
    let listed = names(&fs, ino).await.expect("names");
    let mut want: Vec<_> = (0..3500).map(|index| format!("{index:05}")).collect();
    want.push("sub".to_owned());
    assert_eq!(listed, want);
    assert_eq!(client.take_requests(), Requests { list: 4, ..Requests::default() }, "one for each thousand");
    // What was listed answers look-ups, also of names that are not there.
    assert!(walk(&fs, "d/01234").await.is_ok() && walk(&fs, "d/sub").await.is_ok());
    assert!(matches!(walk(&fs, "d/none").await, Err(FsError::NotFound)));
    assert_eq!(client.take_requests(), Requests::default());
}

#[tokio::test(start_paused = true)]
async fn a_look_up_is_a_head_and_a_list_at_the_same_time() {
    for ttl in [MetadataTtl::For(Duration::from_secs(60)), MetadataTtl::For(Duration::ZERO)] {
        let client = directory_bucket(["a", "a-b", "b", "b/c", "marker/", "only/deep/file"]);
        client.set_latency(Duration::from_millis(10));
        let fs = mount(&client, |config| config.metadata_ttl = ttl);
        let start = tokio::time::Instant::now();
        let kind = fs.lookup(ROOT, "b").await.expect("a name").attr.kind;
        assert_eq!(kind, FileKind::Directory, "a folder goes before a key of its name");
        assert_eq!(client.take_requests(), Requests { head: 1, list: 1, ..Requests::default() });
        assert!(start.elapsed() < Duration::from_millis(20), "{:?}", start.elapsed());
        for (name, kind) in
            [("a", FileKind::File), ("marker", FileKind::Directory), ("only", FileKind::Directory)]
        {
            assert_eq!(fs.lookup(ROOT, name).await.expect("a name").attr.kind, kind, "{name}");
        }
        for name in ["none", "a-", "a-bc", "onl"] {
            assert!(matches!(fs.lookup(ROOT, name).await, Err(FsError::NotFound)), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_name_is_not_asked_for_again() {
    let client = directory_bucket(["a", "d/f"]);
    let fs = mount(&client, |_| {});
    for _ in 0..3 {
        assert!(walk(&fs, "a").await.is_ok() && walk(&fs, "d").await.is_ok());
    }
    assert_eq!(client.take_requests(), Requests { head: 2, list: 2, ..Requests::default() });
}

#[tokio::test(start_paused = true)]
async fn many_look_ups_have_their_folder_listed() {
    let client = directory_bucket(folder(2000));
    client.set_latency(Duration::from_millis(5));
    let fs = mount(&client, |_| {});
    let parent = walk(&fs, "d").await.expect("a folder");
    client.take_requests();
    for chunk in 0..100_u64 {
        let found = (0..20).map(|index| {
            let (fs, name) = (fs.clone(), format!("{:05}", mix(chunk * 20 + index) % 4000));
            async move { (fs.lookup(parent, &name).await.is_ok(), name) }
        });
        for (is_there, name) in join_all(found).await {
            assert_eq!(is_there, name.as_str() < "02000", "{name}");
        }
    }
    let asked = client.take_requests();
    assert!(asked.list + asked.head < 60, "{asked:?} for 2,000 look-ups");
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_does_not_fit_memory_is_refused_clearly() {
    let client = directory_bucket(folder(20_000));
    let fs = mount(&client, |config| config.metadata_limit_bytes = 1 << 20);
    let ino = walk(&fs, "d").await.expect("a folder");
    let error = names(&fs, ino).await.expect_err("too many");
    assert_eq!(error.errno(), libc::ENOMEM);
    assert!(error.to_string().contains("--metadata-limit"), "{error}");
    // Its names can be looked up all the same, and other folders are listed.
    assert!(walk(&fs, "d/19999").await.is_ok());
    let sub = walk(&fs, "d/sub").await.expect("a folder");
    assert_eq!(names(&fs, sub).await.expect("names"), ["file"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_in_a_folder_is_the_same_when_the_folder_is_listed_again() {
    let client = directory_bucket(folder(6000));
    let fs = mount(&client, |_| {});
    let handle = fs.opendir(walk(&fs, "d").await.expect("a folder")).expect("a handle");
    let (mut all, mut offset) = (Vec::new(), DirOffset::START);
    loop {
        let page = fs.readdir(handle, offset, 1000).await.expect("names");
        let Some(last) = page.last() else { break };
        offset = last.next;
        all.extend(page);
    }
    // The first names are gone from memory by now.
    let again = fs.readdir(handle, all[9].next, 5).await.expect("names");
    assert_eq!(again, all[10..15]);
}
