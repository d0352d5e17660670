//! Which column of a table is what.

use crate::error::ListedError;

/// What a column may be. All others are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// The bucket, which only an inventory names in each row.
    Bucket,
    Key,
    Size,
    ETag,
    LastModified,
    StorageClass,
    IsLatest,
    IsDeleteMarker,
}

const FIELDS: usize = 8;

/// Where each field is in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns([Option<usize>; FIELDS]);

impl Field {
    /// The field with this name, as inventories, Athena, `aws s3api` and their users spell it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        match letters.map(|letter| letter.to_ascii_lowercase()).collect::<String>().as_str() {
            "bucket" => Some(Self::Bucket),
            "key" => Some(Self::Key),
            "size" => Some(Self::Size),
            "etag" => Some(Self::ETag),
            "lastmodified" | "lastmodifieddate" => Some(Self::LastModified),
            "storageclass" => Some(Self::StorageClass),
            "islatest" => Some(Self::IsLatest),
            "isdeletemarker" => Some(Self::IsDeleteMarker),
            _ => None,
        }
    }
}

impl Columns {
    /// Finds the columns by their names. `place` is for errors.
    ///
    /// # Errors
    /// If a name is there twice, and if key, size or ETag is missing.
    pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>, place: &str) -> Result<Self, ListedError> {
        let mut columns = Self::default();
        for (at, name) in names.enumerate() {
            if let Some(field) = Field::named(name)
                && columns.0[field as usize].replace(at).is_some()
            {
                return Err(ListedError::wrong(place, format!("the column {name:?} is there twice")));
            }
        }
        for (field, name) in [(Field::Key, "Key"), (Field::Size, "Size"), (Field::ETag, "ETag")] {
            if columns.at(field).is_none() {
                let what = format!(
                    "there is no column {name}, and a mount needs Key, Size and ETag; add it to the configuration of the \
                     inventory, or to the first line of the file"
                );
                return Err(ListedError::wrong(place, what));
            }
        }
        Ok(columns)
    }

    /// The columns of lines that have no names: those of `aws s3api list-objects-v2` as the documentation shows it.
    pub(crate) fn of_lines() -> Self {
        let mut columns = Self::default();
        let fields = [Field::Key, Field::Size, Field::ETag, Field::LastModified, Field::StorageClass];
        fields.iter().enumerate().for_each(|(at, field)| columns.0[*field as usize] = Some(at));
        columns
    }

    /// Where a field is.
    pub(crate) fn at(&self, field: Field) -> Option<usize> {
        self.0[field as usize]
    }
}
