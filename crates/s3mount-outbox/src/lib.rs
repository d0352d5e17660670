//! Files that wait on a disk of this machine until the store has them.
//!
//! A mount with write-behind answers a `close` once the [`Outbox`] has the bytes of the file, and what is to become of
//! them: its *entry*. The upload follows, and then the entry is done. A daemon that is killed, or a machine that loses its
//! power, leaves its entries on the disk, and the next daemon goes on with them.
//!
//! - [`record`](mod@record): the form of what is written;
//! - [`disk`](mod@disk): where it is written, a folder or a simulated disk;
//! - [`scan`](mod@scan): the records of a file, and damage between them;
//! - [`replay`](mod@replay): what a disk has, record by record;
//! - [`outbox`](mod@outbox): entries that come, change and go;
//! - [`state`](mod@state): what is known of them, and what the disk was told;
//! - [`room`](mod@room): new files for records, and old ones that are emptied.
//!
//! **What is durable when.** [`Outbox::put`] returns once its entry survives a power cut. All else (a file has another
//! name, the store has it, it has failed) is written at once, so that it survives the death of the process, and survives a
//! power cut once [`Outbox::commit`] returns. A record is never durable before one that was written earlier.

mod disk;
mod entry;
mod kept;
mod outbox;
mod record;
mod replay;
mod room;
mod scan;
mod segments;
mod state;
#[cfg(test)]
mod tests;

pub use disk::{FolderDisk, OutboxDisk, SegmentFile, SimulatedDisk};
pub use entry::{Entry, EntryId, Mark};
pub use kept::{Kept, KeptBytes, Waiting};
pub use outbox::{Limits, Outbox, OutboxError, OutboxMetrics};
pub use replay::{Damage, Looked, look};
