//! `.s3mount/streams` shows the streams and the waiting calls, and `.s3mount/events` passes on events while it is open.

use std::cmp::Reverse;
use std::sync::Arc;

use s3mount_metrics::{Listener, Recorder, json_string};
use s3mount_prefetch::ReaderView;

use super::Filesystem;
use super::open_file::OpenFile;
use crate::control::Control;
use crate::control::callers::Caller;
use crate::numbers::{FileHandle, InodeNo};
use crate::tree::inode::Node;

/// The most files that `.s3mount/streams` shows.
const MAX_FILES: usize = 1000;

impl Filesystem {
    /// Makes `.s3mount/events` pass on the events of `recorder`.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<Recorder>) -> Self {
        self.instruments.recorder = recorder;
        self
    }

    /// Records events while a listener is there.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.instruments.recorder
    }

    /// Sets the function that returns the callers without an answer. It can be set once.
    pub fn set_callers(&self, who_waits: impl Fn() -> Vec<Caller> + Send + Sync + 'static) {
        self.instruments.callers.set(who_waits);
    }

    /// At most `len` bytes of the events that wait for `listener`.
    pub(super) fn events(&self, listener: &Listener, len: usize) -> Vec<u8> {
        listener.take(len, |ino| self.key_of(InodeNo(ino)))
    }

    /// The key of a file, or the prefix of a folder; empty if the kernel has forgotten it, and `None` for the
    /// daemon's own files.
    fn key_of(&self, ino: InodeNo) -> Option<Arc<str>> {
        if Control::of(ino).is_some() {
            return None;
        }
        Some(match self.inodes.node(ino) {
            Some(Node::File(file)) => Arc::from(file.object.key()),
            Some(Node::Directory(prefix)) => prefix,
            Some(Node::Draft(_)) | None => Arc::from(""),
        })
    }

    /// The key of a file, or the prefix of a folder without its last slash. Empty if it has no name any more, and `None` for
    /// the daemon's own files.
    pub fn key(&self, ino: InodeNo) -> Option<String> {
        if Control::of(ino).is_some() {
            return None;
        }
        let named = self.inodes.parent_and_name(ino);
        Some(named.and_then(|(parent, name)| self.key_at(parent, &name)).unwrap_or_default())
    }

    /// The key of a name in a directory. `None` for the daemon's own files.
    pub fn key_at(&self, parent: InodeNo, name: &str) -> Option<String> {
        if Control::of(parent).is_some() {
            return None;
        }
        Some(format!("{}{name}", self.inodes.prefix(parent).unwrap_or_default()))
    }

    /// The key of a file that a handle may write to, and `None` for any other handle.
    pub fn key_written_by(&self, handle: FileHandle) -> Option<String> {
        match self.files.get(handle)? {
            OpenFile::Draft(open) if open.how.writes => self.key(open.ino),
            _ => None,
        }
    }

    /// The text of `.s3mount/streams`.
    pub(super) fn show_streams(&self) -> String {
        let mut views = self.prefetcher.views();
        let sum = |of: fn(&ReaderView) -> u64| views.iter().map(of).sum::<u64>();
        let (unread, in_flight) = (sum(|view| view.unread_bytes), sum(|view| view.in_flight_bytes));
        let open = views.len();
        views.sort_by_key(|view| Reverse((view.waiting, view.gets_in_flight, view.unread_bytes)));
        views.truncate(MAX_FILES);
        let files: Vec<_> = views.iter().map(file).collect();
        let callers = self.instruments.callers.now();
        let callers: Vec<_> = callers
            .iter()
            .map(|caller| format!("{{\"pid\": {}, \"waits\": {}}}", caller.pid, caller.waits.as_secs_f64()))
            .collect();
        format!(
            "{{\n  \"open\": {open},\n  \"unread_bytes\": {unread},\n  \"in_flight_bytes\": {in_flight},\n  \
             \"callers\": [{}],\n  \"files\": [{}]\n}}\n",
            callers.join(", "),
            files.join(",\n    ")
        )
    }
}

fn file(view: &ReaderView) -> String {
    let streams: Vec<_> = view
        .streams
        .iter()
        .map(|stream| {
            format!(
                "{{\"position\": {}, \"window_bytes\": {}, \"idle\": {}}}",
                stream.position,
                stream.window_bytes,
                stream.idle.as_secs()
            )
        })
        .collect();
    format!(
        "{{\"key\": {}, \"size\": {}, \"unread_bytes\": {}, \"gets_in_flight\": {}, \"in_flight_bytes\": {}, \
         \"waiting\": {}, \"longest_wait\": {}, \"streams\": [{}]}}",
        json_string(&view.key),
        view.size,
        view.unread_bytes,
        view.gets_in_flight,
        view.in_flight_bytes,
        view.waiting,
        view.longest_wait.as_secs_f64(),
        streams.join(", ")
    )
}
