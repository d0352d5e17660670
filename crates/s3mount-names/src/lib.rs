//! Looks up the names of a bucket, in memory or by a request to the store.
//!
//! A [`Namespace`] has the pages of listings, by directory. A page shows *all* names between two keys, so it also shows
//! which names are absent. A look-up that no page answers asks the store, by a LIST whose page begins at the name. This
//! mount's own changes override the pages, because listings show them late or never. A [`ChangeListener`] tells the
//! file system, which shows names to a kernel, which of them have changed.
//!
//! A name refers to a directory, to a version of an object, or to a draft. This crate knows of a draft only whether its
//! name refers to it ([`NamedDraft`]), and knows no inodes.
//!
//! - [`name`]: which keys can be file names, and what a name refers to;
//! - [`fact`]: facts about names, each as of a moment;
//! - [`pages`]: the pages of listings, in memory and on the disk;
//! - [`list`]: lists directories, page by page;
//! - [`lookup`]: limits for look-ups that ask the store;
//! - [`overlay`]: the changes of this mount;
//! - [`recently_told`]: the names of which the store has told something lately;
//! - [`listener`]: the callback for changes of names;
//! - [`namespace`]: combines all of these.
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
mod recently_told;
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
pub use namespace::told::Told;
pub use overlay::SetDraft;
pub use overlay::folder_listener::FolderNote;
pub use overlay::folders::Emptying;
pub use pages::listing_cache::ListingCache;
pub use pages::page::Page;
