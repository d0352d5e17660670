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
//! - [`page`]: the packed page of one LIST request;
//! - [`snapshots`]: the pages of each directory, with their ages;
//! - [`kept`]: the listings that are kept on a disk;
//! - [`lookup_limit`]: few look-ups in one directory send LIST requests at a time;
//! - [`lookup_allowance`]: fewer do so while the whole directory is being listed;
//! - [`timed_out`]: look-ups that have timed out a moment ago;
//! - [`list_requests`]: sends LIST requests, with retries and a deadline;
//! - [`pace`]: how many LIST requests may be in flight before anybody waits for them;
//! - [`lister`]: lists the pages of one directory side by side;
//! - [`split`]: cuts the listing of a directory into pieces;
//! - [`gathering`]: sorts the names of a directory whose store lists in no order;
//! - [`shared`]: programs that list one directory at the same time share one listing;
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
mod gathering;
mod kept;
mod list_requests;
mod listener;
mod lister;
mod lookup_allowance;
mod lookup_limit;
mod name;
mod namespace;
mod overlay;
mod pace;
mod page;
mod shared;
mod snapshots;
mod split;
mod sync;
pub mod time;
mod timed_out;

pub use config::NamesConfig;
pub use error::NamesError;
pub use fact::{Asked, Fact};
pub use kept::KeptNames;
pub use list_requests::ListRequests;
pub use listener::ChangeListener;
pub use name::{
    File, Hidden, NAME_MAX, NameKind, Named, NamedDraft, Stored, Target, is_file_name, split_key,
};
pub use namespace::Namespace;
pub use namespace::changes::{MovedFile, StoredIn};
pub use overlay::SetDraft;
pub use overlay::folders::Emptying;
pub use page::Page;
pub use shared::{ListingReader, Taken};
