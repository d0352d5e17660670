//! A disk that refuses at a moment that a test has drawn.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::disk::SimulatedDisk;
use crate::{OutboxDisk, SegmentFile};

/// When the disk refuses: after so many calls, so many of them.
#[derive(Debug, Default)]
struct Faults {
    after: usize,
    times: usize,
    /// Whether it has refused since the last [`FaultyDisk::heal`].
    has_failed: bool,
}

/// A simulated disk with faults.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultyDisk {
    pub(super) disk: Arc<SimulatedDisk>,
    faults: Arc<Mutex<Faults>>,
    unreadable: Arc<Mutex<Range<u64>>>,
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn SegmentFile>,
    faults: Arc<Mutex<Faults>>,
    /// Whether a sync has failed. A second one succeeds, and makes nothing durable, as that of a Linux kernel.
    is_lost: Mutex<bool>,
    unreadable: Arc<Mutex<Range<u64>>>,
}

impl Faults {
    fn check(&mut self) -> io::Result<()> {
        if self.times > 0 && self.after == 0 {
            self.times -= 1;
            self.has_failed = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.after = self.after.saturating_sub(1);
        Ok(())
    }
}

fn check(faults: &Mutex<Faults>) -> io::Result<()> {
    faults.lock().unwrap_or_else(PoisonError::into_inner).check()
}

impl FaultyDisk {
    pub(super) fn fail(&self, after: usize, times: usize) {
        let mut faults = self.faults.lock().expect("no panic");
        (faults.after, faults.times) = (after, times);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.faults.lock().expect("no panic").has_failed
    }

    /// The disk after the daemon has died: what it has, and no faults.
    pub(super) fn left(&self) -> Self {
        Self { disk: Arc::new(self.disk.left()), ..Self::default() }
    }

    /// Has no byte of these be read, of any file.
    pub(super) fn make_unreadable(&self, bytes: Range<u64>) {
        *self.unreadable.lock().expect("no panic") = bytes;
    }

    /// Has other bytes lie there, and stay.
    pub(super) fn overwrite(&self, number: u64, offset: u64, bytes: &[u8]) {
        let file = self.disk.open(number).expect("it is there");
        file.write(offset, bytes).and_then(|()| file.sync()).expect("no faults");
    }

    /// How many bytes its files have.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = self.disk.segments().expect("no faults");
        let bytes = |number: u64| self.disk.open(number).and_then(|file| file.bytes()).expect("no faults");
        numbers.into_iter().map(bytes).sum()
    }

    fn faulty(&self, file: Arc<dyn SegmentFile>) -> Arc<dyn SegmentFile> {
        Arc::new(FaultyFile {
            file,
            faults: self.faults.clone(),
            is_lost: Mutex::default(),
            unreadable: self.unreadable.clone(),
        })
    }
}

impl OutboxDisk for FaultyDisk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.disk.segments()
    }

    fn create(&self, number: u64, bytes: u64) -> io::Result<Arc<dyn SegmentFile>> {
        check(&self.faults)?;
        Ok(self.faulty(self.disk.create(number, bytes)?))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(self.faulty(self.disk.open(number)?))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        check(&self.faults)?;
        self.disk.remove(number)
    }

    fn set_aside(&self, number: u64) -> io::Result<()> {
        check(&self.faults)?;
        self.disk.set_aside(number)
    }

    fn damaged(&self) -> io::Result<Vec<u64>> {
        self.disk.damaged()
    }

    fn salt(&self) -> u32 {
        self.disk.salt()
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl SegmentFile for FaultyFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let checked = check(&self.faults);
        let len = if checked.is_ok() { bytes.len() } else { bytes.len() / 2 };
        self.file.write(offset, &bytes[..len])?;
        checked
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let unreadable = self.unreadable.lock().expect("no panic");
        if offset < unreadable.end && offset + into.len() as u64 > unreadable.start {
            return Err(Errno::IO.into());
        }
        self.file.read(offset, into)
    }

    fn sync(&self) -> io::Result<()> {
        let mut is_lost = self.is_lost.lock().expect("no panic");
        let checked = check(&self.faults);
        *is_lost |= checked.is_err();
        if *is_lost { checked } else { self.file.sync() }
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        check(&self.faults)?;
        self.file.shorten(bytes)
    }
}
