//! The handles that have a draft open for writing, or have made it, and the threads that have changed it since its last
//! publication. Pure.

use std::collections::BTreeMap;

use crate::numbers::FileHandle;

/// The number of a handle that may write to a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriterId(u64);

/// The most threads of one handle that are distinguished between two publications.
const MOST_THREADS: usize = 64;

/// An unknown thread. It counts as one of any process.
const UNKNOWN: u32 = 0;

/// A handle that may write, or has made the file, or emptied it.
#[derive(Debug)]
struct Writer {
    /// Whether the handle was opened to change no existing byte: to append, or to read.
    leaves_bytes: bool,
    /// Whether it has changed existing bytes since the last publication, though it was opened to append: through a map,
    /// or after `fcntl` had removed `O_APPEND`.
    has_patched: bool,
    /// The thread that has opened it.
    opener: u32,
    /// The handle itself, once it has a number.
    handle: Option<FileHandle>,
    /// Whether its open has made the file, or emptied it, since the last publication.
    has_emptied: bool,
    /// Whether the process that has emptied the file has closed a descriptor of the handle since, and has another
    /// descriptor of the file.
    was_closed: bool,
    /// The threads that have written through it since the last publication.
    threads: Vec<u32>,
}

impl Writer {
    fn has_left_bytes(&self) -> bool {
        self.leaves_bytes && !self.has_patched
    }

    fn has_changes(&self) -> bool {
        self.has_emptied || !self.threads.is_empty()
    }

    /// Whether more writes of the handle may follow. A process that has only emptied the file, and has closed that
    /// descriptor, may have closed the handle: the kernel releases it some time after.
    fn is_writing(&self) -> bool {
        !self.has_left_bytes() && self.has_changes() && !(self.was_closed && self.threads.is_empty())
    }

    /// Notes that its changes are complete.
    fn end(&mut self) {
        (self.has_emptied, self.was_closed, self.has_patched) = (false, false, false);
        self.threads.clear();
    }
}

/// What to do when a process closes a descriptor of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Nothing: the process has only inherited the descriptor, or has changed nothing.
    Nothing,
    /// Publish the file: no other handle is changing it.
    Publish,
    /// Save the bytes: another handle is changing the file, and publishes it.
    Keep,
}

/// The handles that may write to a draft.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    open: BTreeMap<WriterId, Writer>,
    next: u64,
    /// The threads whose opens have made the file, or emptied it, since the last publication, and whose handles ended
    /// while their processes had another descriptor of the file.
    left: Vec<u32>,
    /// Whether a program's `close` has succeeded, and its changes are not published.
    has_closed: bool,
}

impl Writers {
    /// Counts one more handle, opened by `opener`; one that `leaves_bytes` changes no existing byte, as a rule.
    pub(crate) fn add(&mut self, leaves_bytes: bool, opener: u32) -> WriterId {
        let id = WriterId(self.next);
        self.next += 1;
        self.open.insert(
            id,
            Writer {
                leaves_bytes,
                opener,
                handle: None,
                has_patched: false,
                has_emptied: false,
                was_closed: false,
                threads: Vec::new(),
            },
        );
        id
    }

    /// Removes a handle.
    pub(crate) fn remove(&mut self, id: WriterId) {
        let removed = self.open.remove(&id);
        let is_left = |writer: &Writer| writer.was_closed && self.left.len() < MOST_THREADS;
        if let Some(writer) = removed.filter(is_left) {
            self.left.push(writer.opener);
        }
    }

    /// Whether a process has made or emptied the file through a descriptor that it has closed while it had another.
    fn is_left(&self, is_of: impl Fn(u32) -> bool) -> bool {
        let closed = self.open.values().filter(|writer| writer.was_closed && writer.threads.is_empty());
        closed.map(|writer| writer.opener).chain(self.left.iter().copied()).any(is_of)
    }

    /// Whether no handle may write.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes that a handle has made the file, or emptied it.
    pub(crate) fn note_emptied(&mut self, id: WriterId) {
        if let Some(writer) = self.open.get_mut(&id) {
            (writer.has_emptied, writer.was_closed) = (true, false);
        }
    }

    /// Notes that a thread has written through a handle: only at the end, if it `appends`.
    pub(crate) fn note_write(&mut self, id: WriterId, thread: u32, appends: bool) {
        let Some(writer) = self.open.get_mut(&id) else { return };
        writer.has_patched |= !appends;
        if !writer.threads.contains(&thread) {
            let thread = if writer.threads.len() < MOST_THREADS { thread } else { UNKNOWN };
            if writer.threads.last() != Some(&UNKNOWN) {
                writer.threads.push(thread);
            }
        }
    }

