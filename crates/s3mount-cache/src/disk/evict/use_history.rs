//! What all processes that share a cache know of the uses of its objects, in two files: the
//! [ageing](crate::disk::evict::ageing), and the [ghosts](crate::disk::evict::ghosts).
//!
//! A use is only put into a list when it happens. The housekeeper brings the list into the files, under the
//! lock of the first. So a use costs no I/O, and what one process learns the others know a second later.

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

/// So many uses are brought into the files at once, before the next second.
pub(crate) const BATCH: usize = 256;

/// At most so many uses wait. Further ones are not counted: that happens while the disk hangs.
const MAX_WAITING: usize = 8192;

/// A use of a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) place: Place,
    pub(crate) at: Duration,
    /// When the version was used before, if it is here, as its file says.
    pub(crate) before: Option<Duration>,
}

impl Note {
    /// What the use says, after it was noted in the ghosts' bucket.
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
    /// What the file said last.
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

    /// Goes on with the file of a directory that has taken the place of the one before.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        self.file.open_again()
    }

    /// Takes note of a use. Returns whether so many wait that they should be brought into the files.
    pub(crate) fn note(&self, note: Note) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_WAITING {
            waiting.push(note);
        }
        waiting.len() == BATCH
    }

    /// What is known.
    pub(crate) fn ageing(&self) -> MutexGuard<'_, Ageing> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the uses that wait into the files, and takes what others have brought. Returns whether the jobs
    /// have just changed.
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

/// What the file says. A file that is damaged says nothing.
pub(crate) fn load(file: &std::fs::File) -> io::Result<Ageing> {
    let mut bytes = [0; ENCODED_BYTES];
    let ageing = if read_exact(file, &mut bytes, 0)? { Ageing::decode(&bytes) } else { None };
    Ok(ageing.unwrap_or_default())
}
