//! The filesystem, without FUSE: inodes, handles, open folders, errno.
//!
//! [`Filesystem`] answers the requests of a kernel, in plain types. A metadata operation is a future. It
//! is ready at once if memory holds what it needs. [`Filesystem::read`] takes a reply and never waits.
//! `docs/SEMANTICS.md` states what users may rely on.
//!
//! - [`inode`]: the inodes that the kernel knows. A file's inode stands for one *version* (key and ETag), so
//!   what the kernel caches for an inode never changes;
//! - [`control`]: the hidden folder `.s3mount`, with files about the daemon itself;
//! - [`names`]: what a name stands for, from `s3mount-names`;
//! - [`directory`]: open directories, and the listings ahead of a walk;
//! - [`ahead`]: which files and directories will be read next;
//! - [`page_cache`]: how files use the kernel's page cache;
//! - [`passthrough`]: whether the kernel reads files by itself;
//! - [`attributes`]: owner, mode and time of files, where they are kept;
//! - [`modes`]: who may run a file, where they are not;
//! - [`drafts`]: files that are being written;
//! - [`tree_locks`]: names that are being changed, and folders that are being renamed;
//! - [`writes`]: the means and the rights to write, and what is asked for;
//! - [`filesystem`]: the operations that the kernel requests.
//!
//! **Lock order:** a sequence detector's lock comes before the locks of `s3mount-names`. The walks' lock comes before
//! the lock of the open directories. No other two locks of this crate are held at once. No lock is held
//! across a request.

mod ahead;
mod attr;
mod attributes;
mod callers;
mod config;
mod control;
mod directory;
mod drafts;
mod error;
mod filesystem;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handle_table;
mod inode;
mod keep_writer;
mod logs;
mod metrics;
mod modes;
mod names;
mod numbers;
mod open_clock;
mod page_cache;
mod passthrough;
mod reader_slot;
mod sync;
mod tree_locks;
mod writes;

pub use attr::{Attr, Entry, FileKind};
pub use attributes::stored::{AttrChange, NewTime, StoredAttr};
pub use callers::Caller;
pub use config::{FsConfig, MetadataTtl, PageCacheBytes};
pub use control::OWNER_ONLY;
pub use directory::DirEntry;
pub use error::FsError;
pub use filesystem::cuts::Cutting;
pub use filesystem::opening::Opening;
pub use filesystem::{Filesystem, OpenMode, Opened};
pub use inode::{INODE_BYTES, KnownName};
pub use keep_writer::ToKeep;
pub use metrics::{FsMetrics, OpenedAs};
pub use numbers::{DirOffset, FileHandle, InodeNo, ROOT};
pub use page_cache::direct::Reason;
pub use writes::{Closer, Later, LaterWrite, Opener, Place, Rights, WriteOpen, Writes};
