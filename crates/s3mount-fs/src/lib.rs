//! The read-only filesystem, without FUSE: names, inodes, handles, listings, errno.
//!
//! [`Filesystem`] answers what a kernel asks, in plain types. Metadata operations are futures that
//! are ready at once when what they need is known; [`Filesystem::read`] takes a reply and never
//! waits. `docs/SEMANTICS.md` states what users may rely on.
//!
//! - [`names`]: which keys can be file names, and what a LIST page says of a directory;
//! - [`inode`]: the inodes that the kernel knows, and those that it is to forget. A file's inode stands for
//!   one *version* (key and ETag), so what the kernel caches for an inode never changes;
//! - [`control`]: the hidden folder `.s3mount`, with what the daemon tells of itself;
//! - [`metadata`]: what stands for a name, from memory or by asking;
//! - [`listing`]: open directories;
//! - [`lister`]: the pages of one directory, listed side by side;
//! - [`split`]: the pieces that it is cut into, and [`scale`], which guesses where;
//! - [`pace`]: how many LISTs the store bears that nobody waits for yet;
//! - [`snapshot`]: what listings have told of directories, packed, with its age;
//! - [`gate`]: few look-ups of one directory ask the store at a time;
//! - [`hints`]: what readers say they will read, and what of it is here or on its way;
//! - [`order`]: files, or directories, that are opened in the order of their names;
//! - [`direct`]: large files that are opened around the kernel's page cache;
//! - [`map_reads`]: random reads of a map, told by the shape of the kernel's READs;
//! - [`map_table`]: the files that are read so, and their kinds;
//! - [`walk`]: directories that are listed one after another;
//! - [`store`]: LIST with retries and a deadline.
//!
//! **Lock order:** the order's lock before the snapshots', the walks' before the open directories'; no
//! other two locks of this crate are held at once, and none across a request.

mod config;
mod control;
mod direct;
mod error;
mod filesystem;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod hints;
mod inode;
mod lister;
mod listing;
mod map_reads;
mod map_table;
mod metadata;
mod metrics;
mod names;
mod order;
mod pace;
mod scale;
mod snapshot;
mod split;
mod store;
mod successors;
mod walk;

pub use config::{FsConfig, MetadataTtl, PageCacheBytes};
pub use direct::Reason;
pub use error::FsError;
pub use filesystem::{DirPage, Entry, Filesystem, INODE_BYTES, Opened};
pub use inode::{Attr, FileKind, InodeNo, KnownName, ROOT};
pub use metrics::FsMetrics;
