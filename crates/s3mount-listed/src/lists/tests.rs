use std::fs::File;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::columnar;
use crate::file::version;

/// The schema of an inventory of versions, as S3 writes it.
const SCHEMA: &str = "message s3.inventory {
    required binary bucket (UTF8);
    required binary key (UTF8);
    optional binary version_id (UTF8);
    optional boolean is_latest;
    optional boolean is_delete_marker;
    optional int64 size;
    optional int64 last_modified_date (TIMESTAMP_MILLIS);
    optional binary e_tag (UTF8);
    optional binary storage_class (UTF8);
}";

/// A row: key, whether it is the latest, whether it is a mark of a deletion, and its size if it has one.
type Row<'a> = (&'a str, bool, bool, Option<i64>);

/// Writes groups of rows with this compression.
fn parquet(groups: &[Vec<Row<'_>>], compression: Compression) -> File {
    let file = tempfile::tempfile().expect("a file");
    let schema = Arc::new(parse_message_type(SCHEMA).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let out = file.try_clone().expect("a file");
    let mut writer = SerializedFileWriter::new(out, schema, properties).expect("a writer");
    for rows in groups {
        let mut group = writer.next_row_group().expect("a group");
        for column in 0..9 {
            let texts = |text: &dyn Fn(&Row<'_>) -> String| {
                rows.iter().map(|row| ByteArray::from(text(row).into_bytes())).collect::<Vec<_>>()
            };
            let truths = |truth: &dyn Fn(&Row<'_>) -> bool| rows.iter().map(truth).collect::<Vec<_>>();
            let present = vec![1; rows.len()];
            let mut out = group.next_column().expect("no error").expect("a column");
            match column {
                0 => out.typed::<ByteArrayType>().write_batch(&texts(&|_| "b".into()), None, None),
                1 => out.typed::<ByteArrayType>().write_batch(&texts(&|row| row.0.into()), None, None),
                3 => out.typed::<BoolType>().write_batch(&truths(&|row| row.1), Some(&present), None),
                4 => out.typed::<BoolType>().write_batch(&truths(&|row| row.2), Some(&present), None),
                5 => {
                    let levels: Vec<_> = rows.iter().map(|row| i16::from(row.3.is_some())).collect();
                    let sizes: Vec<_> = rows.iter().filter_map(|row| row.3).collect();
                    out.typed::<Int64Type>().write_batch(&sizes, Some(&levels), None)
                }
                6 => {
                    let times = vec![1_769_860_800_999; rows.len()];
                    out.typed::<Int64Type>().write_batch(&times, Some(&present), None)
                }
                7 => {
                    // A mark of a deletion has none.
                    let levels: Vec<_> = rows.iter().map(|row| i16::from(row.3.is_some())).collect();
                    let etags =
                        vec![ByteArray::from("abc-2"); rows.iter().filter(|row| row.3.is_some()).count()];
                    out.typed::<ByteArrayType>().write_batch(&etags, Some(&levels), None)
                }
                _ => out.typed::<ByteArrayType>().write_batch(
                    &texts(&|_| "STANDARD".into()),
                    Some(&present),
                    None,
                ),
            }
            .expect("it is written");
            out.close().expect("it is closed");
        }
        group.close().expect("it is closed");
    }
    writer.close().expect("it is closed");
    file
}

fn read(file: File) -> Result<Vec<(String, String)>, String> {
    let mut rows = Vec::new();
    let read = columnar::read(file, "list.parquet", &mut |key, bytes| {
        let meta = version::meta(bytes).expect("a version");
        let seconds = meta.last_modified.duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
        let class = meta.storage_class.unwrap_or_default();
        let version = format!("{} {} {seconds} {class}", meta.size, meta.etag);
        rows.push((String::from_utf8(key.to_vec()).expect("a text"), version));
        Ok(())
    });
    read.map(|()| rows).map_err(|error| error.to_string())
}

#[test]
fn an_inventory_in_parquet_has_its_latest_versions() {
    let rows: Vec<Row<'_>> = vec![
        ("a%20+b", true, false, Some(7)),
        ("a%20+b", false, false, Some(6)),
        ("gone", true, true, None),
        ("é", true, false, Some(0)),
    ];
    let many: Vec<_> = (0..10_000).map(|number| format!("{number:05}")).collect();
    let more = many.iter().map(|key| (key.as_str(), true, false, Some(1))).collect();
    let groups = [rows, more];
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default())]
    {
        let read = read(parquet(&groups, compression)).expect("rows");
        assert_eq!(read.len(), 10_002);
        let version = |size: u32| format!("{size} \"abc-2\" 1769860800 STANDARD");
        assert_eq!(read[..2], [("a%20+b".to_owned(), version(7)), ("é".to_owned(), version(0))]);
        assert!(read[2..].iter().map(|(key, _)| key).eq(&many), "each once, in order");
        assert!(read[2..].iter().all(|(_, said)| *said == version(1)));
    }
}

#[test]
fn a_wrong_row_of_parquet_is_named() {
    let groups =
        [vec![("a", true, false, Some(1))], vec![("b", true, false, Some(1)), ("c", true, false, None)]];
    let error = read(parquet(&groups, Compression::SNAPPY)).expect_err("it has no size");
    assert_eq!(error, "list.parquet, row 3: there is no size");
    let groups = [vec![("a", true, false, Some(-1))]];
    let error = read(parquet(&groups, Compression::SNAPPY)).expect_err("it has no size");
    assert_eq!(error, "list.parquet, row 1: the size is -1");
    let file = parquet(&groups, Compression::SNAPPY);
    let len = file.metadata().expect("a length").len();
    file.set_len(len - 3).expect("it is cut");
    let error = read(file).expect_err("it is cut off");
    assert!(error.starts_with("list.parquet: it is no Parquet file that can be read: "), "{error}");
}
