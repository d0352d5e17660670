//! Reports to the service manager (systemd) that started this process in the foreground, by the protocol of
//! sd_notify(3). Without a service manager this does nothing.

use sd_notify::NotifyState;

/// Reports that the mount answers, and `status`, which `systemctl status` shows.
pub(crate) fn ready(status: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the mount is about to end. What was written and closed goes to the store yet.
pub(crate) fn stopping() {
    report(&[NotifyState::Stopping, NotifyState::Status("ending: files that were closed go to the store")]);
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager can't be reached");
    }
}
