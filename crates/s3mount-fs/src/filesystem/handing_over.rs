//! Takes notes of open files and directories, and opens again what the daemon before has left.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Filesystem;
use super::keeping::GoingOn;
use super::open_file::{OpenFile, OpenObject};
use crate::control::Control;
use crate::drafts::DraftFile;
use crate::handover::record::{
    AppendRecord, Asked, DraftHandle, KnownNode, LocalFolderRecord, ModeRecord, NodeRecord, OpenAs,
    OpenRecord, Record, SpoolRecord,
};
use crate::handover::{Handover, Left};
use crate::numbers::{DirOffset, FileHandle, InodeNo, RequestId};
use crate::sync::lock;
use crate::tree::inode::Node;
use crate::writes::{OpenDraft, WriteOpen};

/// Whether an inode was that of a draft whose bytes were not all published.
fn is_unpublished(node: &NodeRecord) -> bool {
    matches!(node.node, KnownNode::Draft { is_saved: false, .. })
}

/// Whether a handle may change a draft.
fn is_writer(file: &OpenRecord) -> bool {
    matches!(file.as_what, OpenAs::Draft(how) if how.is_writer)
}

impl Filesystem {
    /// Takes notes for the daemon that is to take over from this one. The kernel must know no inode yet.
    #[must_use]
    pub fn with_handover(mut self, handover: Arc<Handover>) -> Self {
        self.inodes.hand_over(handover.clone());
        let told = handover.clone();
        self.namespace.tell_folders(move |prefix, name, note| told.set_local_folder(prefix, name, note));
        self.files.begin_at(handover.first_handle());
        self.directories.hand_over(handover.clone());
        self.writing.detached.hand_over(handover.clone());
        let told = handover.clone();
        self.attributes.modes.tell(move |key, mode| told.set_mode(key, mode));
        self.handover = Some(handover);
        self.join_family();
        self
    }

    /// Has the next daemon know the writes of this one.
    pub(super) fn join_family(&self) {
        if let (Some(handover), Some(writes)) = (&self.handover, &self.writing.writes) {
            writes.writer.bucket().join_family(handover.family());
            writes.writer.keep_written(handover.clone());
        }
    }

    /// The notes for the next daemon, if there is to be one.
    pub fn handover(&self) -> Option<&Arc<Handover>> {
        self.handover.as_ref()
    }

    /// Notes an open file, before the kernel gets its handle.
    pub(crate) fn note_open(&self, handle: FileHandle, ino: InodeNo, as_what: OpenAs) {
        self.note_open_as(handle, OpenRecord::new(ino, as_what));
    }

    /// Notes an open file, before the kernel gets its handle.
    pub(super) fn note_open_as(&self, handle: FileHandle, open: OpenRecord) {
        if let Some(handover) = &self.handover {
            handover.set_open(handle, &open);
            self.inodes.record(open.ino);
        }
    }

    /// Notes by which number the kernel knows the file that it reads by itself for this handle.
    pub fn note_backing(&self, handle: FileHandle, ino: InodeNo, backing: u32) {
        if let Some(handover) = &self.handover {
            handover.set_open(handle, &OpenRecord::new(ino, OpenAs::Passthrough(Some(backing))));
        }
    }

    /// Notes that a file is closed.
    pub(crate) fn note_closed(&self, handle: FileHandle, file: &OpenFile) {
        if let Some(handover) = &self.handover {
            handover.set_closed(handle, file.ino());
            file.ino().into_iter().for_each(|ino| self.inodes.record(ino));
        }
    }

    /// Notes that the kernel is about to get the names of an open directory before the place `next`.
    pub fn note_listed(&self, handle: FileHandle, next: DirOffset) {
        if self.handover.is_some() {
            self.directories.note_listed(handle, next);
        }
    }

