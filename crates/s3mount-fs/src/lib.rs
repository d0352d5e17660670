//! The filesystem, without FUSE: inodes, handles, open folders, errno.
//!
//! [`Filesystem`] answers the requests of a kernel, in plain types. A metadata operation is a future. It is ready at
//! once if memory holds the answer. [`Filesystem::read`] takes a reply function and never waits. `docs/SEMANTICS.md`
//! states what users may rely on.
//!
//! - [`tree`]: the inodes that the kernel knows, names that are being changed, and folders that are being renamed. A
//!   file's inode refers to one *version* (key and ETag), so what the kernel caches for an inode never changes;
//! - [`open`]: handles, the readers of open files, and whether the kernel reads them by itself;
//! - [`control`]: the hidden folder `.s3mount`, with files about the daemon itself;
//! - [`names`]: the names of the bucket, from `s3mount-names`;
//! - [`directory`]: open directories, and the listings ahead of a walk;
//! - [`ahead`]: predicting which files and directories are read next;
//! - [`page_cache`]: the files' use of the kernel's page cache;
//! - [`attributes`]: owner, mode and time of files, on mounts that keep them;
//! - [`drafts`]: files that are being written;
//! - [`writes`]: the means and the rights to write, and the requests;
//! - [`handover`]: what the next daemon is told, should this one end before its mount;
//! - [`filesystem`]: the operations that the kernel requests.
//!
//! **Lock order:** a sequence detector's lock comes before the locks of `s3mount-names`. The walks' lock comes before
//! the lock of the open directories. The handover's lock comes after any other. No other two locks of this crate are held at once. No lock is held
//! across a request.

mod ahead;
mod attr;
mod attributes;
mod behind;
mod config;
mod control;
mod directory;
mod drafts;
mod error;
mod filesystem;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod metrics;
mod names;
mod numbers;
mod open;
mod page_cache;
mod sync;
mod tree;
mod writes;

pub use attr::{Attr, Entry, FileKind};
pub use attributes::stored::{AttrChange, NewTime, StoredAttr};
pub use behind::family_of;
pub use config::{FsConfig, MetadataTtl, PageCacheBytes};
pub use control::OWNER_ONLY;
pub use control::callers::Caller;
pub use control::keep_file::WarmRequest;
pub use directory::DirEntry;
pub use drafts::cuts::Cutting;
pub use error::FsError;
pub use filesystem::opening::Opening;
pub use filesystem::{Filesystem, OpenMode, Opened};
pub use handover::{Handover, HandoverError, Left, SpoolKeeper};
pub use metrics::{FsMetrics, OpenedAs};
pub use numbers::{DirOffset, FileHandle, InodeNo, ROOT, RequestId};
pub use page_cache::direct::Reason;
pub use s3mount_names::Told;
pub use tree::inode::{INODE_BYTES, KnownName};
pub use writes::{Closer, Deferred, DeferredWrite, Opener, Place, Rights, WriteOpen, Writes};
