//! Files that this mount is writing.
//!
//! A [`DraftFile`] is a draft and its place in the tree. It begins when a file is created, or when an object is
//! opened for writing. It ends when the last writer has closed it: then its bytes are a version of an object. The file
//! keeps one inode all the while.
//!
//! - [`life`]: the steps that a draft takes in each state;
//! - [`underway`]: the READs that wait for WRITEs;
//! - [`writers`]: the handles that have changed it since its last publication.
//!
//! **Lock order:** a name's place in the tree (`tree_locks.rs`), then the turn of a draft, then the overlay, then the
//! inodes, then the state of a draft.

mod attributes;
pub(crate) mod cuts;
pub(crate) mod detached;
mod kept;
pub(crate) mod life;
pub(crate) mod logs;
pub(crate) mod underway;
mod waiting;
pub(crate) mod writers;

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::ObjectId;
use s3mount_write::Draft;

use self::life::{Life, Step, Verdict};
use self::underway::Underway;
use self::writers::{Close, WriterId, Writers};
use crate::attr::{Attr, FileKind};
use crate::attributes::of_draft::DraftAttr;
use crate::behind::InOutbox;
use crate::numbers::InodeNo;
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use s3mount_names::time::{millis, time};
use s3mount_names::{File, NamedDraft};

/// The lock of a draft: while it is held, no other caller changes the draft, its name, or what its name refers to.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct DraftFile {
    state: Mutex<DraftFileState>,
    /// Callers that write, cut, copy, rename, unlink, publish or end the draft take turns: first come, first served.
    /// Readers take no turn: they wait only for the WRITEs to their pages.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Its inode, or 0.
    ino: AtomicU64,
    /// Whether it may have changes that are not published, as the next daemon is told.
    is_changing: AtomicBool,
    /// Whether its changes are noted for the next daemon, and whether that can go on with what has changed since it was
    /// published last.
    is_noted: AtomicBool,
    is_kept: AtomicBool,
    /// The waiting WRITEs.
    pub(crate) underway: Arc<Underway>,
}

#[derive(Debug)]
struct DraftFileState {
    draft: Arc<Draft>,
    prefix: Arc<str>,
    name: Arc<str>,
    /// The handles that may write to the draft.
    writers: Writers,
    /// The version that the store has under this name, as far as is known: an older one, or one published from this
    /// draft.
    object: Option<ObjectId>,
    /// The version of another file whose name the draft was given. The store has it under this name until the draft is
    /// published.
    replaced: Option<ObjectId>,
    end: End,
    /// Its length when its bytes were given up, for a caller that still uses its inode while the name gets another one.
    last_size: Option<u64>,
    /// Its attributes, if the mount keeps them.
    attr: Option<DraftAttr>,
    /// Whether a handle was opened to append.
    is_log: bool,
    /// Whether a handle was opened that writes around the kernel's page cache.
    was_direct: bool,
    /// Whether a task will publish it after a delay.
    is_delayed: bool,
    /// Its entry in the outbox, if it has one.
    waiting: Option<InOutbox>,
}

/// Whether a draft has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// The draft is a version now, to which its name refers.
    Sealed,
    /// Its name is gone. Its handles stay open.
    Unlinked,
    /// It could not be published. Its name refers to the version in the store.
    Failed,
    /// It can't become an object any more, no handle has it open, and its bytes are dropped.
    GivenUp,
}

impl DraftFileState {
    fn life(&self) -> Life {
        match self.end {
            End::Sealed => Life::Sealed,
            End::Unlinked => Life::Unlinked,
            End::Failed => Life::Failed,
            End::GivenUp => Life::GivenUp,
            End::NotYet if self.draft.has_failed() => Life::Failed,
            End::NotYet if self.draft.is_dirty() => Life::Dirty,
            End::NotYet => Life::Clean,
        }
    }
}

/// Compares the identity of the files, not their contents.
impl PartialEq for DraftFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for DraftFile {}

