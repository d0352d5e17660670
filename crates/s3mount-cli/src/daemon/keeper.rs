//! Who keeps the mount should this daemon end: the holder that `--keep-alive` starts, or systemd.
//!
//! Both keep the device, the file with what the kernel was given, the index of names if there is one, and files of the
//! spool, and give them to the next daemon.
//! Both are told by the datagrams of sd_notify(3). The holder takes them on a socket that the daemon inherits, and the
//! daemon finds what was kept on the descriptors after that socket; systemd has names for all (`FDSTORE`, `LISTEN_FDS`).
#![expect(unsafe_code, reason = "numbers become open files")]

use std::collections::HashMap;
use std::env::var;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use anyhow::{Context, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, send, sendmsg};
use rustix::fs::{MemfdFlags, memfd_create};
use s3mount_fs::{Handover, Left, SpoolKeeper};
use s3mount_fuse::{KeptSession, Mount};
use s3mount_system::open_files;
use s3mount_write::{SpoolBytes, kept_file};

use super::manager;

/// Tells a daemon that it has a holder: the number of the socket, and the number after the last kept descriptor.
pub(super) const HOLDER: &str = "S3MOUNT_HOLDER";

/// Tells the next daemon how the one before has ended.
pub(super) const BEFORE: &str = "S3MOUNT_BEFORE";

/// How a daemon has ended that was asked to.
pub(super) const MADE_WAY: &str = "has made way for another program";

/// Tells the daemon the out-of-memory score that it had before its holder lowered its own.
pub(super) const OOM_SCORE: &str = "S3MOUNT_OOM_SCORE";

/// Tells the next daemon the numbers of the spool's files, which are the last descriptors.
pub(super) const SPOOL_FILES: &str = "S3MOUNT_SPOOL_FILES";

/// What the holder is told beside what sd_notify(3) knows: the kernel's number of the mount, that only a daemon which has
/// made way can be followed by another, that a daemon makes way, and why one can't start.
pub(super) const MOUNT: &str = "X_MOUNT";
pub(super) const ONLY_PLANNED: &str = "X_ONLY_PLANNED";
pub(super) const MAKES_WAY: &str = "X_MAKES_WAY";
pub(super) const LAST_WORDS: &str = "X_LAST_WORDS";

/// The most lines of an error that the holder is told.
const LAST_LINES: usize = 3;

/// The names of the kept descriptors. The number of a file of the spool follows its name.
pub(super) const DEVICE: &str = "s3mount-device";
pub(crate) const STATE: &str = "s3mount-state";
pub(super) const SPOOL: &str = "s3mount-spool-";

/// Set in the number of the index of names, whose other bits are those of its id. Files of the spool get their numbers one
/// after another.
const INDEX: u64 = 1 << 63;

/// Where a process sets its out-of-memory score.
pub(super) const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// What the daemon before has left.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) device: OwnedFd,
    pub(crate) state: File,
    /// Files of the spool, by their numbers, and the index of names.
    files: HashMap<u64, OwnedFd>,
}

/// Who keeps the mount.
#[derive(Clone, Debug)]
pub(crate) enum Keeper {
    /// The parent of this process, on this socket.
    Holder(Arc<OwnedFd>),
    /// The service manager, and how many descriptors it takes.
    Systemd(usize),
}

/// The text of the file of settings that the first daemon of this mount has read, if this process is a later one: a crash
/// changes no setting, whatever has become of the file.
pub(crate) fn kept_settings() -> Option<String> {
    let state = match var(HOLDER) {
        Ok(numbers) => range(&numbers).filter(|(first, end)| end - first >= 3).map(|(first, _)| first + 2),
        Err(_) => {
            let mut kept = sd_notify::listen_fds_with_names().ok()?;
            kept.find_map(|(number, name)| (name == STATE).then_some(number))
        }
    };
    // Another open file of the same memory.
    let state = File::open(format!("/proc/self/fd/{}", state?)).ok()?;
    let left = Handover::look(state).ok()?;
    left.settings().and_then(|text| String::from_utf8(text.to_vec()).ok())
}

