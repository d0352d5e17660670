//! The manifest of an S3 Inventory: which files it consists of.

use serde::Deserialize;

use crate::error::ListedError;

/// What `manifest.json` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    /// The bucket whose objects are listed.
    pub(crate) source_bucket: String,
    /// `CSV`, `ORC` or `Parquet`.
    pub(crate) file_format: String,
    /// The names of the columns, separated by commas, of CSV. Parquet has its own.
    #[serde(default)]
    pub(crate) file_schema: String,
    pub(crate) files: Vec<DataFile>,
}

/// A file of an inventory.
#[derive(Debug, Deserialize)]
pub(crate) struct DataFile {
    pub(crate) key: String,
    /// In 32 hexadecimal digits.
    #[serde(rename = "MD5checksum")]
    pub(crate) md5: Option<String>,
}

impl Manifest {
    /// Reads the text of a manifest. `place` is its name, for errors.
    pub(crate) fn parse(text: &[u8], place: &str) -> Result<Self, ListedError> {
        serde_json::from_slice(text).map_err(|error| {
            ListedError::wrong(place, format!("it is not the manifest.json of an S3 Inventory: {error}"))
        })
    }
}