impl NamedDraft for DraftFile {
    fn has_name(&self) -> bool {
        !matches!(self.life(), Life::Failed | Life::GivenUp)
    }
}

impl DraftFile {
    /// A draft at `name` in the directory `prefix`, where the store may have an `object`.
    pub(crate) fn new(
        draft: Arc<Draft>,
        prefix: &Arc<str>,
        name: &str,
        object: Option<ObjectId>,
    ) -> Arc<Self> {
        let state = Mutex::new(DraftFileState {
            draft,
            prefix: prefix.clone(),
            name: Arc::from(name),
            writers: Writers::default(),
            object,
            replaced: None,
            end: End::NotYet,
            last_size: None,
            attr: None,
            is_log: false,
            was_direct: false,
            is_delayed: false,
            waiting: None,
        });
        Arc::new(Self {
            state,
            turn: Arc::default(),
            ino: AtomicU64::new(0),
            is_changing: AtomicBool::new(false),
            is_noted: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            underway: Underway::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, DraftFileState> {
        lock(&self.state)
    }

    /// Waits for the draft's turn. No other caller changes the draft or its name until the turn is dropped.
    pub(crate) async fn turn(&self) -> Turn {
        self.turn.clone().lock_owned().await
    }

    /// The turn, if no caller holds it or waits for it.
    pub(crate) fn try_turn(&self) -> Option<Turn> {
        self.turn.clone().try_lock_owned().ok()
    }

    /// The state of its life.
    pub(crate) fn life(&self) -> Life {
        self.lock().life()
    }

    /// Whether the draft takes a step.
    pub(crate) fn verdict(&self, step: Step) -> Verdict {
        self.life().verdict(step)
    }

    /// Its inode, if it has got one. The kernel may have forgotten it.
    pub(crate) fn ino(&self) -> Option<InodeNo> {
        Some(self.ino.load(Ordering::Relaxed)).filter(|ino| *ino != 0).map(InodeNo)
    }

    /// Notes its inode.
    pub(crate) fn note_ino(&self, ino: InodeNo) {
        self.ino.store(ino.0, Ordering::Relaxed);
    }

    /// The draft itself.
    pub(crate) fn draft(&self) -> Arc<Draft> {
        self.lock().draft.clone()
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        let state = self.lock();
        state.last_size.unwrap_or_else(|| state.draft.size())
    }

    /// Its attributes as the inode `ino`. Size and time change with each write, so the kernel may not cache them.
    pub(crate) fn attr(&self, ino: InodeNo) -> Attr {
        let draft = self.draft();
        // A published version has its time in milliseconds: publication must not change the time.
        let (size, mtime) = (self.size(), time(millis(draft.modified())));
        let (kind, ttl) = (FileKind::File, Duration::ZERO);
        let attr = Attr::new(ino, kind, (size, mtime), ttl);
        let attr = Attr { is_unlinked: self.is_unlinked(), ..attr };
        self.stored_attr(&draft).map_or(attr, |stored| stored.shown_in(attr))
    }

    /// The prefix of its directory, and its name there.
    pub(crate) fn place(&self) -> (Arc<str>, Arc<str>) {
        let state = self.lock();
        (state.prefix.clone(), state.name.clone())
    }

    /// The version that the store has under this name, as far as is known.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        self.lock().object.clone()
    }

    /// The version that the store has under this name, as far as is known: of this file, or of one that the draft
    /// replaces.
    pub(crate) fn stored(&self) -> Option<ObjectId> {
        let state = self.lock();
        state.object.clone().or_else(|| state.replaced.clone())
    }

    /// The version of another file that the store has under this name until the draft is published.
    pub(crate) fn replaced(&self) -> Option<ObjectId> {
        self.lock().replaced.clone()
    }

    /// Notes that the draft was published as `object`.
    pub(crate) fn note_object(&self, object: &ObjectId) {
        let mut state = self.lock();
        (state.object, state.replaced) = (Some(object.clone()), None);
    }

    /// Makes the file a draft again, if its name still refers to the version that it has become, `newest`.
    pub(crate) fn revive(&self, newest: &ObjectId) -> bool {
        let mut state = self.lock();
        let is_same = state.end == End::Sealed && state.object.as_ref() == Some(newest);
        if is_same {
            state.end = End::NotYet;
        }
        is_same
    }

    /// Renames the draft. Its bytes may have moved there as an `object`. If not, the store may have another file there,
    /// which is `replaced`.
    pub(crate) fn rename(
        &self,
        prefix: &Arc<str>,
        name: &str,
        object: Option<&ObjectId>,
        replaced: Option<ObjectId>,
    ) {
        let mut state = self.lock();
        (state.prefix, state.name) = (prefix.clone(), Arc::from(name));
        state.replaced = replaced.filter(|_| object.is_none());
        if let Some(object) = object {
            state.object = Some(object.clone());
        }
    }

    /// The store has no version of it any more.
    pub(crate) fn forget_object(&self) {
        let mut state = self.lock();
        (state.object, state.replaced) = (None, None);
    }

    /// Counts one more handle that may write, or has made the file, opened by the thread `opener`; one that
    /// `leaves_bytes` changes no existing byte. Returns `None` if the name refers to a version, or to another file, by
    /// now.
    pub(crate) fn add_writer(&self, leaves_bytes: bool, opener: u32) -> Option<WriterId> {
        let mut state = self.lock();
        if matches!(state.end, End::Sealed | End::Failed | End::GivenUp) {
            return None;
        }
        Some(state.writers.add(leaves_bytes, opener))
    }

    /// Removes a handle that may write. Returns whether it was the last.
    pub(crate) fn remove_writer(&self, writer: WriterId) -> bool {
        let mut state = self.lock();
        state.writers.remove(writer);
        state.writers.is_empty()
    }

    /// Notes that a handle has made the file, or emptied it.
    pub(crate) fn note_emptied(&self, writer: WriterId) {
        self.lock().writers.note_emptied(writer);
    }

    /// Notes that a thread writes through a handle.
    pub(crate) fn note_write(&self, writer: WriterId, thread: u32, appends: bool) {
        self.lock().writers.note_write(writer, thread, appends);
    }

    /// What to do when a process closes a descriptor of a handle; without a `writer`, of one that may not write.
    /// `is_of` returns whether a thread is of this process, and `is_last` whether the process has no other descriptor
    /// of the file.
    pub(crate) fn close(
        &self,
        writer: Option<WriterId>,
        is_of: impl Fn(u32) -> bool,
        is_last: impl FnOnce() -> bool,
    ) -> Close {
        self.lock().writers.close(writer, is_of, is_last)
    }

    /// Whether a handle that was opened to append has changed no existing byte.
    pub(crate) fn has_only_appended(&self, writer: WriterId) -> bool {
        self.lock().writers.has_only_appended(writer)
    }

    /// Notes that a handle is closed, and nothing is left to publish.
    pub(crate) fn end_changes(&self, writer: Option<WriterId>) {
        self.lock().writers.end_changes(writer);
    }

    /// Notes that a program's close succeeds before the file is published.
    pub(crate) fn note_closed(&self, writer: Option<WriterId>) {
        self.lock().writers.note_closed(writer);
    }

    /// Whether a program's close has succeeded, and its changes are not published.
    pub(crate) fn has_closed(&self) -> bool {
        self.lock().writers.has_closed()
    }

    /// Whether a handle has changes that were not closed, and may have changed existing bytes.
    pub(crate) fn is_half_written(&self) -> bool {
        self.lock().writers.is_half_written()
    }

    /// Notes that all changes are published.
    pub(crate) fn note_published(&self, object: &ObjectId) {
        let mut state = self.lock();
        (state.object, state.replaced) = (Some(object.clone()), None);
        state.writers.note_published();
        drop(state);
        self.is_kept.store(self.is_noted.load(Ordering::Acquire), Ordering::Release);
    }

    /// Notes whether a change is about to begin, or all are published, in the draft's turn. Returns what it was before.
    pub(crate) fn set_changing(&self, is_changing: bool) -> bool {
        self.is_changing.swap(is_changing, Ordering::AcqRel)
    }

    /// Whether it has no change since it began, or was published last.
    pub(crate) fn is_saved(&self) -> bool {
        !self.is_changing.load(Ordering::Acquire)
    }

    /// The version that has all of the draft's bytes, and no change is about to begin.
    pub(crate) fn whole_version(&self) -> Option<File> {
        if !self.is_saved() || self.life() != Life::Clean {
            return None;
        }
        let draft = self.draft();
        let (object, size) = draft.version()?;
        Some(File { object, size, mtime: draft.modified() })
    }

    /// Notes that a handle was opened to append.
    pub(crate) fn note_log(&self) {
        self.lock().is_log = true;
    }

    /// Whether a handle was opened to append.
    pub(crate) fn is_log(&self) -> bool {
        self.lock().is_log
    }

    /// Notes that a handle writes around the kernel's page cache.
    pub(crate) fn note_direct(&self) {
        self.lock().was_direct = true;
    }

    /// Whether any handle has written around the kernel's page cache.
    pub(crate) fn was_direct(&self) -> bool {
        self.lock().was_direct
    }

    /// Notes that a task will publish the draft after a delay. Returns false if there is such a task.
    pub(crate) fn begin_delay(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_delayed, true)
    }

    /// Notes that the task publishes the draft now.
    pub(crate) fn end_delay(&self) {
        self.lock().is_delayed = false;
    }

    /// Ends the draft, unless it has writers. Returns whether it has ended just now.
    pub(crate) fn seal(&self) -> bool {
        let mut state = self.lock();
        let is_over = state.end == End::NotYet && state.writers.is_empty() && !state.draft.is_dirty();
        if is_over {
            state.end = End::Sealed;
        }
        is_over
    }

    /// Ends the draft because its name is gone, or refers to another file.
    pub(crate) fn unlink(&self) {
        let mut state = self.lock();
        state.end = End::Unlinked;
        state.draft.forget_late();
    }

    /// Ends the draft because it can't be published, unless it has ended. Returns whether it has ended just now.
    pub(crate) fn fail(&self) -> bool {
        let mut state = self.lock();
        let is_new = state.end == End::NotYet;
        if is_new {
            state.end = End::Failed;
        }
        is_new
    }

    /// Calls `open`, unless the draft's bytes are dropped. They are not dropped meanwhile.
    pub(crate) fn open<T>(&self, open: impl FnOnce() -> T) -> Option<T> {
        let state = self.lock();
        (state.end != End::GivenUp).then(open)
    }

    /// Gives the draft up, unless it has writers or is about to get one, or `is_open` returns that a handle has it
    /// open. Returns whether to drop its bytes.
    pub(crate) fn give_up(&self, is_open: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let is_over = state.life().verdict(Step::Discard) == Verdict::Go;
        let is_unused = is_over && state.writers.is_empty() && !is_open();
        if is_unused {
            state.last_size = Some(state.draft.size());
            state.end = End::GivenUp;
        }
        is_unused
    }

    /// Whether `name` in the directory `prefix` still refers to the draft. Call it in the draft's turn.
    pub(crate) fn has_place(&self, prefix: &str, name: &str) -> bool {
        let is_there = {
            let state = self.lock();
            (&*state.prefix, &*state.name) == (prefix, name)
        };
        is_there && self.verdict(Step::Name) == Verdict::Go
    }

    /// Whether the draft has become a version.
    pub(crate) fn is_sealed(&self) -> bool {
        self.lock().end == End::Sealed
    }

    /// Whether the draft has no name any more.
    pub(crate) fn is_unlinked(&self) -> bool {
        matches!(self.lock().end, End::Unlinked | End::GivenUp)
    }

    /// Whether the draft has writers.
    pub(crate) fn has_writers(&self) -> bool {
        !self.lock().writers.is_empty()
    }

    /// Whether the draft has no writers, and nothing is left to publish.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.writers.is_empty() && !state.draft.is_dirty()
    }
}
