//! The rows of a Parquet file.

use std::fs::File;

use parquet::basic::{LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType, Int96};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::error::ListedError;
use crate::file::version::Version;
use crate::lists::columns::{Columns, Field};
use crate::lists::row::{self, Sink};

/// Rows that are read at once.
const BATCH: usize = 4096;

/// The values of a column in some rows.
enum Values {
    Texts(Vec<Option<ByteArray>>),
    Numbers(Vec<Option<i64>>),
    Truths(Vec<Option<bool>>),
    Days(Vec<Option<Int96>>),
}

/// A column of a row group.
struct Column {
    reader: ColumnReader,
    field: Field,
    /// How many of its units a second has, if it is a time.
    units: i64,
}

fn units(column: &ColumnDescriptor) -> i64 {
    match column.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => match time.unit {
            TimeUnit::MILLIS => 1_000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        },
        _ => match column.converted_type() {
            parquet::basic::ConvertedType::TIMESTAMP_MICROS => 1_000_000,
            _ => 1_000,
        },
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    let (mut rows, mut read) = (0, Vec::new());
    while rows < count {
        levels.clear();
        present.clear();
        let (records, value_count, _) =
            reader.read_records(count - rows, Some(&mut levels), None, &mut present)?;
        if records == 0 {
            return Err(ParquetError::EOF("a column has fewer rows than the others".to_owned()));
        }
        rows += records;
        let mut present = present.drain(..);
        if value_count == records {
            read.extend(present.map(Some));
        } else {
            read.extend(levels.iter().map(|level| if *level == 0 { None } else { present.next() }));
        }
    }
    Ok(read)
}

impl Column {
    fn read(&mut self, count: usize) -> Result<Values, ParquetError> {
        match &mut self.reader {
            ColumnReader::ByteArrayColumnReader(reader) => values(reader, count).map(Values::Texts),
            ColumnReader::Int64ColumnReader(reader) => values(reader, count).map(Values::Numbers),
            ColumnReader::BoolColumnReader(reader) => values(reader, count).map(Values::Truths),
            ColumnReader::Int96ColumnReader(reader) => values(reader, count).map(Values::Days),
            ColumnReader::Int32ColumnReader(reader) => {
                let numbers = values(reader, count)?;
                Ok(Values::Numbers(numbers.into_iter().map(|number| number.map(i64::from)).collect()))
            }
            _ => Err(ParquetError::NYI(format!("the column {:?} has a type that is not read", self.field))),
        }
    }
}

/// Why a file can't be read.
fn unreadable(error: &ParquetError) -> String {
    let text = match error {
        ParquetError::NYI(text) => return text.clone(),
        ParquetError::General(text) => text.strip_prefix("Disabled feature at compile time: "),
        _ => None,
    };
    match text {
        Some(codec) => {
            format!("it is compressed by {codec}; write it with Snappy or gzip, or without compression")
        }
        None => format!("it is no Parquet file that can be read: {error}"),
    }
}

/// Reads all rows of a file. `place` is its name, for errors.
pub(crate) fn read(file: File, place: &str, sink: Sink<'_>) -> Result<(), ListedError> {
    let failed = |error: ParquetError| ListedError::wrong(place, unreadable(&error));
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let paths: Vec<_> = schema.columns().iter().map(|column| column.path().string()).collect();
    let columns = Columns::named(paths.iter().map(String::as_str), place)?;
    let mut before = 0;
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number).map_err(failed)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        read_group(
            &*group,
            &columns,
            rows,
            failed,
            &mut |row, what| ListedError::wrong(format!("{place}, row {}", before + row + 1), what),
            sink,
        )?;
        before += rows;
    }
    Ok(())
}

