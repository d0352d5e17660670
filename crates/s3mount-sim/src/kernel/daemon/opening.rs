//! OPENs where the kernel reads whole files of the disk by itself (`adapter/open.rs` and `adapter/write.rs`).

use std::sync::atomic::Ordering;

use s3mount_fs::{FsError, InodeNo, Opening};

use super::Daemon;
use super::requests::{OpenAnswer, answer, told, write_open};

impl Daemon {
    /// An OPEN that changes the file (`on_open_to_write`).
    pub(super) async fn open_to_write(&self, ino: InodeNo, flags: i32, pid: u32) -> Result<OpenAnswer, i32> {
        if self.has_passthrough && !self.modes.enter(ino) {
            self.fs.detach(ino, pid);
            return told(Err(FsError::Outdated));
        }
        let opened = self.fs.clone().open_to_write_by(ino, write_open(flags), pid).await;
        if opened.is_err() && self.has_passthrough {
            self.modes.release(ino);
        }
        told(opened.map(answer))
    }

    /// An OPEN for reading of a file of the bucket, which may lie on the disk as a whole (`on_open`).
    pub(super) async fn open_object(
        &self,
        ino: InodeNo,
        opening: Opening,
        flags: i32,
    ) -> Result<OpenAnswer, i32> {
        let (answer_to, answered) = tokio::sync::oneshot::channel();
        // Nobody listens where the daemon has died.
        opening.with_whole_file(move |opening, whole| drop(answer_to.send((opening, whole))));
        let (opening, whole) = answered.await.map_err(|_| libc::EIO)?;
        let backing = self.modes.open(ino, whole.as_deref());
        let opened = opening.finish(backing.is_some());
        if opened.is_err() {
            self.modes.release(ino);
        }
        let opened = told(opened)?;
        if backing.is_some() {
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
        // What is read by `O_DIRECT` comes from the daemon.
        let is_direct = backing.is_some() && flags & libc::O_DIRECT != 0;
        let answer = answer(opened);
        Ok(OpenAnswer { is_direct: answer.is_direct || is_direct, backing, ..answer })
    }
}
