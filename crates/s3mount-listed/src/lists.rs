//! Reads lists: which files they consist of, and the rows in these.
//!
//! - [`place`]: where a list is, and how its files are brought here;
//! - [`table`]: the files of a list, each with its form; [`manifest`] reads those of an S3 Inventory;
//! - [`text`] and [`columnar`]: the rows of a CSV or TSV, and of a Parquet file;
//! - [`columns`] and [`row`]: which column is what, and what makes a row right.

pub(crate) mod columnar;
pub(crate) mod columns;
pub(crate) mod manifest;
pub(crate) mod place;
pub(crate) mod row;
pub(crate) mod table;
pub(crate) mod text;

#[cfg(test)]
mod tests;
