//! Keeps listings while their pages come. One thread writes them all: a program may hold any number of folders open
//! that it has read in part.
//!
//! A listing is silently given up if the disk can't keep up, or if many others have continued since its last page.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use s3mount_cache::{NameStore, NamesWriter};

use crate::sync::{AtomicU64, Ordering};

/// How many pages may wait to be written: some 6 MiB.
const MOST_WAITING: usize = 128;

/// The most listings under way, each with an open file.
const MOST_OPEN: usize = 64;

/// The thread that writes listings.
#[derive(Debug)]
pub(super) struct Writer {
    steps: SyncSender<Step>,
    /// The number of the next listing.
    next: AtomicU64,
}

/// A listing that is being kept. Its pages come one after another.
#[derive(Debug)]
pub(super) struct Recording {
    steps: SyncSender<Step>,
    listing: u64,
    directory: Arc<str>,
    stage: RecordingStage,
}

/// The state of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingStage {
    New,
    Begun,
    /// The recording is complete, or was given up.
    Ended,
}

/// The next step of a listing.
#[derive(Debug)]
enum Step {
    Keep { listing: u64, directory: Arc<str>, is_first: bool, upto: Option<Box<str>>, page: Vec<u8> },
    GiveUp { listing: u64 },
}

impl Writer {
    /// Starts the thread. It ends when this and all recordings were dropped.
    pub(super) fn start(store: NameStore) -> Self {
        let (steps, come) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("keep-names".to_owned());
        if let Err(error) = thread.spawn(move || work(&store, &come)) {
            tracing::warn!(%error, "no listing is kept");
        }
        Self { steps, next: AtomicU64::new(0) }
    }

    /// Begins to keep the listing of `directory`.
    pub(super) fn record(&self, directory: &Arc<str>) -> Recording {
        let listing = self.next.fetch_add(1, Ordering::Relaxed);
        Recording {
            steps: self.steps.clone(),
            listing,
            directory: directory.clone(),
            stage: RecordingStage::New,
        }
    }
}

impl Recording {
    /// Whether the next page is kept.
    pub(super) fn goes_on(&self) -> bool {
        self.stage != RecordingStage::Ended
    }

    /// Keeps the next page, which covers all keys up to `upto`, or up to the end of the directory.
    pub(super) fn keep(&mut self, upto: Option<Box<str>>, page: Vec<u8>) {
        let Self { listing, ref directory, stage, .. } = *self;
        let (is_first, is_last) = (stage == RecordingStage::New, upto.is_none());
        let step = Step::Keep { listing, directory: directory.clone(), is_first, upto, page };
        if self.steps.try_send(step).is_err() {
            self.give_up();
        } else {
            self.stage = if is_last { RecordingStage::Ended } else { RecordingStage::Begun };
        }
    }

    fn give_up(&mut self) {
        if self.stage == RecordingStage::Begun {
            // If the queue is full, the file is closed when others need its place.
            let _ = self.steps.try_send(Step::GiveUp { listing: self.listing });
        }
        self.stage = RecordingStage::Ended;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does one step after another. The listings under way are in the order of their last pages.
fn work(store: &NameStore, come: &Receiver<Step>) {
    let mut open: VecDeque<(u64, NamesWriter)> = VecDeque::new();
    while let Ok(step) = come.recv() {
        let (Step::Keep { listing, .. } | Step::GiveUp { listing }) = step;
        let at = open.iter().position(|(number, _)| *number == listing);
        let begun = at.and_then(|at| open.remove(at)).map(|(_, writer)| writer);
        let Step::Keep { directory, is_first, upto, page, .. } = step else { continue };
        let writer = match begun {
            Some(writer) => Ok(writer),
            None if is_first => store.write(&directory),
            // The listing was dropped to make room.
            None => continue,
        };
        let kept = writer.and_then(|mut writer| {
            writer.push(upto.as_deref(), &page)?;
            if upto.is_none() { writer.finish().map(|()| None) } else { Ok(Some(writer)) }
        });
        match kept {
            Ok(None) => {}
            Ok(Some(writer)) => {
                open.push_back((listing, writer));
                if open.len() > MOST_OPEN {
                    open.pop_front();
                }
            }
            Err(error) => tracing::debug!(%error, %directory, "the listing can't be kept"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use s3mount_cache::{DiskCache, DiskConfig, NameStore};
    use tempfile::TempDir;

    use super::{AtomicU64, MOST_OPEN, Receiver, Recording, Step, Writer, work};

    fn store(folder: &TempDir) -> NameStore {
        let config = DiskConfig {
            dirs: vec![folder.path().join("cache")],
            max_bytes: Some(1 << 30),
            source: "s3://bucket".to_owned(),
            queue_bytes: 1 << 20,
            ..DiskConfig::default()
        };
        DiskCache::open(&config).expect("a folder of this test").names().expect("it keeps names")
    }

    /// A writer whose thread does not run yet.
    fn writer(most_waiting: usize) -> (Writer, Receiver<Step>) {
        let (steps, come) = sync_channel(most_waiting);
        (Writer { steps, next: AtomicU64::new(0) }, come)
    }

    fn directory(number: usize) -> Arc<str> {
        format!("d{number}/").into()
    }

    fn begin(recording: &mut Recording) {
        recording.keep(Some("m".into()), b"one".to_vec());
    }

    fn end(recording: &mut Recording) {
        recording.keep(None, b"two".to_vec());
    }

    /// The numbers of the directories that are kept.
    fn kept(store: &NameStore, directories: usize) -> Vec<usize> {
        let is_kept = |number: &usize| {
            let file = store.open(&directory(*number)).expect("no damage");
            file.is_some_and(|file| {
                assert_eq!(file.page(0).expect("a page"), b"one");
                assert_eq!(file.len(), 2);
                true
            })
        };
        (0..directories).filter(is_kept).collect()
    }

    #[test]
    fn many_listings_are_kept_at_once_and_those_make_room_that_rest() {
        let folder = TempDir::new().expect("a folder");
        let (store, (writer, come), most) = (store(&folder), writer(1000), MOST_OPEN + 2);
        let mut all: Vec<_> = (0..most).map(|number| writer.record(&directory(number))).collect();
        all.iter_mut().for_each(begin);
        all.iter_mut().for_each(end);
        drop((all, writer));
        work(&store, &come);
        assert_eq!(kept(&store, most), (2..most).collect::<Vec<_>>());
    }

    #[test]
    fn a_listing_that_is_given_up_makes_room() {
        let folder = TempDir::new().expect("a folder");
        let (store, (writer, come)) = (store(&folder), writer(1000));
        let mut first = writer.record(&directory(0));
        begin(&mut first);
        for number in 1..2 * MOST_OPEN {
            begin(&mut writer.record(&directory(number)));
        }
        end(&mut first);
        assert!(!first.goes_on());
        drop((first, writer));
        work(&store, &come);
        assert_eq!(kept(&store, 2 * MOST_OPEN), [0]);
    }

    #[test]
    fn a_listing_without_room_for_a_page_is_not_kept() {
        let folder = TempDir::new().expect("a folder");
        let (store, (writer, come)) = (store(&folder), writer(1));
        let mut first = writer.record(&directory(0));
        begin(&mut first);
        assert!(first.goes_on());
        end(&mut first);
        assert!(!first.goes_on());
        drop((first, writer));
        work(&store, &come);
        assert!(kept(&store, 1).is_empty());
    }
}