    /// Notes the number of a handle.
    pub(crate) fn note_handle(&mut self, id: WriterId, handle: FileHandle) {
        if let Some(writer) = self.open.get_mut(&id) {
            writer.handle = Some(handle);
        }
    }

    /// The number of a handle.
    pub(crate) fn handle(&self, id: WriterId) -> Option<FileHandle> {
        self.open.get(&id)?.handle
    }

    /// Notes that these threads have written, each through a handle, and which handles have made or emptied the file. If
    /// there are none, any thread may have written, through any handle, unless it `is_known` that all that have are done.
    pub(crate) fn note_writers(
        &mut self,
        threads: &[(FileHandle, u32)],
        emptied: &[FileHandle],
        is_known: bool,
    ) {
        let is_known = is_known || !emptied.is_empty();
        for writer in self.open.values_mut() {
            let own = threads.iter().filter(|(handle, _)| Some(*handle) == writer.handle);
            writer.threads = own.map(|(_, thread)| *thread).collect();
            if threads.is_empty() && !is_known {
                writer.threads.push(UNKNOWN);
            }
            writer.has_patched |= !writer.leaves_bytes && !writer.threads.is_empty();
            writer.has_emptied |= writer.handle.is_some_and(|handle| emptied.contains(&handle));
        }
    }

    /// What to do when a process closes a descriptor of a handle; without one, of a handle that may not write. `is_of`
    /// returns whether a thread is of this process, and `is_last` whether the process has no other descriptor of the
    /// file.
    pub(crate) fn close(
        &mut self,
        id: Option<WriterId>,
        is_of: impl Fn(u32) -> bool,
        is_last: impl FnOnce() -> bool,
    ) -> Close {
        let is_left = self.is_left(&is_of);
        let own = id.and_then(|id| self.open.get_mut(&id));
        let has_written = own
            .as_ref()
            .is_some_and(|writer| writer.threads.iter().any(|thread| *thread == UNKNOWN || is_of(*thread)));
        // A process that makes an empty file and closes it has completed it. A shell that redirects the output of a
        // program closes one descriptor, too, but has another.
        let emptied =
            own.filter(|writer| writer.threads.is_empty() && writer.has_emptied && is_of(writer.opener));
        let is_complete = has_written || ((emptied.is_some() || is_left) && is_last());
        if let Some(writer) = emptied.filter(|_| !is_complete) {
            writer.was_closed = true;
        }
        match is_complete {
            false => Close::Nothing,
            true if self.open.iter().any(|(other, writer)| Some(*other) != id && writer.is_writing()) => {
                Close::Keep
            }
            true => Close::Publish,
        }
    }

    /// Whether a handle that was opened to append has changed no existing byte since the last publication.
    pub(crate) fn has_only_appended(&self, id: WriterId) -> bool {
        self.open.get(&id).is_some_and(Writer::has_left_bytes)
    }

    /// Whether a handle has changes that were not closed, and may have changed existing bytes.
    pub(crate) fn is_half_written(&self) -> bool {
        self.open.values().any(|writer| !writer.has_left_bytes() && writer.has_changes())
    }

    /// Notes that a program's close succeeds before the file is published.
    pub(crate) fn note_closed(&mut self, id: Option<WriterId>) {
        self.has_closed = true;
        self.end_changes(id);
    }

    /// Notes that the changes of a handle are complete.
    pub(crate) fn end_changes(&mut self, id: Option<WriterId>) {
        if let Some(writer) = id.and_then(|id| self.open.get_mut(&id)) {
            writer.end();
        }
    }

