//! The simulated store: one bucket, which each mount reaches by a client of its own.
//!
//! A request is done at one moment, which is drawn, and answered at a later one. In between, and before, other
//! requests are done. Some requests are refused, some are done and not answered, and some are done long after their
//! client has given them up. Each change of an object is noted, with who has done it.

pub mod client;
mod faults;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::FutureExt as _;
use s3mount_object::{ObjectClient as _, ObjectMeta, ObjectWriter as _, UserMetadata};
use s3mount_testkit::MemoryClient;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

pub use self::faults::{Fate, Faults};
use crate::draw::Draw;
use crate::ticks::Ticks;

/// Who has changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// A mount, by its number.
    Mount(usize),
    /// Somebody who uses no mount.
    Stranger,
}

/// What a key has held, and from when on.
#[derive(Clone, Debug)]
pub struct Version {
    /// The moment at which the store did it.
    pub tick: u64,
    /// Who has done it.
    pub by: By,
    /// The bytes; `None` for a deletion.
    pub bytes: Option<Bytes>,
    /// The ETag, with its quotes.
    pub etag: String,
    /// Whether the one who has replaced the version before had been told of it.
    pub saw_before: bool,
    /// The request that did it.
    pub operation: &'static str,
    /// Whether it was done late, where something else had been removed meanwhile.
    pub comes_back: bool,
}

/// A bucket in memory, and all that ever happened to it.
#[derive(Debug)]
pub struct SimStore {
    bucket: MemoryClient,
    draw: Draw,
    faults: Faults,
    ticks: Arc<Ticks>,
    started: Instant,
    page: u32,
    state: Mutex<StoreState>,
    /// Those who are told of changes.
    told: Mutex<Vec<UnboundedSender<Change>>>,
}

/// A change of which the store tells.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The ETag of what it holds now, without quotes, or nothing if it holds nothing.
    pub etag: Option<String>,
    /// Whether it was copied.
    pub is_copied: bool,
}

#[derive(Debug, Default)]
struct StoreState {
    versions: BTreeMap<String, Vec<Version>>,
    modified: BTreeMap<String, SystemTime>,
    /// The versions that a mount was told of, by key and ETag.
    seen: BTreeSet<(By, String, String)>,
    requests: BTreeMap<&'static str, u64>,
    sent: u64,
}

/// The length of the parts of what the stranger puts.
const PART_BYTES: u64 = 5 << 20;

/// The time of day at which each world begins: no clock of a machine is there yet.
pub const BEGIN: Duration = Duration::from_secs(4_000_000_000);

