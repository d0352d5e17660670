//! The read-only filesystem, without FUSE: names, inodes, handles, listings, errno.
//!
//! [`Filesystem`] answers what a kernel asks, in plain types. Metadata operations are futures that
//! are ready at once when what they need is known; [`Filesystem::read`] takes a reply and never
//! waits. `docs/SEMANTICS.md` states what users may rely on.
//!
//! - [`inode`]: the inodes that the kernel knows, and those that it is to forget. A file's inode stands for
//!   one *version* (key and ETag), so what the kernel caches for an inode never changes;
//! - [`control`]: the hidden folder `.s3mount`, with what the daemon tells of itself;
//! - [`namespace`]: what stands for a name, from memory or by asking the store with LIST requests;
//! - [`directory`]: open directories, and the listings ahead of a walk;
//! - [`ahead`]: which files and directories are wanted next;
//! - [`page_cache`]: how files use the kernel's page cache;
//! - [`filesystem`]: the operations that the kernel asks for.
//!
//! **Lock order:** the order's lock before the snapshots', the walks' before the open directories'; no
//! other two locks of this crate are held at once, and none across a request.

mod ahead;
mod attr;
mod config;
mod control;
mod directory;
mod error;
mod filesystem;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handle_table;
mod inode;
mod metrics;
mod namespace;
mod numbers;
mod open_clock;
mod page_cache;
mod sync;
mod time;

pub use attr::{Attr, Entry, FileKind};
pub use config::{FsConfig, MetadataTtl, PageCacheBytes};
pub use directory::DirEntry;
pub use error::FsError;
pub use filesystem::{Filesystem, OpenMode, Opened};
pub use inode::{INODE_BYTES, KnownName};
pub use metrics::FsMetrics;
pub use numbers::{DirOffset, FileHandle, InodeNo, ROOT};
pub use page_cache::direct::Reason;
