//! The use history that all processes of a cache share, in two files: the [ageing](crate::disk::evict::ageing), and the
//! [ghosts](crate::disk::evict::ghosts).
//!
//! A use is only put into a list when it happens. The housekeeper writes the list to the files, under the lock of the
//! first. So a use costs no I/O, and other processes know of it a second later.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::evict::ageing::encoding::ENCODED_BYTES;
use crate::disk::evict::ageing::{Ageing, Use};
use crate::disk::evict::ghosts::{self, Bucket, Place, Seen};
use crate::disk::evict::usage::{Locked, SharedFile, read_exact};
use crate::disk::layout::Layout;

/// When this many uses wait, they are written to the files at once, before the next second.
pub(crate) const BATCH: usize = 256;

/// At most this many uses wait. Further ones are not counted: that happens while the disk hangs.
const MAX_WAITING: usize = 8192;

/// A use of a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) place: Place,
    pub(crate) at: Duration,
    /// The version's last use before this one, from its file, if it is here.
    pub(crate) before: Option<Duration>,
}

impl Note {
    /// Notes the use in the ghosts' bucket, and classifies it by what the bucket knew.
    pub(crate) fn in_bucket(self, bucket: &mut Bucket, quick: Duration) -> Option<Use> {
        let was_here = self.before.is_some();
        match (ghosts::note(bucket, self.place, self.at, quick), self.before) {
            (Seen::Before { at, quick }, _) => {
                Some(Use::Again { after: self.at.saturating_sub(at), quick, was_here })
            }
            (Seen::Never, Some(before)) => {
                Some(Use::Again { after: self.at.saturating_sub(before), quick: 0, was_here })
            }
            (Seen::Never, None) => Some(Use::First),
            (Seen::Unknown, _) => None,
        }
    }
}

/// The uses of the objects of one cache directory.
#[derive(Debug)]
pub(crate) struct UseHistory {
    file: SharedFile,
    ghosts: PathBuf,
    waiting: Mutex<Vec<Note>>,
    /// The contents of the file at the last exchange.
    known: Mutex<Ageing>,
}

impl UseHistory {
    pub(crate) fn open(layout: &Layout) -> io::Result<Self> {
        let history = Self {
            file: SharedFile::open(&layout.pace())?,
            ghosts: layout.ghosts(),
            waiting: Mutex::default(),
            known: Mutex::default(),
        };
        {
            let file = history.file.lock()?;
            let mut ageing = load(&file)?;
            ageing.begin();
            history.save(&file, ageing)?;
        }
        Ok(history)
    }

    /// Switches to the file of a directory that has replaced the former one.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        self.file.open_again()
    }

    /// Notes a use. Returns whether enough uses wait to write them to the files.
    pub(crate) fn note(&self, note: Note) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_WAITING {
            waiting.push(note);
        }
        waiting.len() == BATCH
    }

    /// The ageing as this process knows it.
    pub(crate) fn ageing(&self) -> MutexGuard<'_, Ageing> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the waiting uses to the files, and takes over those of other processes. Returns whether the jobs have
    /// just changed.
    pub(crate) fn exchange(&self) -> io::Result<bool> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let file = self.file.lock()?;
        let mut ageing = load(&file)?;
        if waiting.is_empty() {
            return Ok(self.remember(ageing));
        }
        let ghosts = SharedFile::open(&self.ghosts)?;
        let ghosts = ghosts.lock()?;
        for note in waiting {
            let (mut bucket, offset) = ([0; size_of::<Bucket>()], note.place.offset());
            if !read_exact(&ghosts, &mut bucket, offset)? {
                bucket = [0; size_of::<Bucket>()];
            }
            let before = bucket;
            let used = note.in_bucket(&mut bucket, ageing.quick());
            if bucket != before {
                ghosts.write_all_at(&bucket, offset)?;
            }
            if let Some(used) = used {
                ageing.note(used, note.at);
            }
        }
        self.save(&file, ageing)
    }

    fn save(&self, file: &Locked<'_>, ageing: Ageing) -> io::Result<bool> {
        file.write_all_at(&ageing.encode(), 0)?;
        Ok(self.remember(ageing))
    }

    fn remember(&self, ageing: Ageing) -> bool {
        let mut known = self.ageing();
        let has_just_changed = ageing.has_changed() && !known.has_changed();
        *known = ageing;
        has_just_changed
    }
}

/// Reads the ageing from the file. A damaged file counts as empty.
pub(crate) fn load(file: &std::fs::File) -> io::Result<Ageing> {
    let mut bytes = [0; ENCODED_BYTES];
    let ageing = if read_exact(file, &mut bytes, 0)? { Ageing::decode(&bytes) } else { None };
    Ok(ageing.unwrap_or_default())
}
