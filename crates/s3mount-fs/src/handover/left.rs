//! What the daemon before has left.

use std::collections::HashMap;
use std::sync::Arc;

use s3mount_write::SpoolBytes;

use super::record::{OpenAs, Record};
use crate::numbers::InodeNo;

/// What the daemon before has left.
#[derive(Debug, Default)]
pub struct Left {
    pub(crate) records: Vec<Record>,
    /// Files of the spool, by their numbers.
    pub(crate) files: HashMap<u64, Arc<dyn SpoolBytes>>,
}

impl Left {
    /// What the session with the kernel has agreed on.
    pub fn session(&self) -> Option<&[u8]> {
        self.records.iter().find_map(|record| match record {
            Record::Session(bytes) => Some(&bytes[..]),
            _ => None,
        })
    }

    /// The settings that the first daemon has read from a file.
    pub fn settings(&self) -> Option<&[u8]> {
        self.records.iter().find_map(|record| match record {
            Record::Settings(bytes) => Some(&bytes[..]),
            _ => None,
        })
    }

    /// The region of the bucket.
    pub fn region(&self) -> Option<&str> {
        self.records.iter().find_map(|record| match record {
            Record::Region(region) => Some(&**region),
            _ => None,
        })
    }

    /// The open files that the kernel reads by itself, each with the number of the file that it reads, and the inodes
    /// that are open through the daemon, once for each open file.
    pub fn opened(&self) -> impl Iterator<Item = (InodeNo, Option<u32>)> {
        self.records.iter().filter_map(|record| match record {
            Record::Open(_, open) => match open.as_what {
                OpenAs::Passthrough(backing) => backing.map(|id| (open.ino, Some(id))),
                OpenAs::Object { .. } | OpenAs::Draft(_) | OpenAs::Lost => Some((open.ino, None)),
                OpenAs::Own => None,
            },
            _ => None,
        })
    }

    /// Adds the files of the spool that were kept, by their numbers.
    #[must_use]
    pub fn with_files(self, files: HashMap<u64, Arc<dyn SpoolBytes>>) -> Self {
        Self { files, ..self }
    }
}
