//! Renaming a folder, inside the store.
//!
//! The store can't do this at once, so the order of the steps makes sure that nothing is lost:
//!
//! 1. The objects are listed, and the journal notes that they are being copied.
//! 2. Each is copied, and the copies are found in a listing ([`objects`]). If one is not, all copies are deleted.
//! 3. The journal notes that the old objects are being deleted. From here on, whoever finds the folder half moved
//!    finishes the move ([`recover`]).
//! 4. The names of the mount change ([`FolderNames`]).
//! 5. One old object is deleted. If the store refuses that, the names change back, and the copies are deleted.
//! 6. The other old objects are deleted, and the note is taken out of the journal.

mod moved;
mod objects;
mod recover;
mod rename;

pub use self::moved::{MoveError, Moved};
pub use self::recover::Sides;
pub(crate) use self::recover::recover;
pub use self::rename::{BegunRename, FolderNames, FolderRename};
