//! Files that are being written, and how they become objects.
//!
//! A [`Draft`] is one file that is being written: its bytes, and what the store has of them. [`Writer`] makes
//! drafts, and bounds what all of them take together. A [`Copier`] copies whole objects inside the store, and a
//! [`Writer::rename_folder`] moves all objects below a prefix. A [`Journal`] says what is under way, and by it a [`Recovery`]
//! puts in order what a daemon that was killed has left. Nothing here knows of directories or of FUSE.

mod beside;
mod config;
mod copier;
mod copies;
mod draft;
mod error;
mod evict;
mod extents;
mod folder;
mod journal;
mod kept;
mod metrics;
mod old_keys;
mod orphans;
mod part_layout;
mod part_states;
mod pinned;
mod ranges;
mod reclaim;
mod recovery;
mod shared;
mod spool;
mod spool_disk;
mod state;
mod store;
mod writer;
mod written;

pub use beside::forget_bytes;
pub use config::{SpoolConfig, WriteConfig};
pub use copier::{Copied, Copier, CopyConfig, CopyError, CopyOrder, Encrypted, Progress, Proof, Source};
pub use draft::Draft;
pub use draft::rest::Whole;
pub use error::WriteError;
pub use folder::{BegunRename, FolderNames, FolderRename, MoveError, Moved, Sides};
pub use journal::left::{FoundJournal, Left};
pub use journal::{Intent, Journal, Noted, Owner, Phase, Record, StoreAddress};
pub use kept::{KeptChanges, KeptDraft, RestingDraft};
pub use metrics::WriteMetrics;
pub use ranges::Ranges;
pub use recovery::{Recovered, Recovery};
pub use spool_disk::{MemoryDisk, RestingBytes, SpoolBytes, SpoolDisk, kept_file};
pub use state::Published;
pub use writer::Writer;
pub use written::WrittenNotes;