    /// Whether a program's close has succeeded, and its changes are not published.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Notes that all changes are published.
    pub(crate) fn note_published(&mut self) {
        self.has_closed = false;
        self.left.clear();
        for writer in self.open.values_mut() {
            writer.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Close, MOST_THREADS, Writers};

    #[test]
    fn who_closes_what_he_has_written_publishes_it() {
        let mut writers = Writers::default();
        let id = writers.add(false, 1);
        let close = |writers: &mut Writers, process: u32| {
            writers.close(Some(id), |thread| thread == process, || true)
        };
        assert_eq!(close(&mut writers, 1), Close::Nothing, "nothing has changed");
        writers.note_write(id, 1, false);
        assert_eq!(close(&mut writers, 2), Close::Nothing, "a child has inherited it");
        assert_eq!(close(&mut writers, 1), Close::Publish);
        writers.note_write(id, 2, false);
        assert_eq!((close(&mut writers, 1), close(&mut writers, 2)), (Close::Publish, Close::Publish));
        writers.note_published();
        assert_eq!(close(&mut writers, 1), Close::Nothing);
        for thread in 10..10 + 2 * MOST_THREADS as u32 {
            writers.note_write(id, thread, false);
        }
        assert_eq!(close(&mut writers, 1), Close::Publish, "so many are not told apart");
    }

    #[test]
    fn who_closes_an_empty_file_has_to_have_no_other_descriptor() {
        let mut writers = Writers::default();
        let id = writers.add(false, 1);
        writers.note_emptied(id);
        assert_eq!(writers.close(Some(id), |thread| thread == 1, || false), Close::Nothing);
        assert_eq!(writers.close(Some(id), |thread| thread == 2, || true), Close::Nothing);
        assert_eq!(writers.close(Some(id), |thread| thread == 1, || true), Close::Publish);
    }

    #[test]
    fn who_has_closed_an_empty_file_keeps_nobody_from_publishing_it() {
        let mut writers = Writers::default();
        let [maker, other] = [1, 1].map(|thread| writers.add(false, thread));
        writers.note_emptied(maker);
        writers.note_write(other, 1, false);
        assert_eq!(writers.close(Some(other), |_| true, || false), Close::Keep, "its maker may go on");
        writers.note_write(other, 1, false);
        assert_eq!(writers.close(Some(maker), |_| true, || false), Close::Nothing);
        assert_eq!(
            writers.close(Some(other), |_| true, || true),
            Close::Publish,
            "the handle's end may still come"
        );
        assert!(writers.is_half_written(), "the maker has not said that it is complete");
        writers.note_write(maker, 2, false);
        assert_eq!(
            writers.close(Some(other), |_| true, || true),
            Close::Keep,
            "another program has the handle"
        );
    }

    #[test]
    fn who_has_emptied_a_file_says_so_by_his_last_descriptor_whatever_it_is() {
        let mut writers = Writers::default();
        let [maker, other] = [1, 2].map(|thread| writers.add(false, thread));
        writers.note_emptied(maker);
        assert_eq!(writers.close(Some(maker), |thread| thread == 1, || false), Close::Nothing);
        writers.remove(maker);
        assert_eq!(writers.close(None, |thread| thread == 2, || true), Close::Nothing, "another reads it");
        assert_eq!(writers.close(None, |thread| thread == 1, || false), Close::Nothing);
        assert_eq!(writers.close(Some(other), |thread| thread == 1, || true), Close::Publish);
        assert_eq!(writers.close(None, |thread| thread == 1, || true), Close::Publish);
        writers.note_published();
        assert_eq!(writers.close(None, |thread| thread == 1, || true), Close::Nothing);
    }

    #[test]
    fn half_a_file_is_not_published() {
        let mut writers = Writers::default();
        let [one, other] = [1, 2].map(|thread| writers.add(false, thread));
        let log = writers.add(true, 3);
        writers.note_write(one, 1, false);
        writers.note_write(log, 3, true);
        assert_eq!(writers.close(Some(one), |_| true, || true), Close::Publish, "lines are whole");
        writers.note_write(other, 2, false);
        assert_eq!(writers.close(Some(one), |_| true, || true), Close::Keep);
        assert_eq!(writers.close(Some(log), |_| true, || true), Close::Keep);
        writers.note_closed(Some(one));
        assert!(writers.has_closed() && writers.is_half_written());
        assert_eq!(writers.close(Some(other), |_| true, || true), Close::Publish, "the other has closed it");
        writers.note_published();
        assert!(!writers.has_closed() && !writers.is_half_written());
        for id in [one, other, log] {
            writers.remove(id);
        }
        assert!(writers.is_empty());
    }

    #[test]
    fn a_log_that_is_patched_is_half_written_until_it_is_closed() {
        let mut writers = Writers::default();
        let [log, other] = [1, 2].map(|thread| writers.add(true, thread));
        writers.note_write(log, 1, false);
        writers.note_write(log, 1, true);
        writers.note_write(other, 2, true);
        assert_eq!(writers.close(Some(other), |_| true, || true), Close::Keep);
        assert!(writers.has_only_appended(other) && !writers.has_only_appended(log));
        writers.note_closed(Some(log));
        writers.note_write(log, 1, true);
        assert_eq!(writers.close(Some(other), |_| true, || true), Close::Publish);
    }
}
