//! Opens a file in two steps: the first finds what the inode refers to, the second decides how the file is read.
//!
//! Between the two, the caller may ask whether the whole version lies on a disk of this machine, and let the kernel
//! read it from there. Only the caller knows whether the kernel does.

use std::fs::File;
use std::sync::Arc;

use s3mount_prefetch::ObjectReader;

use super::Filesystem;
use super::open_file::{OpenFile, OpenMode, OpenObject, Opened};
use crate::FsError;
use crate::control::Control;
use crate::drafts::DraftFile;
use crate::drafts::life::{Step, Verdict};
use crate::handover::record::OpenAs;
use crate::metrics::OpenedAs;
use crate::numbers::InodeNo;
use crate::tree::inode::Node;
use crate::tree::inode::draft::Since;

/// A file that may be opened. Nothing is open before [`finish`](Self::finish), so it may be dropped.
#[derive(Debug)]
pub struct Opening {
    fs: Arc<Filesystem>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// One of the daemon's own files.
    Own(InodeNo, OpenFile),
    Object(ObjectOpening),
    /// A file that is being written.
    Draft(InodeNo, Arc<DraftFile>),
}

#[derive(Debug)]
struct ObjectOpening {
    ino: InodeNo,
    /// The count of this mount's renames when the inode referred to this file.
    renames: u64,
    pid: u32,
    file: s3mount_names::File,
    /// Set once the disk was looked at. It keeps the result.
    reader: Option<Arc<ObjectReader>>,
    /// Whether the whole version lies on a disk.
    is_whole: bool,
}

impl Filesystem {
    /// Opens a file for reading, for an unknown process.
    ///
    /// # Errors
    /// As of [`open_by`](Self::open_by).
    pub fn open(self: &Arc<Self>, ino: InodeNo) -> Result<Opened, FsError> {
        self.open_by(ino, 0)
    }

    /// Opens a file for reading, for the process `pid`. The number 0 is an unknown process. The daemon serves
    /// its READs.
    ///
    /// # Errors
    /// As of [`begin_open`](Self::begin_open).
    pub fn open_by(self: &Arc<Self>, ino: InodeNo, pid: u32) -> Result<Opened, FsError> {
        self.begin_open(ino, pid)?.finish(false)
    }

    /// Begins to open a file for reading, for the process `pid`. The number 0 is an unknown process.
    ///
    /// # Errors
    /// `IsDirectory`, `UnknownInode`, or `Outdated`. After `Outdated` the kernel has to look the
    /// name up again.
    pub fn begin_open(self: &Arc<Self>, ino: InodeNo, pid: u32) -> Result<Opening, FsError> {
        let target = match Control::of(ino) {
            Some(own) => Target::Own(ino, self.own_file(own)?),
            None => {
                let opens = self.opens(ino, pid);
                self.note_repeated(ino, pid, &opens);
                opens?
            }
        };
        Ok(Opening { fs: self.clone(), target })
    }

    /// One of the daemon's own files, as of now.
    ///
    /// # Errors
    /// `IsDirectory`, or `TooManyListeners`.
    pub(super) fn own_file(&self, own: Control) -> Result<OpenFile, FsError> {
        Ok(match own {
            Control::Folder => return Err(FsError::IsDirectory),
            Control::Stats | Control::Metrics | Control::Streams => OpenFile::Snapshot(self.show(own).into()),
            Control::Events | Control::Changes => OpenFile::Events(Arc::new(self.instruments.listen(own)?)),
            Control::Prefetch => OpenFile::Hints(Arc::default()),
            Control::Keep => OpenFile::Keep(Arc::default()),
            Control::Memory | Control::Pending => OpenFile::Settable(own, self.show(own).into()),
        })
    }

    /// The version or draft that an OPEN of a file of the bucket opens.
    fn opens(&self, ino: InodeNo, pid: u32) -> Result<Target, FsError> {
        for _ in 0..2 {
            let renames = self.inodes.renames();
            match self.inodes.node(ino) {
                Some(Node::File(_)) if self.inodes.is_outdated(ino) => return Err(FsError::Outdated),
                Some(Node::File(file)) => {
                    let opening = ObjectOpening { ino, renames, pid, file, reader: None, is_whole: false };
                    return Ok(Target::Object(opening));
                }
                Some(Node::Draft(file)) if file.verdict(Step::Open) == Verdict::Go => {
                    return Ok(Target::Draft(ino, file));
                }
                // The inode refers to the version that the draft has just become.
                Some(Node::Draft(file)) if file.is_sealed() => {}
                Some(Node::Draft(_)) => return Err(FsError::Outdated),
                Some(Node::Directory(_)) => return Err(FsError::IsDirectory),
                None => return Err(FsError::UnknownInode(ino)),
            }
        }
        Err(FsError::Outdated)
    }
}

