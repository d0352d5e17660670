//! What the daemons of a place leave to the next one.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SeekFrom, fstat, memfd_create, seek};
use s3mount_fs::{Handover, SpoolKeeper};
use s3mount_write::{MemoryDisk, SpoolBytes, SpoolDisk as _};
use tempfile::TempDir;

use crate::draw::Draw;
use crate::store::client::MountClient;

/// What the daemons of a place have left.
#[derive(Debug)]
pub(super) struct Left {
    /// What the kernel was given.
    pub(super) state: File,
    /// Where the daemon that lives keeps its journal.
    pub(super) journals: TempDir,
    /// How many daemons have died.
    pub(super) deaths: usize,
    /// What was under way when they died.
    pub(super) intents: Vec<s3mount_write::Record>,
    /// Their clients.
    pub(super) clients: Vec<Arc<MountClient>>,
    /// The files of the spool that are kept, if there is one.
    pub(super) spool: Option<Arc<KeptFiles>>,
}

/// Files of the spool that are kept for the next daemon.
#[derive(Debug, Default)]
pub(super) struct KeptFiles(Mutex<HashMap<u64, Arc<dyn SpoolBytes>>>);

impl KeptFiles {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<dyn SpoolBytes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same files with the same bytes: the tasks of a daemon that is dead here may yet write to the old ones.
    pub(super) fn copied(&self) -> Self {
        let copy = |file: &Arc<dyn SpoolBytes>| {
            let copy = MemoryDisk.file().expect("memory for a file");
            let mut bytes = vec![0; file.taken_bytes() as usize];
            file.read(0, &mut bytes).expect("a file in memory");
            copy.write(0, &bytes).expect("a file in memory");
            copy
        };
        let copies = self.lock().iter().map(|(number, file)| (*number, copy(file))).collect();
        Self(Mutex::new(copies))
    }

    /// All of them.
    pub(super) fn all(&self) -> HashMap<u64, Arc<dyn SpoolBytes>> {
        self.lock().clone()
    }
}

impl SpoolKeeper for KeptFiles {
    fn keep(&self, number: u64, file: &Arc<dyn SpoolBytes>) -> io::Result<()> {
        self.lock().insert(number, file.clone());
        Ok(())
    }

    fn leave(&self, number: u64) {
        self.lock().remove(&number);
    }
}

pub(super) fn seed(draw: &Draw) -> [u8; 16] {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&draw.next().to_le_bytes());
    seed[8..].copy_from_slice(&draw.next().to_le_bytes());
    seed
}

fn new_state() -> File {
    memfd_create("state", MemfdFlags::CLOEXEC).expect("memory for a file").into()
}

/// A file in memory with the same bytes: the tasks of a daemon that is dead here may yet write to the old one.
pub(super) fn copied(state: &File) -> File {
    let copy = new_state();
    let len = fstat(state).expect("a file in memory").st_size as u64;
    copy.set_len(len).expect("a file in memory");
    let mut at = 0;
    while let Ok(start) = seek(state, SeekFrom::Data(at)) {
        at = seek(state, SeekFrom::Hole(start)).unwrap_or(len);
        let mut bytes = vec![0; (at - start) as usize];
        state.read_exact_at(&mut bytes, start).expect("a file in memory");
        copy.write_all_at(&bytes, start).expect("a file in memory");
    }
    copy
}

impl Left {
    /// The notes of the first daemon.
    pub(super) fn begin(draw: &Draw, has_spool: bool) -> (Handover, Self) {
        let state = new_state();
        let kept = state.try_clone().expect("a descriptor");
        let handover = Handover::create(state, seed(draw)).expect("memory for a file");
        let spool = has_spool.then(|| Arc::new(KeptFiles::default()));
        if let Some(files) = &spool {
            handover.keep_files(files.clone());
        }
        let journals = TempDir::new().expect("a folder");
        let (intents, clients) = (Vec::new(), Vec::new());
        (handover, Self { state: kept, journals, deaths: 0, intents, clients, spool })
    }

    pub(super) fn journals(&self) -> &Path {
        self.journals.path()
    }
}
