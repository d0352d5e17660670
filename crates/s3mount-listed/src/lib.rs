//! The names of a bucket from a list that somebody else has made, such as an S3 Inventory.
//!
//! - [`Names`]: how an index of a list is found, or built: [`List`] says where the list is, [`Shelf`] where indexes are;
//! - [`Index`]: a file with all names in order, and what the list says of each. It answers LISTs and HEADs;
//! - [`ListedClient`]: a client that asks the index for names, and the store for bytes.
//!
//! The rooms: `lists` reads lists, row by row; `build` sorts rows into an index; `file` is the index on the disk;
//! `shelf` keeps indexes for later mounts. Memory is bounded, whatever the length of the list: rows that are out of
//! order are sorted in runs on the disk, and an index is read block by block.
//!
//! Nothing here waits for the network but [`List`], which may lie in a bucket.

mod build;
mod client;
mod error;
mod file;
mod lists;
mod names;
mod shelf;

pub use client::ListedClient;
pub use error::ListedError;
pub use file::index::{Index, is_index};
pub use lists::place::List;
pub use names::{Named, Names};
pub use shelf::Shelf;