/// Tells the holder why this daemon can't start, if there is a holder.
pub(crate) fn last_words(why: &str) {
    let Some((socket, _)) = var(HOLDER).ok().and_then(|numbers| range(&numbers)) else { return };
    let why: Vec<_> = why.lines().map(str::trim).filter(|line| !line.is_empty()).take(LAST_LINES).collect();
    let text = format!("{LAST_WORDS}={}", why.join("; "));
    if manager::has_holder() {
        // The socket has another number by now.
        return manager::tell(&text);
    }
    // It fails where the holder was killed.
    let _ = send(socket, text.as_bytes(), MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}

/// The numbers of the descriptors that this process has from its keeper.
pub(crate) fn descriptors() -> Vec<RawFd> {
    match var(HOLDER).ok().and_then(|numbers| range(&numbers)) {
        Some((first, end)) => (first..end).collect(),
        None => sd_notify::listen_fds().map(Iterator::collect).unwrap_or_default(),
    }
}

fn range(numbers: &str) -> Option<(RawFd, RawFd)> {
    let (first, end) = numbers.split_once('-')?;
    Some((first.parse().ok()?, end.parse().ok()?))
}

/// Takes over a descriptor that this process was started with.
fn take(number: RawFd) -> anyhow::Result<OwnedFd> {
    ensure!(
        std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok(),
        "descriptor {number} is not open, which {HOLDER} names: do not set this variable"
    );
    // SAFETY: the descriptor is open, as /proc has just shown. It was there when this process started, so nothing in
    // this process owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Finds out who keeps the mount of this process, if anybody does, and what was kept.
///
/// # Errors
/// Those of an environment that no keeper has made.
pub(crate) fn find() -> anyhow::Result<Option<(Keeper, Option<Kept>)>> {
    if let Ok(numbers) = var(HOLDER) {
        let (first, end) = range(&numbers).with_context(|| format!("{HOLDER}={numbers} is not s3mount's"))?;
        let files: Vec<u64> = var(SPOOL_FILES)
            .iter()
            .flat_map(|files| files.split(',').filter_map(|number| number.parse().ok()))
            .collect();
        let kept = match end - first {
            1 => None,
            count if usize::try_from(count).ok() == Some(3 + files.len()) => {
                let taken =
                    files.into_iter().zip(first + 3..).map(|(file, number)| Ok((file, take(number)?)));
                let files = taken.collect::<anyhow::Result<_>>()?;
                Some(Kept { device: take(first + 1)?, state: take(first + 2)?.into(), files })
            }
            _ => anyhow::bail!("{HOLDER}={numbers} is not s3mount's"),
        };
        let socket = take(first)?;
        manager::set_holder(socket.try_clone()?);
        // Who starts programs lowers nobody's score but its own.
        if let Ok(score) = var(OOM_SCORE) {
            let _ = std::fs::write(OOM_SCORE_FILE, score);
        }
        return Ok(Some((Keeper::Holder(Arc::new(socket)), kept)));
    }
    let room = var("FDSTORE").ok().and_then(|room| room.parse::<usize>().ok()).unwrap_or_default();
    if room < 2 || var("NOTIFY_SOCKET").is_err() {
        return Ok(None);
    }
    let (mut device, mut state, mut files) = (None, None, HashMap::new());
    for (number, name) in sd_notify::listen_fds_with_names().into_iter().flatten() {
        match &*name {
            DEVICE => device = Some(take(number)?),
            STATE => state = Some(take(number)?),
            name => {
                if let Some(Ok(file)) = name.strip_prefix(SPOOL).map(str::parse) {
                    files.insert(file, take(number)?);
                }
            }
        }
    }
    let kept = device.zip(state).map(|(device, state)| Kept { device, state: state.into(), files });
    Ok(Some((Keeper::Systemd(room), kept)))
}

impl Kept {
    /// What the daemon before has left, read from its file, which this daemon goes on to write.
    ///
    /// # Errors
    /// Those of a state that this build can't read.
    pub(crate) fn open(&self) -> anyhow::Result<(Handover, Left, KeptSession)> {
        let (handover, left) = Handover::open(self.state.try_clone()?, seed()?)?;
        let session = left.session().and_then(KeptSession::read);
        let session = session.context("the daemon before has left no session with the kernel")?;
        let files = self.files.iter().filter(|(number, _)| **number & INDEX == 0);
        let files = files.map(|(number, file)| Ok((*number, kept_file(file.try_clone()?))));
        let left = left.with_files(files.collect::<io::Result<_>>()?);
        Ok((handover, left, session))
    }

    /// The index that the daemon before has had its names from, and its id, which is less than 2^63.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn index(&self) -> anyhow::Result<(File, u64)> {
        let index = self.files.iter().find(|(number, _)| **number & INDEX != 0);
        let (number, file) = index.context("the daemon before has left no index of names")?;
        Ok((file.try_clone()?.into(), number & !INDEX))
    }
}

fn seed() -> io::Result<[u8; 16]> {
    let mut seed = [0; 16];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut seed)?;
    Ok(seed)
}