fn read_group(
    group: &dyn RowGroupReader,
    columns: &Columns,
    rows: usize,
    failed: impl Fn(ParquetError) -> ListedError,
    wrong: &mut dyn FnMut(usize, String) -> ListedError,
    sink: Sink<'_>,
) -> Result<(), ListedError> {
    let fields = [
        Field::Key,
        Field::Size,
        Field::ETag,
        Field::LastModified,
        Field::StorageClass,
        Field::IsLatest,
        Field::IsDeleteMarker,
    ];
    let mut readers = Vec::new();
    for field in fields {
        let column = columns.at(field).map(|at| {
            let units = units(&group.metadata().column(at).column_descr_ptr());
            group.get_column_reader(at).map(|reader| Column { reader, field, units })
        });
        readers.push(column.transpose().map_err(&failed)?);
    }
    let mut version = Vec::new();
    for start in (0..rows).step_by(BATCH) {
        let count = BATCH.min(rows - start);
        let mut read = Vec::with_capacity(readers.len());
        for column in &mut readers {
            read.push(column.as_mut().map(|column| column.read(count)).transpose().map_err(&failed)?);
        }
        let batch = Batch { values: &read, units: readers[3].as_ref().map_or(1, |column| column.units) };
        for at in 0..count {
            version.clear();
            let key = batch.encode(at, &mut version).map_err(|what| wrong(start + at, what))?;
            if let Some(key) = key {
                sink(key.as_bytes(), &version)?;
            }
        }
    }
    Ok(())
}

/// The values of some rows: key, size, ETag, time, storage class, whether it is the latest version, and whether it is a
/// mark of a deletion.
struct Batch<'a> {
    values: &'a [Option<Values>],
    units: i64,
}

impl<'a> Batch<'a> {
    fn text(&self, column: usize, at: usize) -> Result<&'a str, String> {
        match &self.values[column] {
            Some(Values::Texts(texts)) => {
                let bytes = texts[at].as_ref().map(ByteArray::data).unwrap_or_default();
                std::str::from_utf8(bytes).map_err(|_| "a text is no UTF-8".to_owned())
            }
            None => Ok(""),
            Some(_) => Err("a column of texts has another type".to_owned()),
        }
    }

    fn truth(&self, column: usize, at: usize) -> Result<Option<bool>, String> {
        match &self.values[column] {
            Some(Values::Truths(truths)) => Ok(truths[at]),
            Some(Values::Texts(_)) => self.text(column, at).and_then(row::truth).map(Some),
            None => Ok(None),
            Some(_) => Err("a column of true and false has another type".to_owned()),
        }
    }

    fn size(&self, at: usize) -> Result<u64, String> {
        let Some(Values::Numbers(sizes)) = &self.values[1] else {
            return Err("the column of sizes is not of integers".to_owned());
        };
        let size = sizes[at].ok_or("there is no size")?;
        u64::try_from(size).map_err(|_| format!("the size is {size}"))
    }

    fn modified_s(&self, at: usize) -> Result<u64, String> {
        let seconds = match &self.values[3] {
            Some(Values::Numbers(times)) => times[at].unwrap_or(0).div_euclid(self.units),
            Some(Values::Days(times)) => times[at].as_ref().map_or(0, Int96::to_seconds),
            Some(Values::Texts(_)) => return row::time(self.text(3, at)?),
            Some(Values::Truths(_)) => return Err("the column of times is none".to_owned()),
            None => 0,
        };
        Ok(u64::try_from(seconds).unwrap_or(0))
    }

    /// Reads a row, and returns its key, unless the object is not there any more.
    fn encode(&self, at: usize, version: &mut Vec<u8>) -> Result<Option<&'a str>, String> {
        if self.truth(5, at)? == Some(false) || self.truth(6, at)? == Some(true) {
            return Ok(None);
        }
        let key = self.text(0, at)?;
        let (size, modified_s) = (self.size(at)?, self.modified_s(at)?);
        let (etag, class) = (self.text(2, at)?, self.text(4, at)?);
        row::encode(key, Version { size, etag, modified_s, class }, version)?;
        Ok(Some(key))
    }
}
