//! Reports to the service manager (systemd) that started this process in the foreground, by the protocol of
//! sd_notify(3). Without a service manager this does nothing.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use nix::sys::socket::{MsgFlags, send};
use sd_notify::NotifyState;

/// Reports that the mount answers, and `status`, which `systemctl status` shows.
pub(crate) fn ready(status: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the mount is about to end. What was written and closed goes to the store yet.
pub(crate) fn stopping() {
    report(&[NotifyState::Stopping, NotifyState::Status("ending: files that were closed go to the store")]);
}

/// The socket of the process that keeps the mount, if that is the parent of this one. It passes on what it is told.
static HOLDER: OnceLock<OwnedFd> = OnceLock::new();

/// Reports to the process at the other end of `socket` from now on.
pub(super) fn set_holder(socket: OwnedFd) {
    // There is one holder.
    let _ = HOLDER.set(socket);
}

/// Whether this process reports to a holder by now.
pub(super) fn has_holder() -> bool {
    HOLDER.get().is_some()
}

/// Tells the service manager, or the holder, these lines.
pub(super) fn tell(lines: &str) {
    match HOLDER.get() {
        // It fails where the holder was killed.
        Some(holder) => drop(send(holder.as_raw_fd(), lines.as_bytes(), MsgFlags::MSG_NOSIGNAL)),
        None => report(&[NotifyState::Custom(lines)]),
    }
}

fn report(states: &[NotifyState<'_>]) {
    if has_holder() {
        let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
        return tell(&lines);
    }
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager can't be reached");
    }
}
