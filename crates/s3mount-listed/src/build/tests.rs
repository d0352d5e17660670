use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;
use s3mount_object::ListObjects;
use tempfile::TempDir;

use super::merge::merge;
use super::sorter::Sorter;
use crate::file::version::Version;
use crate::{Index, List, Named, Names, Shelf};

const ETAG: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// The means to build the index of a list, with memory for few rows.
fn names(list: &Path, shelf: &Path) -> Names {
    Names {
        list: List::File(list.to_owned()),
        shelf: Shelf::new(shelf, SystemTime::UNIX_EPOCH),
        memory_bytes: 300,
        threads: NonZero::new(3).expect("it is not 0"),
        rows: Arc::default(),
    }
}

fn all(index: &Index) -> Vec<(String, u64)> {
    let page = index.list(&ListObjects::default()).expect("a page");
    page.objects.into_iter().map(|object| (object.key, object.meta.size)).collect()
}

/// Builds the index of a list with these bytes, in a file of this name. Returns its error as a text, without the folder.
fn built(name: &str, bytes: &[u8]) -> Result<Named, String> {
    let folder = TempDir::new().expect("a folder");
    let list = folder.path().join(name);
    std::fs::write(&list, bytes).expect("a list");
    let built = names(&list, &folder.path().join("shelf")).build();
    built.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn keys(name: &str, bytes: &[u8]) -> Vec<(String, u64)> {
    all(&built(name, bytes).unwrap_or_else(|error| panic!("{name}: {error}")).index)
}

fn pairs(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(key, size)| ((*key).to_owned(), *size)).collect()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever the order, and however little memory there is.
    #[test]
    fn rows_are_sorted(keys in prop::collection::vec("[a-c/]{1,6}", 1..400), memory_bytes in 1_usize..2000) {
        let folder = TempDir::new().expect("a folder");
        let mut sorter = Sorter::new(folder.path(), "of a test", memory_bytes);
        // The same key has the same version each time.
        let size = |key: &str| key.bytes().map(u64::from).sum::<u64>();
        for key in &keys {
            let mut version = Vec::new();
            Version { size: size(key), etag: ETAG, modified_s: 7, class: "" }.encode(&mut version);
            sorter.push(key.as_bytes(), &version).expect("it is taken");
        }
        let run = merge(sorter.finish().expect("runs"), "of a test", folder.path()).expect("a run");
        let index = Index::open(run.file.reopen().expect("a file")).expect("an index");
        let expected: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), size(key))).collect();
        prop_assert_eq!(index.keys(), expected.len() as u64);
        prop_assert_eq!(all(&index), expected.into_iter().collect::<Vec<_>>());
        drop(run);
        prop_assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left");
    }
}

#[test]
fn text_is_read_with_and_without_names_of_its_columns() {
    let expected = pairs(&[("a b", 1), ("a+b%20", 2), ("z,\"q\"", 3)]);
    let csv = format!(
        "\u{feff}Key,Size,E_Tag,LastModified\nz%s,3,{ETAG},\na b,1,\"\"\"{ETAG}-2\"\"\",2026-01-31T12:00:00.000Z\n\
         a+b%20,2,{ETAG},2026-01-31 12:00:00+00:00\n"
    );
    let csv = csv.replace("z%s", "\"z,\"\"q\"\"\"");
    assert_eq!(keys("list.csv", csv.as_bytes()), expected);
    assert_eq!(keys("LIST.CSV.GZ", &gzipped(csv.as_bytes())), expected);
    assert_eq!(keys("not-named-so.csv", &gzipped(csv.as_bytes())), expected);
    let tsv = format!(
        "z,\"q\"\t3\t\"{ETAG}\"\t2026-01-31T12:00:00+00:00\na b\t1\t\"{ETAG}-2\"\t2026-01-31T12:00:00+00:00\tGLACIER\n\
         a+b%20\t2\t{ETAG}\n"
    );
    assert_eq!(keys("list.tsv", tsv.as_bytes()), expected);
    let named = built("list.tsv", tsv.as_bytes()).expect("an index");
    let meta = named.index.head("a b").expect("an answer").expect("an object");
    assert_eq!(meta.etag.as_str(), format!("\"{ETAG}-2\""));
    assert_eq!(meta.storage_class.as_deref(), Some("GLACIER"));
    assert_eq!(
        meta.last_modified.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs(),
        1_769_860_800
    );
    let headed = format!("ETag\tSize\tKey\n{ETAG}\t1\ta\n");
    assert_eq!(keys("list.tsv.gz", &gzipped(headed.as_bytes())), pairs(&[("a", 1)]));
    assert_eq!(keys("empty.tsv", b""), vec![]);
    assert_eq!(keys("empty.csv", b"key,size,etag\n"), vec![]);
}