impl Opening {
    /// Whether the file is one of the bucket.
    pub fn is_object(&self) -> bool {
        matches!(self.target, Target::Object(_) | Target::Draft(..))
    }

    /// Calls `then` with the file on a disk of this machine that holds the whole version, byte for byte: in this thread
    /// if it is known, else in a thread of the disk cache. If the disk takes too long, calls `then` without the file.
    pub fn with_whole_file(mut self, then: impl FnOnce(Self, Option<Arc<File>>) + Send + 'static) {
        let Target::Object(opening) = &mut self.target else { return then(self, None) };
        if self.fs.has_just_detached(opening.ino) {
            return then(self, None);
        }
        let reader = self.fs.prefetcher.open(&opening.file.object, opening.file.size);
        opening.reader = Some(reader.clone());
        reader.with_whole_file(move |whole| {
            if let Target::Object(opening) = &mut self.target {
                opening.is_whole = whole.is_some();
            }
            then(self, whole);
        });
    }

    /// Opens the file. `is_passthrough`: the kernel reads it by itself, from the file that
    /// [`with_whole_file`](Self::with_whole_file) has found.
    ///
    /// # Errors
    /// `Outdated` if the kernel can't read it by itself after all, because it is being written by now.
    pub fn finish(self, is_passthrough: bool) -> Result<Opened, FsError> {
        let Self { fs, target } = self;
        match target {
            Target::Own(ino, file) => {
                let handle = fs.files.insert(file);
                fs.note_open(handle, ino, OpenAs::Own);
                Ok(Opened::own(handle))
            }
            Target::Draft(ino, file) => fs.opened_draft(ino, &file, Default::default(), None),
            Target::Object(opening) => fs.open_object(&opening, is_passthrough),
        }
    }
}

impl Filesystem {
    /// Whether the kernel has just got the inode because a program is about to write the file.
    fn has_just_detached(&self, ino: InodeNo) -> bool {
        let place = self.inodes.parent_and_name(ino).filter(|_| self.allows_writes());
        place.is_some_and(|(parent, name)| self.writing.detached.has(parent, &name))
    }

    fn open_object(
        self: &Arc<Self>,
        opening: &ObjectOpening,
        is_passthrough: bool,
    ) -> Result<Opened, FsError> {
        let ObjectOpening { ino, renames, pid, ref file, is_whole, .. } = *opening;
        let is_quarantined = self.prefetcher.take_quarantined(&file.object);
        let keep_cache = !(self.inodes.take_old_pages(ino) || is_quarantined);
        let reader = self.prefetcher.open(&file.object, file.size);
        // The kernel's page cache may still hold the pages of a file that was opened before: then it needs no request.
        let was_opened_before = self.inodes.open(ino);
        self.ahead.on_open(ino, &reader, was_opened_before, (is_whole, is_passthrough));
        let path = file.object.key().strip_prefix(&*self.config.prefix);
        let is_named = path.is_some_and(|path| self.config.direct_io.is_match(path));
        // If the kernel reads the file by itself, the page cache is that of the disk's file system.
        let pages = self.page_cache.on_open(ino, file, pid, is_named || is_passthrough);
        let mode = if is_named || pages.is_direct() { OpenMode::Direct } else { OpenMode::Cached };
        let is_random_map = pages.is_random() && !is_passthrough;
        let opened_as = match mode {
            _ if is_passthrough => OpenedAs::Passthrough,
            OpenMode::Cached => OpenedAs::Cached,
            OpenMode::Direct => OpenedAs::Direct,
        };
        self.instruments.metrics.opens.at(opened_as).inc();
        let reader = self.prefetcher.handle(reader);
        let open = OpenObject::new((ino, renames), reader, was_opened_before, is_passthrough, pages);
        let open = Arc::new(open);
        let handle = self.files.insert(OpenFile::Object(open.clone()));
        let as_what = match mode {
            _ if is_passthrough => OpenAs::Passthrough(None),
            mode => OpenAs::Object { is_direct: mode == OpenMode::Direct },
        };
        self.note_open(handle, ino, as_what);
        let opened = Opened { handle, mode, keep_cache, is_random_map, was_open: false };
        if !self.allows_writes() {
            return Ok(opened);
        }
        // A writer that begins from now on finds this handle.
        match self.inodes.since(ino, file.object.etag()) {
            Since::Same => Ok(opened),
            Since::Other => {
                open.set_written();
                Ok(opened)
            }
            Since::Draft => match self.inodes.node(ino) {
                Some(Node::Draft(file)) if !is_passthrough => {
                    self.release(handle);
                    self.opened_draft(ino, &file, Default::default(), None)
                }
                // The file is a version again.
                Some(Node::File(_)) if !is_passthrough => {
                    open.set_written();
                    Ok(opened)
                }
                _ => {
                    self.release(handle);
                    Err(FsError::Outdated)
                }
            },
        }
    }
}
