//! Open directories (`adapter/dir.rs`).

use std::sync::Arc;

use s3mount_fs::{DirEntry, DirOffset, Entry, FileHandle, FsError, InodeNo};

use super::requests::{nothing, told};
use super::{Caller, Daemon, Turn};

/// Names taken out of a listing for one READDIR, and for one READDIRPLUS that asks for attributes (`adapter/dir.rs`).
const NAMES_PER_REQUEST: usize = 1024;
const NAMES_WITH_ATTRIBUTES: usize = 192;

impl Daemon {
    pub(crate) async fn opendir(self: &Arc<Self>, caller: &Caller, ino: InodeNo) -> Result<FileHandle, i32> {
        let number = self.record.sent(caller.pid, "OPENDIR", ino.0, String::new);
        let work = move |turn: Turn| async move {
            turn.may_leak(true);
            told(turn.fs().opendir(ino))
        };
        let handle = self.request(caller, number, None, work, nothing).await?;
        self.opened(true, handle);
        Ok(handle)
    }

    pub(crate) fn releasedir(self: &Arc<Self>, ino: InodeNo, handle: FileHandle) {
        self.in_background(true, move |turn| {
            turn.daemon.record.sent(0, "RELEASEDIR", ino.0, String::new);
            turn.fs().releasedir(handle);
            turn.daemon.released(true, handle);
        });
    }

    /// Names for a READDIR, as many as have `room`.
    pub(crate) async fn readdir(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        offset: DirOffset,
        room: impl FnMut(&str) -> bool + Clone + Send + 'static,
    ) -> Result<Vec<DirEntry>, i32> {
        let number = self.record.sent(caller.pid, "READDIR", ino.0, || offset.0.to_string());
        let work = move |turn: Turn| {
            let mut room = room.clone();
            async move {
                let mut names = told(turn.fs().readdir(handle, offset, NAMES_PER_REQUEST).await)?;
                let fitting = names.iter().take_while(|name| room(&name.name)).count();
                names.truncate(fitting);
                turn.note_listed(handle, names.last().map(|last| last.next));
                Ok(names)
            }
        };
        self.request(caller, number, Some(ino), work, nothing).await
    }

    /// Names with their attributes for a READDIRPLUS, as many as have `room` for their names.
    pub(crate) async fn readdirplus(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        offset: DirOffset,
        room: impl FnMut(&str) -> bool + Clone + Send + 'static,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, i32> {
        let number = self.record.sent(caller.pid, "READDIRPLUS", ino.0, || offset.0.to_string());
        let work = move |turn: Turn| {
            let room = room.clone();
            async move {
                let entries = turn.entries(handle, offset, room).await?;
                turn.note_listed(handle, entries.last().map(|(last, _)| last.next));
                Ok(entries)
            }
        };
        self.request(caller, number, Some(ino), work, nothing).await
    }
}

impl Turn {
    /// Notes for the next daemon how far a directory was read.
    fn note_listed(&self, handle: FileHandle, last: Option<DirOffset>) {
        if let Some(last) = last {
            self.fs().note_listed(handle, last);
        }
    }

    async fn entries(
        &self,
        handle: FileHandle,
        mut offset: DirOffset,
        mut room: impl FnMut(&str) -> bool,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, i32> {
        let fs = self.fs();
        let most = if fs.keeps_attributes() { NAMES_WITH_ATTRIBUTES } else { NAMES_PER_REQUEST };
        let mut entries = Vec::new();
        loop {
            let page = told(fs.readdir_with_attributes(handle, offset, most).await)?;
            let last = page.last().map(|last| last.next);
            for name in page {
                let entry = match name.ino {
                    Some(_) => None,
                    None => match fs.entry_before(handle, name.next).await {
                        Err(FsError::NotFound) => continue,
                        entry => Some(told(entry)?),
                    },
                };
                if !room(&name.name) {
                    if let Some(entry) = entry {
                        fs.forget(entry.attr.ino, 1);
                    }
                    return Ok(entries);
                }
                entries.push((name, entry));
            }
            match last {
                Some(last) if entries.is_empty() => offset = last,
                _ => return Ok(entries),
            }
        }
    }
}