/// A file in memory for what the kernel is given.
///
/// # Errors
/// Those of a machine without memory.
pub(crate) fn new_state() -> anyhow::Result<(Handover, File)> {
    let file = File::from(memfd_create(STATE, MemfdFlags::CLOEXEC).context("cannot make a file in memory")?);
    Ok((Handover::create(file.try_clone()?, seed()?)?, file))
}

impl Keeper {
    /// Has the mount kept from now on, and what the kernel is given, in `state`.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub(crate) fn keep(&self, device: BorrowedFd<'_>, state: BorrowedFd<'_>) -> io::Result<()> {
        for (name, descriptor) in [(DEVICE, device), (STATE, state)] {
            self.send(&format!("FDSTORE=1\nFDNAME={name}\n"), Some(descriptor))?;
        }
        Ok(())
    }

    /// Has the index of the mount's names kept, with its id.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub(super) fn keep_index(&self, index: BorrowedFd<'_>, id: u64) -> io::Result<()> {
        self.send(&format!("FDSTORE=1\nFDNAME={SPOOL}{}\n", INDEX | id), Some(index))
    }

    /// Has the mount not kept any more: no other daemon goes on with it, however this one ends.
    pub(crate) fn forget(&self) {
        for name in [DEVICE, STATE] {
            manager::tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
        }
    }

    /// Tells the holder that this daemon ends now, to make way for another. The exit code may come late: a thread of this
    /// process may wait in the kernel for an answer that the other daemon gives.
    pub(crate) fn tell_way(&self) {
        if let Self::Holder(_) = self {
            manager::tell(&format!("{MAKES_WAY}=1"));
        }
    }

    /// Tells the holder of the mount.
    pub(crate) fn introduce(&self, mount: &Mount) {
        if let Self::Systemd(_) = self {
            return;
        }
        if let Some(id) = mount.id() {
            manager::tell(&format!("{MOUNT}={id}"));
        }
        if !mount.can_resend() {
            manager::tell(&format!("{ONLY_PLANNED}=1"));
        }
    }

    fn send(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = [IoSlice::new(text.as_bytes())];
        let files: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let message = [ControlMessage::ScmRights(&files)];
        let message = if files.is_empty() { &[][..] } else { &message[..] };
        match self {
            Self::Holder(socket) => {
                sendmsg::<()>(socket.as_raw_fd(), &bytes, message, MsgFlags::MSG_NOSIGNAL, None)?;
            }
            Self::Systemd(_) => {
                let path = var("NOTIFY_SOCKET").unwrap_or_default();
                let address = match path.strip_prefix('@') {
                    Some(name) => UnixAddr::new_abstract(name.as_bytes())?,
                    None => UnixAddr::new(path.as_str())?,
                };
                let socket = UnixDatagram::unbound()?;
                sendmsg(socket.as_raw_fd(), &bytes, message, MsgFlags::MSG_NOSIGNAL, Some(&address))?;
            }
        }
        Ok(())
    }
}

impl SpoolKeeper for Keeper {
    fn keep(&self, number: u64, file: &Arc<dyn SpoolBytes>) -> io::Result<()> {
        let descriptor = file.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        self.send(&format!("FDSTORE=1\nFDNAME={SPOOL}{number}\n"), Some(descriptor))
    }

    fn leave(&self, number: u64) {
        if let Err(error) = self.send(&format!("FDSTOREREMOVE=1\nFDNAME={SPOOL}{number}\n"), None) {
            tracing::debug!(%error, number, "a file of the spool stays open where it is kept");
        }
    }

    fn room(&self) -> usize {
        match self {
            // When it starts a daemon it has each file twice, and the daemon has others open, too.
            Self::Holder(_) => open_files::limit() / 4,
            // The device, the state and the index have theirs.
            Self::Systemd(room) => room.saturating_sub(3),
        }
    }
}

/// Logs why another daemon had to take over.
pub(crate) fn log_end_before() {
    let how = var(BEFORE).unwrap_or_else(|_| "has ended".to_owned());
    if how == MADE_WAY {
        tracing::info!("the daemon before {how}; this one goes on with its mount");
    } else {
        tracing::warn!("the daemon before {how}; this one goes on with its mount");
    }
}
