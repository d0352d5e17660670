//! Files that this mount is writing.
//!
//! A [`DraftFile`] is a draft and its place in the tree. It begins when a file is created, or when an object is
//! opened for writing. It ends when the last writer has closed it: then what was written is a version of an
//! object, and look-ups give that version's inode. Whoever still reads the draft keeps its inode.

mod attributes;

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::ObjectId;
use s3mount_write::Draft;

use crate::attr::{Attr, FileKind};
use crate::attributes::of_draft::DraftAttr;
use crate::numbers::InodeNo;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// Nobody else appends to a file while this lives.
pub(crate) type AppendTurn = tokio::sync::OwnedMutexGuard<()>;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct DraftFile {
    state: Mutex<State>,
    /// Who publishes the draft, or changes what its name stands for, does so alone.
    naming: tokio::sync::Mutex<()>,
    /// Who appends does so alone. The kernel sees to that for the programs that have one inode open, and a draft may
    /// have several.
    appending: Arc<tokio::sync::Mutex<()>>,
    /// Its newest inode, or 0.
    ino: AtomicU64,
}

#[derive(Debug)]
struct State {
    draft: Arc<Draft>,
    prefix: Arc<str>,
    name: Arc<str>,
    /// How many handles may write to it.
    writers: usize,
    /// How many of these change no byte that is there.
    appenders: usize,
    /// How many callers were told to look its name up again, and to open it then. The kernel does so only once, so
    /// the name stands for the draft until they have come.
    expected: usize,
    /// Whether any handle was ever opened for writing.
    was_opened: bool,
    /// The thread that has written last.
    last_writer: Option<u32>,
    /// The version that the store has under this name, as far as is known: an older one, or what was published of
    /// this draft.
    object: Option<ObjectId>,
    end: End,
    /// Its attributes, if the mount keeps them.
    attr: Option<DraftAttr>,
    /// Whether a handle was opened to append.
    is_log: bool,
    /// Whether a task publishes it in a while.
    is_delayed: bool,
}

/// Whether a draft has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// Its name stands for a version now.
    Sealed,
    /// Its name is gone. Its handles go on.
    Unlinked,
}

/// The identity of the file, not its content, is what is compared.
impl PartialEq for DraftFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for DraftFile {}

