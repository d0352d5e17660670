//! Takes notes of open files and directories, and opens again what the daemon before has left.

use std::collections::HashSet;
use std::sync::Arc;

use super::Filesystem;
use super::open_file::{OpenFile, OpenObject};
use crate::control::Control;
use crate::handover::record::{KnownNode, LocalFolderRecord, NodeRecord, OpenAs, OpenRecord, Record};
use crate::handover::{Handover, Left};
use crate::numbers::{DirOffset, FileHandle, InodeNo};
use crate::tree::inode::Node;

impl Filesystem {
    /// Takes notes for the daemon that is to take over from this one. The kernel must know no inode yet.
    #[must_use]
    pub fn with_handover(mut self, handover: Arc<Handover>) -> Self {
        self.inodes.hand_over(handover.clone());
        let told = handover.clone();
        self.namespace.tell_folders(move |prefix, name, note| told.set_local_folder(prefix, name, note));
        self.files.begin_at(handover.first_handle());
        self.directories.hand_over(handover.clone());
        self.handover = Some(handover);
        self
    }

    /// The notes for the next daemon, if there is to be one.
    pub fn handover(&self) -> Option<&Arc<Handover>> {
        self.handover.as_ref()
    }

    /// Notes an open file, before the kernel gets its handle.
    pub(crate) fn note_open(&self, handle: FileHandle, ino: InodeNo, as_what: OpenAs) {
        if let Some(handover) = &self.handover {
            handover.set_open(handle, &OpenRecord { ino, as_what });
            self.inodes.record(ino);
        }
    }

    /// Notes by which number the kernel knows the file that it reads by itself for this handle.
    pub fn note_backing(&self, handle: FileHandle, ino: InodeNo, backing: u32) {
        if let Some(handover) = &self.handover {
            handover.set_open(handle, &OpenRecord { ino, as_what: OpenAs::Passthrough(Some(backing)) });
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
    pub fn restore(self: &Arc<Self>, left: Left) -> HashSet<InodeNo> {
        let (mut nodes, mut open, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        for record in left.records {
            match record {
                Record::Session(_) | Record::Settings(_) => {}
                Record::Node(ino, node) => nodes.push((ino, node)),
                Record::Open(handle, file) => open.push((handle, file)),
                Record::OpenFolder(handle, folder) => folders.push((handle, folder)),
                Record::LocalFolder(LocalFolderRecord { prefix, name, note }) => {
                    self.namespace.note_folder_again(&Arc::from(prefix), &name, note);
                }
            }
        }
        let mut unsaved = HashSet::new();
        for (ino, NodeRecord { name, node, .. }) in &nodes {
            if matches!(node, KnownNode::Draft { is_saved: false, .. }) {
                tracing::error!(%ino, %name, "a file was being written when the daemon was killed: its bytes are lost");
                unsaved.insert(*ino);
            }
        }
        let counts = (nodes.len(), open.len(), folders.len());
        self.inodes.restore(nodes);
        for (handle, file) in open {
            self.files.insert_at(handle, self.opened_again(&file, &unsaved));
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
        OpenRecord { ino, as_what }: &OpenRecord,
        unsaved: &HashSet<InodeNo>,
    ) -> OpenFile {
        let ino = *ino;
        match as_what {
            // What a program goes on to read of one of the daemon's own files is what this daemon shows.
            OpenAs::Own => {
                let own = Control::of(ino).and_then(|own| self.own_file(own).ok());
                own.unwrap_or(OpenFile::Lost(ino))
            }
            OpenAs::Draft { writes: true } if unsaved.contains(&ino) => OpenFile::Lost(ino),
            OpenAs::Object { .. } | OpenAs::Passthrough(_) | OpenAs::Draft { .. } => {
                let Some(Node::File(file)) = self.inodes.node(ino) else { return OpenFile::Lost(ino) };
                let is_passthrough = matches!(as_what, OpenAs::Passthrough(_));
                let reader = self.prefetcher.open(&file.object, file.size);
                let was_opened_before = self.inodes.open(ino);
                let is_direct = matches!(as_what, OpenAs::Object { is_direct: true });
                let pages = self.page_cache.on_open(ino, &file, 0, is_direct || is_passthrough);
                let reader = self.prefetcher.handle(reader);
                let renames = self.inodes.renames();
                let open = OpenObject::new((ino, renames), reader, was_opened_before, is_passthrough, pages);
                if matches!(as_what, OpenAs::Draft { .. }) || unsaved.contains(&ino) {
                    open.set_written();
                }
                OpenFile::Object(Arc::new(open))
            }
        }
    }
}
