//! Files that are being written, and how they become objects.
//!
//! A [`Draft`] is one file that is being written: its bytes, and what the store has of them. [`Writer`] makes
//! drafts, and bounds what all of them take together. Nothing here knows of directories or of FUSE.

mod config;
mod draft;
mod error;
mod names;
mod writer;

pub use config::{SpoolConfig, WriteConfig};
pub use draft::{Draft, Published};
pub use error::WriteError;
pub use names::{Guard, Properties};
pub use writer::Writer;