impl DraftFile {
    /// A draft at `name` in the directory `prefix`, where the store may have an `object`.
    pub(crate) fn new(
        draft: Arc<Draft>,
        prefix: &Arc<str>,
        name: &str,
        object: Option<ObjectId>,
    ) -> Arc<Self> {
        let state = Mutex::new(State {
            draft,
            prefix: prefix.clone(),
            name: Arc::from(name),
            writers: 0,
            appenders: 0,
            expected: 0,
            was_opened: false,
            last_writer: None,
            object,
            end: End::NotYet,
            attr: None,
            is_log: false,
            is_delayed: false,
        });
        Arc::new(Self {
            state,
            naming: tokio::sync::Mutex::default(),
            appending: Arc::default(),
            ino: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until nobody publishes the draft, renames it or deletes it. Nobody does so until the guard is dropped.
    pub(crate) async fn hold_name(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.naming.lock().await
    }

    /// Its newest inode, if it ever had one. The kernel may have forgotten it.
    pub(crate) fn ino(&self) -> Option<InodeNo> {
        Some(self.ino.load(Ordering::Relaxed)).filter(|ino| *ino != 0).map(InodeNo)
    }

    /// Notes its newest inode.
    pub(crate) fn note_ino(&self, ino: InodeNo) {
        self.ino.store(ino.0, Ordering::Relaxed);
    }

    /// A turn to append, if nobody else appends. The end of the file is where it is until the turn is dropped.
    pub(crate) fn try_append_turn(&self) -> Option<AppendTurn> {
        self.appending.clone().try_lock_owned().ok()
    }

    /// As [`try_append_turn`](Self::try_append_turn), but waits for who appends.
    pub(crate) async fn append_turn(&self) -> AppendTurn {
        self.appending.clone().lock_owned().await
    }

    /// The draft itself.
    pub(crate) fn draft(&self) -> Arc<Draft> {
        self.lock().draft.clone()
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.draft().size()
    }

    /// Its attributes as the inode `ino`. Size and time change with each write, so the kernel may not believe them.
    pub(crate) fn attr(&self, ino: InodeNo) -> Attr {
        let draft = self.draft();
        let (size, mtime) = (draft.size(), draft.modified());
        let (kind, ttl) = (FileKind::File, Duration::ZERO);
        let attr = Attr { ino, kind, size, mtime, mode: None, uid: None, gid: None, ttl };
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

    /// Notes that the draft was published as `object`.
    pub(crate) fn note_object(&self, object: &ObjectId) {
        self.lock().object = Some(object.clone());
    }

    /// Makes a draft of it again after it has become the version that its name stands for still: `newest`.
    pub(crate) fn revive(&self, newest: &ObjectId) -> bool {
        let mut state = self.lock();
        let is_same = state.end == End::Sealed && state.object.as_ref() == Some(newest);
        if is_same {
            state.end = End::NotYet;
        }
        is_same
    }

    /// Gives it another name. Its bytes may have moved there as an `object`.
    pub(crate) fn rename(&self, prefix: &Arc<str>, name: &str, object: Option<&ObjectId>) {
        let mut state = self.lock();
        (state.prefix, state.name) = (prefix.clone(), Arc::from(name));
        if let Some(object) = object {
            state.object = Some(object.clone());
        }
    }

    /// Counts one more handle that may write; one that `appends` changes no byte that is there. Returns false if
    /// the name stands for a version by now.
    pub(crate) fn add_writer(&self, appends: bool) -> bool {
        let mut state = self.lock();
        if state.end == End::Sealed {
            return false;
        }
        state.writers += 1;
        state.appenders += usize::from(appends);
        state.expected = state.expected.saturating_sub(1);
        state.was_opened = true;
        true
    }

    /// Counts one handle less that may write, which `appends` or not. Returns whether it was the last.
    pub(crate) fn remove_writer(&self, appends: bool) -> bool {
        let mut state = self.lock();
        state.writers = state.writers.saturating_sub(1);
        state.appenders = state.appenders.saturating_sub(usize::from(appends));
        state.writers == 0
    }

    /// Notes that a thread has written.
    pub(crate) fn note_writer(&self, thread: u32) {
        self.lock().last_writer = Some(thread);
    }

    /// The thread that has written last.
    pub(crate) fn last_writer(&self) -> Option<u32> {
        self.lock().last_writer
    }

    /// A caller is told to look its name up again. Returns false if the name stands for a version by now.
    pub(crate) fn expect_writer(&self) -> bool {
        let mut state = self.lock();
        if state.end == End::Sealed {
            return false;
        }
        state.expected += 1;
        true
    }

    /// Whether callers were told to look its name up again who have not come yet.
    pub(crate) fn is_expecting(&self) -> bool {
        self.lock().expected > 0
    }

    /// Who has not come by now does not come any more.
    pub(crate) fn expect_nobody(&self) {
        self.lock().expected = 0;
    }

    /// Ends a draft that nobody has opened for writing. Returns whether it has ended just now.
    pub(crate) fn seal_unopened(&self) -> bool {
        if self.lock().was_opened {
            return false;
        }
        self.expect_nobody();
        self.seal()
    }

    /// Notes that a handle was opened to append.
    pub(crate) fn note_log(&self) {
        self.lock().is_log = true;
    }

    /// Whether a handle was opened to append.
    pub(crate) fn is_log(&self) -> bool {
        self.lock().is_log
    }

    /// Notes that a task is to publish it in a while. Returns false if there is one.
    pub(crate) fn begin_delay(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_delayed, true)
    }

    /// The task publishes it now.
    pub(crate) fn end_delay(&self) {
        self.lock().is_delayed = false;
    }

    /// Ends the draft, unless somebody may still write to it. Returns whether it has ended just now.
    pub(crate) fn seal(&self) -> bool {
        let mut state = self.lock();
        let is_used = state.writers > 0 || state.expected > 0;
        let is_over = state.end == End::NotYet && !is_used && !state.draft.is_dirty();
        if is_over {
            state.end = End::Sealed;
        }
        is_over
    }

    /// Ends a draft that could not be published: its name is no longer its own. Returns whether nobody writes to
    /// it.
    pub(crate) fn unlink(&self) -> bool {
        let mut state = self.lock();
        state.end = End::Unlinked;
        state.writers == 0
    }

    /// Whether `name` in the directory `prefix` stands for it still. Ask while you hold it.
    pub(crate) fn has_place(&self, prefix: &str, name: &str) -> bool {
        let state = self.lock();
        state.end != End::Sealed && (&*state.prefix, &*state.name) == (prefix, name)
    }

    /// Whether its name stands for a version now.
    pub(crate) fn is_sealed(&self) -> bool {
        self.lock().end == End::Sealed
    }

    /// Whether its name is gone.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.lock().end == End::Unlinked
    }

    /// Whether anybody may still write to it.
    pub(crate) fn has_writers(&self) -> bool {
        self.lock().writers > 0
    }

    /// Whether anybody may still change bytes that are there.
    pub(crate) fn is_patched(&self) -> bool {
        let state = self.lock();
        state.writers > state.appenders
    }

    /// Whether nobody writes to it, and nothing is left to be published.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.writers == 0 && !state.draft.is_dirty()
    }
}
