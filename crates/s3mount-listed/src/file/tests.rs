use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use futures::executor::block_on;
use proptest::prelude::*;
use s3mount_object::{ListObjects, ListPage, ObjectClient as _};
use s3mount_testkit::MemoryClient;

use super::index::Index;
use super::version::{self, Version};
use super::writer::IndexWriter;
use crate::ListedError;

/// An index of these versions, in blocks of this size.
fn file(versions: &BTreeMap<String, Vec<u8>>, block_bytes: usize) -> File {
    let file = tempfile::tempfile().expect("a file");
    let writer = IndexWriter::new(file, "of a test").expect("a header");
    let mut writer = writer.with_block_bytes(block_bytes);
    for (key, version) in versions {
        writer.push(key.as_bytes(), version).expect("it is written");
    }
    writer.finish().expect("it is complete").0
}

fn encoded(version: Version<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    version.encode(&mut bytes);
    bytes
}

/// The index of all objects of a client.
fn index(client: &MemoryClient, block_bytes: usize) -> Index {
    let mut versions = BTreeMap::new();
    for key in client.keys() {
        let meta = block_on(client.head_object(&key)).expect("an object");
        let seconds = meta.last_modified.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let etag = meta.etag.as_str().trim_matches('"');
        let (size, modified_s) = (meta.size, seconds.as_secs());
        let class = meta.storage_class.as_deref().unwrap_or_default();
        versions.insert(key, encoded(Version { size, etag, modified_s, class }));
    }
    Index::open(file(&versions, block_bytes)).expect("an index")
}

/// The names on a page, and whether there are more.
fn names(page: &ListPage) -> (Vec<&str>, &[String], bool) {
    let keys = page.objects.iter().map(|object| object.key.as_str()).collect();
    (keys, &page.common_prefixes, page.next.is_some())
}

/// A key of few letters, among them those around the slash, and the first and the last of UTF-8.
fn key() -> impl Strategy<Value = String> {
    let letters = prop::sample::select(vec!["a", "b", "/", "/", ".", "0", " ", "é", "\u{ff46}", "😀"]);
    prop::collection::vec(letters, 1..8).prop_map(|letters| letters.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_those_of_a_store_with_the_same_objects(
        keys in prop::collection::btree_set(key(), 0..120),
        prefix in prop_oneof![Just(String::new()), key()],
        start_after in prop::option::of(prop_oneof![Just(String::new()), key()]),
        delimiter in any::<bool>(),
        max_keys in prop::option::of(1_u32..20),
        block_bytes in 1_usize..300,
    ) {
        let client = MemoryClient::new();
        for key in &keys {
            client.put(key, key.clone());
        }
        let index = index(&client, block_bytes);
        let mut request =
            ListObjects { prefix, delimiter, start_after, max_keys, ..ListObjects::default() };
        let mut expected_request = request.clone();
        loop {
            let page = index.list(&request).expect("a page");
            let expected = block_on(client.list_objects(expected_request.clone())).expect("a page");
            prop_assert_eq!(names(&page), names(&expected), "{:?}", &request);
            for object in &page.objects {
                prop_assert_eq!(index.head(&object.key).expect("an answer"), Some(object.meta.clone()));
                let head = block_on(client.head_object(&object.key)).expect("an object");
                prop_assert_eq!((&object.meta.etag, object.meta.size), (&head.etag, head.size));
            }
            if page.next.is_none() {
                break;
            }
            (request.continuation, request.start_after) = (page.next, None);
            (expected_request.continuation, expected_request.start_after) = (expected.next, None);
        }
        for key in keys.iter().map(|key| format!("{key}a")).filter(|key| !keys.contains(key)) {
            prop_assert_eq!(index.head(&key).expect("an answer"), None);
        }
    }

    #[test]
    fn versions_come_back(
        size in any::<u64>(),
        modified_s in 0_u64..1 << 40,
        etag in "[0-9a-f]{32}|[0-9a-f]{32}-[0-9]{1,5}|[!#-~]{1,255}",
        class in "|STANDARD|GLACIER|[A-Z_]{1,20}",
    ) {
        let bytes = encoded(Version { size, etag: &etag, modified_s, class: &class });
        let meta = version::meta(&bytes).expect("a version");
        prop_assert_eq!(meta.size, size);
        prop_assert_eq!(meta.etag.as_str(), format!("\"{etag}\""));
        prop_assert_eq!(meta.storage_class.unwrap_or_default(), class);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(modified_s);
        prop_assert_eq!(meta.last_modified, time);
    }

    #[test]
    fn a_flipped_bit_gives_no_wrong_name(place in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let keys: Vec<_> = (0..300).map(|number| format!("folder/{number:04}")).collect();
        let version = encoded(Version { size: 1, etag: "e", modified_s: 0, class: "" });
        let versions: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), version.clone())).collect();
        let file = file(&versions, 200);
        let len = usize::try_from(file.metadata().expect("a length").len()).expect("it is short");
        let (place, mut byte) = (place.index(len) as u64, [0]);
        file.read_exact_at(&mut byte, place).expect("a byte");
        byte[0] ^= 1 << bit;
        file.write_all_at(&byte, place).expect("a byte");
        let index = match Index::open(file) {
            Ok(index) => index,
            Err(error) => {
                prop_assert!(matches!(error, ListedError::Damaged(_)), "{error:?}");
                return Ok(());
            }
        };
        // The lengths before the blocks are for those who read an index from front to back.
        match index.list(&ListObjects::default()) {
            Ok(page) => prop_assert_eq!(page.objects.iter().map(|o| &o.key).collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>()),
            Err(error) => prop_assert!(matches!(error, ListedError::Damaged(_)), "{error:?}"),
        }
    }
}

#[test]
fn an_index_that_is_cut_off_is_seen() {
    let versions = (0..99).map(|number| (format!("{number:02}"), encoded_empty())).collect();
    let file = file(&versions, 100);
    let len = file.metadata().expect("a length").len();
    for cut in [0, 10, len / 2, len - 1] {
        file.set_len(cut).expect("it is cut");
        let error = Index::open(file.try_clone().expect("a file")).expect_err("it is cut off");
        assert!(matches!(error, ListedError::Damaged(_)), "{error:?}");
    }
}

fn encoded_empty() -> Vec<u8> {
    encoded(Version { size: 0, etag: "e", modified_s: 0, class: "" })
}

#[test]
fn a_prefix_is_passed_without_a_look_at_its_keys() {
    let deep = (0..2000).map(|number| format!("a/{number:04}{}", "x".repeat(40)));
    let keys = deep.chain(["b".to_owned()]);
    let versions: BTreeMap<_, _> = keys.map(|key| (key, encoded_empty())).collect();
    let file = file(&versions, 2000);
    let len = file.metadata().expect("a length").len();
    // Leaves only: the first block above them is written when half of them are.
    file.write_all_at(&[0xff; 4000], len / 4).expect("it is damaged");
    let index = Index::open(file).expect("an index");
    let request = ListObjects { delimiter: true, ..ListObjects::default() };
    let page = index.list(&request).expect("nobody looks there");
    assert_eq!(names(&page), (vec!["b"], &["a/".to_owned()][..], false));
    index.list(&ListObjects::default()).expect_err("the damage is seen where it is read");
}
