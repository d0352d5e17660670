//! The rows of a CSV or TSV, which may be compressed by gzip.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};

use csv::{ByteRecord, ReaderBuilder};
use flate2::read::MultiGzDecoder;

use crate::error::ListedError;
use crate::file::version::Version;
use crate::lists::columns::{Columns, Field};
use crate::lists::row::{self, Sink};

/// What gzip's files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The fields of a line without names: those of [`Columns::of_lines`].
const LINE_FIELDS: usize = 5;

const BUFFER_BYTES: usize = 256 << 10;

/// How a table of text is written.
#[derive(Clone, Debug)]
pub(crate) enum TextForm {
    /// A data file of an inventory: no line has the names of the columns, and keys are URL-encoded.
    Inventory(Columns),
    /// The first line has the names of the columns. Where one of them is the bucket, the file is of an inventory, and
    /// keys are URL-encoded.
    Csv,
    /// Separated by tabs, without quotes: key, size, ETag, time, storage class; or as the first line names them.
    Tsv,
}

/// What the rows of a table have.
struct Rows {
    columns: Columns,
    /// The most fields of a line, if not all lines have to have the same number.
    most: Option<usize>,
    is_encoded: bool,
    /// A line that was read to find that out, and is a row.
    first: Option<ByteRecord>,
}

fn decompressed(mut file: File, place: &str) -> Result<Box<dyn Read>, ListedError> {
    let failed = |source| ListedError::File { action: format!("read {place}"), source };
    let mut begin = [0; 2];
    let mut len = 0;
    while len < begin.len() {
        match file.read(&mut begin[len..]).map_err(failed)? {
            0 => break,
            read => len += read,
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let file = BufReader::with_capacity(BUFFER_BYTES, file);
    Ok(if begin == GZIP { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// Reads all rows of a file. `place` is its name, for errors.
pub(crate) fn read(file: File, form: &TextForm, place: &str, sink: Sink<'_>) -> Result<(), ListedError> {
    let is_tsv = matches!(form, TextForm::Tsv);
    let mut lines = ReaderBuilder::new()
        .has_headers(false)
        .delimiter(if is_tsv { b'\t' } else { b',' })
        .quoting(!is_tsv)
        // Where the storage class stands is in some lines only.
        .flexible(is_tsv)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(decompressed(file, place)?);
    let mut record = ByteRecord::new();
    let failed = |error: csv::Error| {
        let line = error.position().map_or(String::new(), |at| format!(", line {}", at.line()));
        ListedError::wrong(format!("{place}{line}"), shown(&error))
    };
    let Rows { columns, most, is_encoded, first } = match form {
        TextForm::Inventory(columns) => {
            Rows { columns: columns.clone(), most: None, is_encoded: true, first: None }
        }
        TextForm::Csv | TextForm::Tsv => {
            let is_line = lines.read_byte_record(&mut record).map_err(failed)?;
            headed(&record, is_tsv, is_line, place)?
        }
    };
    let (mut key, mut version) = (String::new(), Vec::new());
    let mut is_row = first.is_some();
    record = first.unwrap_or_default();
    loop {
        if !is_row && !lines.read_byte_record(&mut record).map_err(failed)? {
            return Ok(());
        }
        is_row = false;
        version.clear();
        let read = match most.filter(|most| record.len() > *most) {
            Some(most) => Err(format!("the line has {} fields, and {most} are known", record.len())),
            None => encode(&record, &columns, is_encoded, &mut key, &mut version),
        };
        let read = read.map_err(|what| {
            let line = record.position().map_or(0, csv::Position::line);
            ListedError::wrong(format!("{place}, line {line}"), what)
        });
        if read? {
            sink(key.as_bytes(), &version)?;
        }
    }
}

/// What is wrong with a file that is no CSV, or is cut off.
fn shown(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} fields, and the lines before have {expected_len}")
        }
        csv::ErrorKind::Io(error) => format!("it can't be read: {error}"),
        _ => error.to_string(),
    }
}

/// Finds out what the first line says.
fn headed(record: &ByteRecord, is_tsv: bool, is_line: bool, place: &str) -> Result<Rows, ListedError> {
    let names: Vec<_> = record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    // A byte order mark, as spreadsheets write it.
    let names = names.iter().map(|name| name.trim_start_matches('\u{feff}'));
    let has_names = names.clone().any(|name| Field::named(name) == Some(Field::Key))
        && names.clone().any(|name| Field::named(name) == Some(Field::Size));
    if is_tsv && !has_names {
        let first = is_line.then(|| record.clone());
        return Ok(Rows { columns: Columns::of_lines(), most: Some(LINE_FIELDS), is_encoded: false, first });
    }
    if !has_names {
        let what = "the first line does not name the columns; write Key,Size,ETag,LastModified there, or name the \
                    manifest.json of the inventory that the file belongs to";
        return Err(ListedError::wrong(format!("{place}, line 1"), what));
    }
    let columns = Columns::named(names, &format!("{place}, line 1"))?;
    let is_encoded = !is_tsv && columns.at(Field::Bucket).is_some();
    Ok(Rows { columns, most: is_tsv.then(|| record.len()), is_encoded, first: None })
}

/// Reads a row. Returns whether it is an object that is there, and not one that was deleted or replaced.
fn encode(
    record: &ByteRecord,
    columns: &Columns,
    is_encoded: bool,
    key: &mut String,
    version: &mut Vec<u8>,
) -> Result<bool, String> {
    let field = |field| {
        let bytes = columns.at(field).and_then(|at| record.get(at)).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| format!("{field:?} is no UTF-8"))
    };
    for (name, is_there) in [(Field::IsLatest, true), (Field::IsDeleteMarker, false)] {
        if columns.at(name).is_some() && row::truth(field(name)?)? != is_there {
            return Ok(false);
        }
    }
    if columns.at(Field::ETag).is_none_or(|at| record.get(at).is_none()) {
        return Err(format!("the line has {} fields, and needs key, size and ETag", record.len()));
    }
    let text = field(Field::Key)?;
    key.clear();
    key.push_str(&if is_encoded { row::decoded(text)? } else { text.into() });
    let modified = field(Field::LastModified)?;
    let modified_s = if modified.is_empty() { 0 } else { row::time(modified)? };
    let (size, class) = (row::size(field(Field::Size)?)?, field(Field::StorageClass)?);
    row::encode(key, Version { size, etag: field(Field::ETag)?, modified_s, class }, version)?;
    Ok(true)
}
