//! The files of a list.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use md5::{Digest as _, Md5};

use crate::error::ListedError;
use crate::lists::columns::Columns;
use crate::lists::manifest::Manifest;
use crate::lists::place::List;
use crate::lists::row::Sink;
use crate::lists::text::TextForm;
use crate::lists::{columnar, text};

/// The longest manifest: one of a million data files.
const MOST_MANIFEST: u64 = 256 << 20;

/// How the rows of a file are written.
#[derive(Clone, Debug)]
enum TableForm {
    Text(TextForm),
    Parquet,
}

/// A file with rows.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    list: List,
    form: TableForm,
    /// The MD5 that the manifest says, in hexadecimal digits.
    md5: Option<String>,
}

/// All files of a list, and the bucket that it says it lists.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) tables: Vec<Table>,
    pub(crate) source_bucket: Option<String>,
}

impl Tables {
    /// Finds the files of a list.
    ///
    /// # Errors
    /// If it is of no known form, or its manifest can't be read.
    pub(crate) fn of(list: &List, scratch: &Path) -> Result<Self, ListedError> {
        let shown = list.shown();
        let name = shown.to_ascii_lowercase();
        let alone = |form| {
            let table = Table { list: list.clone(), form, md5: None };
            Ok(Self { tables: vec![table], source_bucket: None })
        };
        if name.ends_with(".json") {
            return Self::of_manifest(list, scratch);
        }
        match name.strip_suffix(".gz").unwrap_or(&name).rsplit('.').next() {
            Some("csv") => alone(TableForm::Text(TextForm::Csv)),
            Some("tsv") => alone(TableForm::Text(TextForm::Tsv)),
            Some("parquet") => alone(TableForm::Parquet),
            Some("orc") => Err(ListedError::wrong(shown, NO_ORC)),
            _ => {
                let what = "its name does not say what it is; name the manifest.json of an S3 Inventory, a .csv, .tsv or \
                            .parquet file (text may be compressed: .csv.gz), or an index";
                Err(ListedError::wrong(shown, what))
            }
        }
    }

    fn of_manifest(list: &List, scratch: &Path) -> Result<Self, ListedError> {
        let shown = list.shown();
        let manifest = Manifest::parse(&list.read(scratch, MOST_MANIFEST)?, &shown)?;
        let form = match manifest.file_format.to_ascii_lowercase().as_str() {
            "csv" => {
                let names = manifest.file_schema.split(',').map(str::trim);
                let columns = Columns::named(names, &format!("{shown}, fileSchema"))?;
                TableForm::Text(TextForm::Inventory(columns))
            }
            "parquet" => TableForm::Parquet,
            "orc" => return Err(ListedError::wrong(shown, NO_ORC)),
            other => return Err(ListedError::wrong(shown, format!("it is of the form {other:?}"))),
        };
        let tables = manifest
            .files
            .into_iter()
            .map(|file| Ok(Table { list: list.of_manifest(&file.key)?, form: form.clone(), md5: file.md5 }));
        let tables = tables.collect::<Result<_, ListedError>>()?;
        Ok(Self { tables, source_bucket: Some(manifest.source_bucket) })
    }
}

const NO_ORC: &str = "ORC is not read; have the inventory written as Parquet or CSV";

impl Table {
    /// Gives all rows to `sink`.
    ///
    /// # Errors
    /// For the first row that is wrong, with its place; for a file that is not the one of the manifest; those of `sink`.
    pub(crate) fn read(&self, scratch: &Path, sink: Sink<'_>) -> Result<(), ListedError> {
        let place = self.list.shown();
        let mut file = self.list.open(scratch)?;
        if let Some(md5) = &self.md5 {
            check(&mut file, md5, &place)?;
        }
        match &self.form {
            TableForm::Text(form) => text::read(file, form, &place, sink),
            TableForm::Parquet => columnar::read(file, &place, sink),
        }
    }
}

/// Compares a file with the MD5 that its manifest says.
fn check(file: &mut File, md5: &str, place: &str) -> Result<(), ListedError> {
    let failed = |source| ListedError::File { action: format!("read {place}"), source };
    let (mut hasher, mut buffer) = (Md5::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => break,
            len => hasher.update(&buffer[..len]),
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found.eq_ignore_ascii_case(md5) {
        return Ok(());
    }
    let what = format!(
        "its MD5 is {found}, and the manifest says {md5}: it belongs to another inventory, or is cut off"
    );
    Err(ListedError::wrong(place, what))
}
