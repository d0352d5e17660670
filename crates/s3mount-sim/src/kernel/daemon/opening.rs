//! OPENs, CREATEs and RELEASEs (`adapter/open.rs` and `adapter/write.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3mount_fs::{Entry, FileHandle, FsError, InodeNo, Opener, Opening, StoredAttr};

use super::requests::{OpenAnswer, answer, flags_text, nothing, told, write_open, writes};
use super::{Caller, Daemon, Turn};

impl Daemon {
    pub(crate) async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        ino: InodeNo,
        flags: i32,
    ) -> Result<OpenAnswer, i32> {
        let number = self.record.sent(caller.pid, "OPEN", ino.0, || flags_text(flags));
        let (pid, id) = (caller.pid, self.request_id());
        let work = move |turn: Turn| async move {
            let fs = turn.fs();
            let changes = (writes(flags) || flags & libc::O_TRUNC != 0) && !fs.is_writable(ino);
            if changes && !fs.allows_writes() {
                return Err(libc::EROFS);
            }
            if changes {
                return turn.open_to_write(ino, flags, Opener::from(pid).by(id)).await;
            }
            turn.may_leak(false);
            let opening = told(fs.begin_open(ino, pid))?;
            if turn.daemon.has_passthrough && opening.is_object() {
                return turn.open_object(ino, opening, flags).await;
            }
            told(opening.finish(false).map(answer))
        };
        let opened = self.request(caller, number, None, work, nothing).await?;
        self.opened(false, opened.handle);
        Ok(opened)
    }

    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
        flags: i32,
        mode: u32,
    ) -> Result<(Entry, OpenAnswer), i32> {
        let number =
            self.record.sent(caller.pid, "CREATE", parent.0, || format!("{name} {}", flags_text(flags)));
        let (name, opener) = (name.to_owned(), Opener::from(caller.pid).by(self.request_id()));
        let work = move |turn: Turn| {
            let (name, opener) = (name.clone(), opener.clone());
            async move {
                let (fs, modes) = (turn.fs(), &turn.service.modes);
                let attr = StoredAttr::new_file(mode, 0, 0);
                let created = fs.create_by(parent, &name, write_open(flags), attr, opener).await;
                let (entry, opened) = told(created)?;
                let is_counted = opened.was_open || !turn.daemon.has_passthrough;
                if !is_counted && !modes.enter(entry.attr.ino, &turn.daemon.backings) {
                    fs.release(opened.handle);
                    fs.forget(entry.attr.ino, 1);
                    return told(Err(FsError::Outdated));
                }
                fs.note_mode(entry.attr.ino, mode);
                Ok((entry, answer(opened)))
            }
        };
        let created = self.request(caller, number, Some(parent), work, nothing).await?;
        self.opened(false, created.1.handle);
        Ok(created)
    }

    pub(crate) fn release(self: &Arc<Self>, ino: InodeNo, handle: FileHandle) {
        self.in_background(true, move |turn| {
            turn.daemon.record.sent(0, "RELEASE", ino.0, String::new);
            turn.service.modes.release(ino, &turn.daemon.backings);
            turn.fs().release(handle);
            turn.daemon.released(false, handle);
        });
    }
}

impl Turn {
    /// What the daemon before has opened for this request stays open, because the kernel does not know of it.
    pub(super) fn may_leak(&self, is_dir: bool) {
        if self.is_resent {
            self.daemon.leaks[usize::from(is_dir)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An OPEN that changes the file (`on_open_to_write`).
    async fn open_to_write(&self, ino: InodeNo, flags: i32, opener: Opener) -> Result<OpenAnswer, i32> {
        let (has_passthrough, backings) = (self.daemon.has_passthrough, &self.daemon.backings);
        if has_passthrough && !self.service.modes.enter(ino, backings) {
            self.fs().detach(ino, opener.thread);
            return told(Err(FsError::Outdated));
        }
        let opened = self.fs().open_to_write_by(ino, write_open(flags), opener).await;
        if opened.as_ref().map_or(true, |opened| opened.was_open) && has_passthrough {
            self.service.modes.release(ino, backings);
        }
        told(opened.map(answer))
    }

    /// An OPEN for reading of a file of the bucket, which may lie on the disk as a whole (`on_open`).
    async fn open_object(&self, ino: InodeNo, opening: Opening, flags: i32) -> Result<OpenAnswer, i32> {
        let (answer_to, answered) = tokio::sync::oneshot::channel();
        // Nobody listens where the daemon has died.
        opening.with_whole_file(move |opening, whole| drop(answer_to.send((opening, whole))));
        let (opening, whole) = answered.await.map_err(|_| libc::EIO)?;
        let backing = self.service.modes.open(ino, whole.as_deref(), &self.daemon.backings);
        let opened = opening.finish(backing.is_some());
        if opened.is_err() {
            self.service.modes.release(ino, &self.daemon.backings);
        }
        let opened = told(opened)?;
        if let Some(backing) = &backing {
            self.daemon.passed.fetch_add(1, Ordering::Relaxed);
            self.fs().note_backing(opened.handle, ino, backing.id);
        }
        // What is read by `O_DIRECT` comes from the daemon.
        let is_direct = backing.is_some() && flags & libc::O_DIRECT != 0;
        let answer = answer(opened);
        let backing = backing.map(|backing| backing.file);
        Ok(OpenAnswer { is_direct: answer.is_direct || is_direct, backing, ..answer })
    }
}