#[test]
fn keys_of_an_inventory_are_url_encoded_and_deleted_versions_are_left_out() {
    let csv = format!(
        "Bucket,Key,VersionId,IsLatest,IsDeleteMarker,Size,ETag\nb,a%2Fb+c%2B,1,true,false,1,{ETAG}\n\
         b,a%2Fb+c%2B,0,false,false,2,{ETAG}\nb,gone,2,true,true,,\nb,%C3%A9,3,true,false,3,{ETAG}\n"
    );
    assert_eq!(keys("list.csv", csv.as_bytes()), pairs(&[("a/b c+", 1), ("é", 3)]));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let line = |rest: &str| format!("key,size,etag,lastmodified\na,1,{ETAG},\n{rest}\n");
    let inventory = |key: &str| format!("bucket,key,size,etag\nb,{key},1,{ETAG}\n");
    let long = "k".repeat(1025);
    let tsv_long = format!("{long}\t1\t{ETAG}\n");
    for (name, text, said) in [
        (
            "l.csv",
            "a,1,2\n".to_owned(),
            "l.csv, line 1: the first line does not name the columns; write Key,Size,ETag",
        ),
        (
            "l.csv",
            "key,size\n".to_owned(),
            "l.csv, line 1: there is no column ETag, and a mount needs Key, Size and ETag",
        ),
        ("l.csv", "key,Key,size,etag\n".to_owned(), "l.csv, line 1: the column \"Key\" is there twice"),
        ("l.csv", line("b,x,e,"), "l.csv, line 3: the size is \"x\", which is no number of bytes"),
        ("l.csv", line("b,-1,e,"), "l.csv, line 3: the size is \"-1\""),
        ("l.csv", line("b,1,,"), "l.csv, line 3: the ETag of the key \"b\" is \"\", which is none"),
        ("l.csv", line("b,1,e e,"), "l.csv, line 3: the ETag of the key \"b\" is \"e e\""),
        ("l.csv", line("b,1,e,yesterday"), "l.csv, line 3: the time is \"yesterday\", which is none like"),
        ("l.csv", line("b,1"), "l.csv, line 3: the line has 2 fields, and the lines before have 4"),
        ("l.csv", line(",1,e,"), "l.csv, line 3: a key of 0 bytes: keys have 1 to 1024"),
        ("l.csv", inventory("100%"), "l.csv, line 2: the key \"100%\" is not URL-encoded"),
        ("l.csv", inventory("%ff"), "l.csv, line 2: the key \"%ff\" is no UTF-8"),
        ("l.tsv", "a\t1\n".to_owned(), "l.tsv, line 1: the line has 2 fields, and needs key, size and ETag"),
        ("l.tsv", "None\n".to_owned(), "l.tsv, line 1: the line has 1 fields"),
        (
            "l.tsv",
            format!("a\t1\t{ETAG}\t\t\tmore\n"),
            "l.tsv, line 1: the line has 6 fields, and 5 are known",
        ),
        ("l.tsv", tsv_long, "l.tsv, line 1: a key of 1025 bytes"),
        ("l.csv", line("a,2,e,"), "the list: the key \"a\" is there twice, with ETag"),
        ("l.orc", String::new(), "l.orc: ORC is not read; have the inventory written as Parquet or CSV"),
        ("l.doc", String::new(), "l.doc: its name does not say what it is; name the manifest.json"),
        ("l.json", "[]".to_owned(), "l.json: it is not the manifest.json of an S3 Inventory"),
        ("l.parquet", "PAR1".to_owned(), "l.parquet: it is no Parquet file that can be read"),
    ] {
        let error = built(name, text.as_bytes()).expect_err(said);
        assert!(error.starts_with(said), "{error}\nis not\n{said}");
    }
    let cut = &gzipped(line("b,1,e,").as_bytes())[..40];
    let error = built("l.csv.gz", cut).expect_err("it is cut off");
    assert!(error.starts_with("l.csv.gz") && error.contains("can't be read"), "{error}");
    let not_utf8 = built("l.tsv", b"\xff\t1\te\n").expect_err("it is no text");
    assert_eq!(not_utf8, "l.tsv, line 1: Key is no UTF-8");
}

