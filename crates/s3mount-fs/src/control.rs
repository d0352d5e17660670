//! The folder `.s3mount` at the root of a mount. Its files show the state of the daemon.
//!
//! No listing shows the folder or its files. The owner and the mode of each file decide who may open it.

pub(crate) mod callers;
pub(crate) mod instruments;
pub(crate) mod keep_file;
pub(crate) mod memory_file;

use crate::attr::FileKind;
use crate::numbers::InodeNo;

/// The name of the folder.
pub(crate) const NAME: &str = ".s3mount";

/// The error at the control socket, which has no file modes, for users who may not open a file.
pub const OWNER_ONLY: &str = "only the user who mounted may ask for this, and root";

/// The folder, and its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The folder itself.
    Folder,
    /// Shows the metrics as JSON.
    Stats,
    /// Shows the metrics as Prometheus text.
    Metrics,
    /// Takes hints: programs write which files they will read.
    Prefetch,
    /// Takes the paths of files to warm in the disk cache.
    Keep,
    /// Shows the files that wait in the outbox, as JSON, and has them uploaded now by whatever is written to it. It is
    /// there only with write-behind.
    Pending,
    /// Shows the memory as JSON, and takes its limit. It is there only if the limit may change.
    Memory,
    /// Shows the streams and the waiting calls, as JSON.
    Streams,
    /// Passes on events while it is open, as lines of JSON.
    Events,
    /// Passes on the changes of which the store tells, as lines of JSON. It is there only if the store does.
    Changes,
}

/// Which files of the folder only some mounts have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Controls {
    /// The limit on the memory may change.
    pub(crate) has_memory: bool,
    /// The store tells of changes.
    pub(crate) has_changes: bool,
    /// Closed files wait in an outbox.
    pub(crate) has_pending: bool,
}

impl Controls {
    /// Whether the mount has the file.
    pub(crate) fn has(self, file: Control) -> bool {
        match file {
            Control::Memory => self.has_memory,
            Control::Changes => self.has_changes,
            Control::Pending => self.has_pending,
            _ => true,
        }
    }
}

/// The files of the folder.
pub(crate) const FILES: [(&str, Control); 9] = [
    ("changes", Control::Changes),
    ("events", Control::Events),
    ("keep", Control::Keep),
    ("memory", Control::Memory),
    ("metrics", Control::Metrics),
    ("pending", Control::Pending),
    ("prefetch", Control::Prefetch),
    ("stats", Control::Stats),
    ("streams", Control::Streams),
];

impl Control {
    /// The folder or file of this inode number.
    pub(crate) fn of(ino: InodeNo) -> Option<Self> {
        let files = FILES.into_iter().map(|(_, file)| file);
        files.chain([Self::Folder]).find(|control| control.ino() == ino)
    }

    /// The file of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        FILES.into_iter().find(|(file, _)| *file == name).map(|(_, control)| control)
    }

    pub(crate) fn ino(self) -> InodeNo {
        InodeNo(match self {
            Control::Folder => 2,
            Control::Stats => 3,
            Control::Prefetch => 4,
            Control::Metrics => 5,
            Control::Keep => 6,
            Control::Streams => 7,
            Control::Events => 8,
            Control::Memory => 9,
            Control::Changes => 10,
            Control::Pending => 11,
        })
    }

    pub(crate) fn kind(self) -> FileKind {
        match self {
            Control::Folder => FileKind::Directory,
            _ => FileKind::File,
        }
    }

    /// Whether the file belongs to the user who mounted: it shows what each user does, or changes what all have. The
    /// others belong to the owner of all files.
    pub(crate) fn is_private(self) -> bool {
        matches!(self, Control::Streams | Control::Events | Control::Memory | Control::Pending)
    }

    /// Permission bits. Users other than the owner can only pass through the folder, to their own files.
    pub(crate) fn mode(self) -> u16 {
        match self {
            Control::Folder => 0o511,
            Control::Stats | Control::Metrics | Control::Streams | Control::Events | Control::Changes => {
                0o400
            }
            Control::Prefetch | Control::Keep => 0o200,
            Control::Memory | Control::Pending => 0o600,
        }
    }
}