impl SimStore {
    /// An empty bucket, whose latencies and faults come from `seed`. Pages of listings have up to `page` entries.
    pub fn new(seed: u64, faults: Faults, page: u32, ticks: Arc<Ticks>) -> Arc<Self> {
        let bucket = MemoryClient::new();
        bucket.keep_part_checksums(PART_BYTES);
        if faults.refuses_conditions {
            bucket.refuse_conditions();
        }
        if faults.has_opaque_etags {
            bucket.give_opaque_etags();
        }
        Arc::new(Self {
            bucket,
            draw: Draw::new(seed),
            faults,
            ticks,
            started: Instant::now(),
            page,
            state: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// All changes from now on.
    pub fn hear(&self) -> UnboundedReceiver<Change> {
        let (tell, hear) = unbounded_channel();
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
        hear
    }

    /// Notes that a mount hears of a change.
    pub(crate) fn note_heard(&self, number: usize, change: &Change) {
        self.ticks.note(|| format!("        Mount({number}) hears of {}: {:?}", change.key, change.etag));
    }

    fn tell(&self, change: &Change) {
        for listener in self.told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // Whoever hears no more has ended.
            let _ = listener.send(change.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of day.
    pub fn now(&self) -> SystemTime {
        UNIX_EPOCH + BEGIN + Duration::from_secs(self.started.elapsed().as_secs())
    }

    /// Sets the shortest part that an upload may have, but for its last.
    pub fn take_parts_of(&self, bytes: u64) {
        self.bucket.set_min_part(bytes);
    }

    /// The stranger puts an object.
    pub fn put(&self, key: &str, bytes: Bytes) {
        self.change(By::Stranger, "PutObject", (key, false), |bucket| drop(bucket.put(key, bytes)));
    }

    /// The stranger deletes an object.
    pub fn delete(&self, key: &str) {
        self.change(By::Stranger, "DeleteObject", (key, false), |bucket| bucket.delete(key));
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.bucket.keys()
    }

    /// All bytes of an object.
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.head(key).map(|_| Bytes::from(self.bucket.stored(key).0))
    }

    /// The text of the user beside an object.
    pub fn metadata(&self, key: &str) -> Option<UserMetadata> {
        // The bucket in memory answers at once.
        let found = self.bucket.describe(key).now_or_never().and_then(Result::ok);
        found.map(|found| found.object.metadata)
    }

    /// What a key has held, the oldest first.
    pub fn versions(&self, key: &str) -> Vec<Version> {
        self.lock().versions.get(key).cloned().unwrap_or_default()
    }

    /// All keys that ever held something.
    pub fn ever(&self) -> Vec<String> {
        self.lock().versions.keys().cloned().collect()
    }

    /// The uploads that are neither complete nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.bucket.open_uploads().len()
    }

    /// Whether the store knows no conditions.
    pub fn refuses_conditions(&self) -> bool {
        self.faults.refuses_conditions
    }

    /// Whether all requests are answered as they should be.
    pub fn has_no_faults(&self) -> bool {
        self.faults.most == 0
    }

    /// How many requests of each operation came.
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.lock().requests.clone()
    }

    fn head(&self, key: &str) -> Option<ObjectMeta> {
        // The bucket in memory answers at once.
        self.bucket.head_object(key).now_or_never().and_then(Result::ok)
    }

    /// Does what may change the object at `key`, and notes what became of it; also if it makes the name anew that was
    /// removed since it was sent.
    fn change<T>(
        &self,
        by: By,
        operation: &'static str,
        (key, comes_back): (&str, bool),
        act: impl FnOnce(&MemoryClient) -> T,
    ) -> T {
        let before = self.head(key).map(|meta| meta.etag.as_str().to_owned());
        let is_copied = operation == "CopyObject";
        let beside = if is_copied { self.metadata(key) } else { None };
        let done = act(&self.bucket);
        let after = self.head(key).map(|meta| meta.etag.as_str().to_owned());
        // A copy of an object onto itself has other text beside it, and the same ETag.
        if before != after || (is_copied && beside != self.metadata(key)) {
            let now = self.now();
            self.lock().modified.insert(key.to_owned(), now);
            let etag = after.as_ref().map(|etag| etag.trim_matches('"').to_owned());
            self.tell(&Change { key: key.to_owned(), etag, is_copied });
        }
        if before != after {
            let bytes = self.bytes(key);
            let mut state = self.lock();
            let saw_before = before
                .as_ref()
                .is_none_or(|before| state.seen.contains(&(by, key.to_owned(), before.clone())));
            let etag = after.unwrap_or_default();
            state.seen.insert((by, key.to_owned(), etag.clone()));
            let comes_back = comes_back && bytes.is_some();
            let version =
                Version { tick: self.ticks.next(), by, bytes, etag, saw_before, operation, comes_back };
            state.versions.entry(key.to_owned()).or_default().push(version);
        }
        done
    }

    /// How often a key has changed.
    fn changes(&self, key: &str) -> usize {
        self.lock().versions.get(key).map_or(0, Vec::len)
    }

    /// Whether a request that was sent when its key had so many `changes` would do harm by now that no client can keep it
    /// from, because no condition of S3 says so: it would make an object where something was removed meanwhile, delete
    /// a version that has the same bytes as one before, or write to a file that is as empty as it was (promise 27). Such
    /// a request is not done here, unless it is to come back.
    fn is_twin(&self, operation: &str, key: &str, changes: usize) -> bool {
        let state = self.lock();
        let versions = state.versions.get(key).map_or(&[][..], Vec::as_slice);
        let Some((now, before)) = versions.split_last() else { return false };
        let was_so = || before.iter().any(|version| version.etag == now.etag);
        let is_empty = now.bytes.as_ref().is_some_and(Bytes::is_empty);
        let is_blind = || is_empty || (operation == "DeleteObject" && !self.faults.comes_back);
        let has_changed = versions.len() != changes;
        has_changed && ((now.bytes.is_none() && !self.may_come_back(key)) || (is_blind() && was_so()))
    }

    /// Whether something was removed since a key had so many `changes`.
    fn was_removed(&self, key: &str, changes: usize) -> bool {
        let state = self.lock();
        let last = state.versions.get(key).and_then(|versions| versions.get(changes..)?.last());
        last.is_some_and(|version| version.bytes.is_none())
    }

    /// Whether a name that was removed may come back. Folders may not: they would be there again with it.
    fn may_come_back(&self, key: &str) -> bool {
        self.faults.comes_back && !key.contains('/')
    }

    /// Whether a name was there at some time between two moments, because a late request has made it anew.
    pub fn has_come_back(&self, key: &str, from: u64, to: u64) -> bool {
        self.may_come_back(key)
            && live(&self.versions(key), from, to).iter().any(|version| version.comes_back)
    }

    /// One mount knows all that another was told.
    pub(crate) fn pass_on(&self, from: usize, to: usize) {
        let mut state = self.lock();
        let seen = state.seen.iter().filter(|(by, ..)| *by == By::Mount(from));
        let seen: Vec<_> = seen.map(|(_, key, etag)| (By::Mount(to), key.clone(), etag.clone())).collect();
        state.seen.extend(seen);
    }

    /// One mount knows all that those were told that `are_before` it.
    pub(crate) fn pass_all_on(&self, are_before: impl Fn(usize) -> bool, to: usize) {
        let mounts: BTreeSet<usize> = {
            let state = self.lock();
            let mounts = state.seen.iter().filter_map(|(by, ..)| match by {
                By::Mount(number) => Some(*number),
                _ => None,
            });
            mounts.filter(|number| are_before(*number)).collect()
        };
        mounts.into_iter().for_each(|from| self.pass_on(from, to));
    }

    fn note_seen(&self, by: By, key: &str, etag: &str) {
        self.lock().seen.insert((by, key.to_owned(), etag.to_owned()));
    }

    /// Says when an object was written, by the clock of this world.
    fn dated(&self, key: &str, mut meta: ObjectMeta) -> ObjectMeta {
        let begin = UNIX_EPOCH + BEGIN;
        meta.last_modified = self.lock().modified.get(key).copied().unwrap_or(begin);
        meta
    }
}

/// The versions that were there at some time between two moments.
pub fn live(versions: &[Version], from: u64, to: u64) -> Vec<&Version> {
    let is_live = |(at, version): &(usize, &Version)| {
        version.tick <= to && versions.get(at + 1).is_none_or(|next| next.tick >= from)
    };
    versions.iter().enumerate().filter(is_live).map(|(_, version)| version).collect()
}
