//! What the names of a bucket stand for. Memory answers, or a request to the store.
//!
//! A [`Namespace`] has the pages of listings, by directory. A page shows *all* names between two keys, so it
//! also tells which names are absent. What no page answers, a look-up asks the store for, by a LIST whose page begins
//! at the name. What this mount has changed lies above that, because listings show it late or never. Whoever shows
//! names to a kernel hears from a [`ChangeListener`] which of them have changed.
//!
//! A name stands for a directory, for a version of an object, or for a file that is being written. Nothing is known
//! here of such a file, except whether its name stands for it ([`NamedDraft`]), and nothing of inodes.
//!
//! - [`name`]: which keys can be file names, and what a name stands for;
//! - [`fact`]: what is known of a name, and as of when;
//! - [`pages`]: the pages of listings, in memory and on the disk;
//! - [`list`]: lists directories, page by page;
//! - [`lookup`]: which look-ups ask the store, and when;
//! - [`overlay`]: what this mount has changed;
//! - [`listener`]: who is told that names have changed;
//! - [`namespace`]: all of that together.
//!
//! **Lock order:** the lister that readers share comes before all other locks, and is the only one that is held across
//! a request. No other two locks of this crate are held at once. While the overlay's lock is held, a draft may be asked,
//! made or ended.

mod config;
mod error;
mod fact;
mod list;
mod listener;
mod lookup;
mod name;
mod namespace;
mod overlay;
mod pages;
mod sync;
pub mod time;

pub use config::NamesConfig;
pub use error::NamesError;
pub use fact::{Asked, Fact};
pub use list::requests::ListRequests;
pub use list::shared::{ListingReader, Taken};
pub use listener::ChangeListener;
pub use name::{
    File, Hidden, NAME_MAX, NameKind, Named, NamedDraft, Stored, Target, is_file_name, split_key,
};
pub use namespace::Namespace;
pub use namespace::changes::{MovedFile, StoredIn};
pub use overlay::SetDraft;
pub use overlay::folders::Emptying;
pub use pages::listing_cache::ListingCache;
pub use pages::page::Page;
