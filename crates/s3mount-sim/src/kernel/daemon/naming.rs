//! Names: looking them up, making, removing and renaming them (`adapter/dir.rs` and `adapter/write.rs`).

use std::sync::Arc;

use s3mount_fs::{Entry, InodeNo, Place, StoredAttr};

use super::requests::{nothing, told};
use super::{Caller, Daemon, Turn};

impl Daemon {
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
    ) -> Result<Entry, i32> {
        let number = self.record.sent(caller.pid, "LOOKUP", parent.0, || name.to_owned());
        let name = name.to_owned();
        let work = move |turn: Turn| {
            let name = name.clone();
            async move { told(turn.fs().lookup(parent, &name).await) }
        };
        let forget = |turn: &Turn, entry: Entry| turn.fs().forget(entry.attr.ino, 1);
        self.request(caller, number, Some(parent), work, forget).await
    }

    pub(crate) fn forget(self: &Arc<Self>, ino: InodeNo, count: u64) {
        self.in_background(false, move |turn| turn.fs().forget(ino, count));
    }

    pub(crate) async fn mkdir(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
    ) -> Result<Entry, i32> {
        let number = self.record.sent(caller.pid, "MKDIR", parent.0, || name.to_owned());
        let name = name.to_owned();
        let work = move |turn: Turn| {
            let name = name.clone();
            async move {
                let attr = StoredAttr::new_folder(0o755, 0, 0);
                told(match turn.is_resent {
                    false => turn.fs().mkdir(parent, &name, attr).await,
                    true => turn.fs().mkdir_again(parent, &name, attr).await,
                })
            }
        };
        self.request(caller, number, Some(parent), work, nothing).await
    }

    pub(crate) async fn remove(
        self: &Arc<Self>,
        caller: &Caller,
        (parent, name): (InodeNo, &str),
        is_dir: bool,
    ) -> Result<(), i32> {
        let call = if is_dir { "RMDIR" } else { "UNLINK" };
        let number = self.record.sent(caller.pid, call, parent.0, || name.to_owned());
        let name = name.to_owned();
        let work = move |turn: Turn| {
            let name = name.clone();
            async move {
                let fs = turn.fs();
                told(match (is_dir, turn.is_resent) {
                    (false, false) => fs.unlink(parent, &name).await,
                    (false, true) => fs.unlink_again(parent, &name).await,
                    (true, false) => fs.rmdir(parent, &name).await,
                    (true, true) => fs.rmdir_again(parent, &name).await,
                })
            }
        };
        self.request(caller, number, Some(parent), work, nothing).await
    }

    pub(crate) async fn rename(
        self: &Arc<Self>,
        caller: &Caller,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
        keeps_target: bool,
    ) -> Result<(), i32> {
        let call = if keeps_target { "RENAME2" } else { "RENAME" };
        let number =
            self.record.sent(caller.pid, call, from.0.0, || format!("{} to {} {}", from.1, to.0, to.1));
        let (old, new, folders) = (from.1.to_owned(), to.1.to_owned(), (from.0, to.0));
        let work = move |turn: Turn| {
            let (old, new) = (old.clone(), new.clone());
            async move {
                let hold = turn.daemon.hold(folders.1);
                let from = Place { parent: folders.0, name: &old };
                let to = Place { parent: folders.1, name: &new };
                let renamed = match turn.is_resent {
                    false => turn.fs().rename(from, to, keeps_target).await,
                    true => turn.fs().rename_again(from, to, keeps_target).await,
                };
                drop(hold);
                told(renamed)
            }
        };
        self.request(caller, number, Some(from.0), work, nothing).await
    }
}