    /// Opens again, under the same handles, what the kernel has open from the daemon before. Must be called before the
    /// first request.
    /// Returns the inodes of which the kernel may have pages that are lost.
    pub fn restore(self: &Arc<Self>, mut left: Left) -> HashSet<InodeNo> {
        let (mut nodes, mut open, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        let mut appends = Vec::new();
        for record in std::mem::take(&mut left.records) {
            match record {
                Record::Session(_) | Record::Settings(_) | Record::Region(_) => {}
                Record::Spool(..) | Record::SpoolRange(..) => {}
                Record::Append(append) => appends.push(append),
                Record::Written(_, hash) => {
                    self.writing.writes.iter().for_each(|writes| writes.writer.note_written_before(hash));
                }
                Record::Mode(ModeRecord { key, mode }) => self.attributes.modes.restore(&key, mode),
                Record::Repeated(thread, open) => {
                    self.writing.detached.note(open.parent, &Arc::from(open.name), thread);
                }
                Record::Node(ino, node) => nodes.push((ino, node)),
                Record::Open(handle, file) => open.push((handle, file)),
                Record::OpenFolder(handle, folder) => folders.push((handle, folder)),
                Record::LocalFolder(LocalFolderRecord { prefix, name, note }) => {
                    self.namespace.note_folder_again(&Arc::from(prefix), &name, note);
                }
            }
        }
        let writers: HashSet<InodeNo> =
            open.iter().filter(|(_, file)| is_writer(file)).map(|(_, file)| file.ino).collect();
        let going_on = self.going_on(&nodes, &mut left, |ino| writers.contains(&ino));
        let kept: HashSet<InodeNo> =
            going_on.iter().filter(|file| file.is_unpublished()).map(GoingOn::ino).collect();
        let (mut unsaved, mut lost) = (HashSet::new(), Vec::new());
        for (ino, node) in &nodes {
            if is_unpublished(node) && !kept.contains(ino) {
                // Nobody misses what had no name and was closed.
                if writers.contains(ino) || node.is_newest {
                    lost.push((*ino, node.parent, node.name.clone()));
                }
                unsaved.insert(*ino);
            }
        }
        let counts = (nodes.len(), open.len(), folders.len());
        for (handle, file) in open.iter().filter(|(_, file)| is_writer(file) && unsaved.contains(&file.ino)) {
            // No later daemon may take it for a handle whose bytes are safe.
            self.note_open(*handle, file.ino, OpenAs::Lost);
        }
        let unpublished: Vec<_> = nodes.iter().filter(|(_, node)| is_unpublished(node)).cloned().collect();
        nodes.retain(|(ino, _)| !kept.contains(ino));
        self.inodes.restore(nodes);
        for (ino, parent, name) in lost {
            let key = format!("{}{name}", self.inodes.prefix(parent).unwrap_or_default());
            tracing::error!(%ino, %key, "a file was being written when the daemon ended: its bytes are lost");
        }
        for (ino, node) in unpublished {
            self.expect_late(ino, &node);
        }
        let drafts: Vec<_> = going_on.into_iter().filter_map(|file| self.go_on(file)).collect();
        if let Some(handover) = &self.handover {
            let is_done = |append: &AppendRecord| {
                !unsaved.contains(&append.ino)
                    && self.inodes.attr(append.ino).is_some_and(|attr| attr.size >= append.end)
            };
            let done = appends.into_iter().filter(is_done).map(|append| append.id);
            handover.set_appended(done.collect());
        }
        let mut asked: HashMap<_, _> =
            open.iter().map(|(handle, file)| (file.asked.request, *handle)).collect();
        asked.remove(&RequestId::default());
        *lock(&self.writing.opened_before) = asked;
        for (handle, file) in open {
            self.files.insert_at(handle, self.opened_again(handle, &file, &unsaved));
        }
        for file in drafts {
            if file.draft().is_dirty() {
                let known = self.handover.as_ref().zip(file.ino());
                let known = known
                    .and_then(|(handover, ino)| handover.look_spooled(ino, |known| known.record.clone()));
                let SpoolRecord { threads, emptied, is_said, .. } = known.unwrap_or_default();
                file.note_writers(&threads, &emptied, is_said);
            }
            if !file.has_writers() {
                self.end_closed_later(file);
            }
        }
        for (handle, folder) in folders {
            self.directories.restore(handle, &folder);
        }
        let (nodes, files, folders) = counts;
        tracing::info!(nodes, files, folders, "took over from the daemon before");
        unsaved
    }

    /// An open file of the daemon before.
    fn opened_again(
        self: &Arc<Self>,
        handle: FileHandle,
        record: &OpenRecord,
        unsaved: &HashSet<InodeNo>,
    ) -> OpenFile {
        let OpenRecord { ino, as_what, asked } = *record;
        let how = match as_what {
            // What a program goes on to read of one of the daemon's own files is what this daemon shows.
            OpenAs::Own => {
                let own = Control::of(ino).and_then(|own| self.own_file(own).ok());
                return own.unwrap_or(OpenFile::Lost(ino));
            }
            OpenAs::Draft(how) => how,
            OpenAs::Object { is_direct } => DraftHandle { is_cached: !is_direct, ..DraftHandle::default() },
            OpenAs::Passthrough(_) => DraftHandle::default(),
            OpenAs::Lost => return OpenFile::Lost(ino),
        };
        match self.inodes.node(ino) {
            Some(Node::Draft(file)) => {
                OpenFile::Draft(Arc::new(Self::draft_again((ino, handle), &file, how, asked)))
            }
            Some(Node::File(file)) if !(how.is_writer && unsaved.contains(&ino)) => {
                let is_passthrough = matches!(as_what, OpenAs::Passthrough(_));
                let reader = self.prefetcher.open(&file.object, file.size);
                let was_opened_before = self.inodes.open(ino);
                let is_direct = matches!(as_what, OpenAs::Object { is_direct: true });
                let pages = self.page_cache.on_open(ino, &file, 0, is_direct || is_passthrough);
                let reader = self.prefetcher.handle(reader);
                let renames = self.inodes.renames();
                let open = OpenObject::new((ino, renames), reader, was_opened_before, is_passthrough, pages);
                if matches!(as_what, OpenAs::Draft(_)) || unsaved.contains(&ino) {
                    open.set_written();
                }
                OpenFile::Object(Arc::new(open))
            }
            Some(Node::File(_) | Node::Directory(_)) | None => OpenFile::Lost(ino),
        }
    }

    /// An open file of the daemon before whose file is a draft again.
    fn draft_again(
        (ino, handle): (InodeNo, FileHandle),
        file: &Arc<DraftFile>,
        how: DraftHandle,
        asked: Asked,
    ) -> OpenDraft {
        let DraftHandle { writes, appends, is_writer, is_cached } = how;
        let leaves_bytes = appends || !writes;
        let writer = is_writer.then(|| file.add_writer(leaves_bytes, asked.thread)).flatten();
        writer.into_iter().for_each(|writer| file.note_handle(writer, handle));
        if appends {
            file.note_log();
        }
        let how = WriteOpen { writes, appends, ..WriteOpen::default() };
        OpenDraft::new(ino, file.clone(), how, writer, is_cached)
    }
}