#[test]
fn a_list_of_several_files_is_one() {
    let folder = TempDir::new().expect("a folder");
    let inventory = folder.path().join("inventory/bucket/daily");
    let manifest = inventory.join("2026-01-31T01-00Z/manifest.json");
    let data = inventory.join("data");
    std::fs::create_dir_all(manifest.parent().expect("a folder")).expect("made");
    std::fs::create_dir_all(&data).expect("made");
    let (mut files, mut expected) = (Vec::new(), Vec::new());
    for part in 0..5_u64 {
        let rows = (0..40).map(|row| {
            let key = format!("{}/{:02}", row % 3, row * 5 + part);
            expected.push((key.clone(), row));
            format!(
                "\"bucket\",\"{}\",\"{row}\",\"{ETAG}\",\"2026-01-31T12:00:00.000Z\"\n",
                key.replace('/', "%2F")
            )
        });
        let bytes = gzipped(rows.collect::<String>().as_bytes());
        let md5 = <md5::Md5 as md5::Digest>::digest(&bytes);
        let md5: String = md5.iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(data.join(format!("{part}.csv.gz")), &bytes).expect("a file");
        files.push(format!(
            "{{\"key\":\"inventory/bucket/daily/data/{part}.csv.gz\",\"size\":{},\"MD5checksum\":\"{md5}\"}}",
            bytes.len()
        ));
    }
    expected.sort();
    let write = |format: &str, schema: &str| {
        let files = files.join(",");
        let text = format!(
            "{{\"sourceBucket\":\"bucket\",\"destinationBucket\":\"arn:aws:s3:::b\",\"version\":\"2016-11-30\",\
             \"creationTimestamp\":\"1\",\"fileFormat\":\"{format}\",\"fileSchema\":\"{schema}\",\"files\":[{files}]}}"
        );
        std::fs::write(&manifest, text).expect("a manifest");
    };
    let shelf = folder.path().join("shelf");
    let build = || names(&manifest, &shelf).build();
    write("CSV", "Bucket, Key, Size, ETag, LastModifiedDate");
    let named = build().expect("an index");
    assert_eq!(all(&named.index), expected);
    assert_eq!(named.source_bucket.as_deref(), Some("bucket"));
    let found = names(&manifest, &shelf).find("").expect("a list").expect("it was built");
    assert_eq!((found.path, all(&found.index)), (named.path, expected));
    assert!(std::fs::read_dir(&shelf).expect("a folder").count() == 1, "nothing else is left");
    let error = |said: &str| {
        let error = build().expect_err(said).to_string();
        assert!(error.contains(said), "{error}\nis not\n{said}");
    };
    std::fs::write(data.join("3.csv.gz"), gzipped(b"other")).expect("a file");
    error("3.csv.gz: its MD5 is ");
    std::fs::remove_file(data.join("3.csv.gz")).expect("removed");
    error("its data file 3.csv.gz is neither beside it nor in ../data");
    write("CSV", "Bucket, Key, Size");
    error("manifest.json, fileSchema: there is no column ETag");
    write("ORC", "struct<bucket:string>");
    error("ORC is not read");
    write("Avro", "");
    error("it is of the form \"avro\"");
}
