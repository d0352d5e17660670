//! The folder `.s3mount` at the root of a mount: what the daemon tells of itself, as files.
//!
//! It is not listed, and only the owner of the mount can look into it.

use crate::attr::FileKind;
use crate::numbers::InodeNo;

/// Name of the folder.
pub(crate) const NAME: &str = ".s3mount";

/// What is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The folder itself.
    Folder,
    /// The metrics, as JSON.
    Stats,
    /// The metrics, as Prometheus text.
    Metrics,
    /// Takes hints of what will be read.
    Prefetch,
}

/// The files of the folder.
pub(crate) const FILES: [(&str, Control); 3] =
    [("metrics", Control::Metrics), ("prefetch", Control::Prefetch), ("stats", Control::Stats)];

impl Control {
    /// What the number stands for, if it is one of these.
    pub(crate) fn of(ino: InodeNo) -> Option<Self> {
        [Self::Folder, Self::Stats, Self::Metrics, Self::Prefetch]
            .into_iter()
            .find(|control| control.ino() == ino)
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
        })
    }

    pub(crate) fn kind(self) -> FileKind {
        match self {
            Control::Folder => FileKind::Directory,
            Control::Stats | Control::Metrics | Control::Prefetch => FileKind::File,
        }
    }

    /// Permission bits: the owner's alone.
    pub(crate) fn mode(self) -> u16 {
        match self {
            Control::Folder => 0o500,
            Control::Stats | Control::Metrics => 0o400,
            Control::Prefetch => 0o200,
        }
    }
}
