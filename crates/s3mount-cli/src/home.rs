//! The home folder, where `~/.aws` is.
#![expect(unsafe_code, reason = "the environment is changed")]

use nix::unistd::{User, geteuid};

/// Sets `$HOME` where it is not set, as the AWS CLI takes it: from the user database. systemd's services and
/// the mounts of /etc/fstab start without it.
///
/// Must be called while the process has one thread.
pub(crate) fn find() {
    if std::env::var_os("HOME").is_some_and(|home| !home.is_empty()) {
        return;
    }
    if let Ok(Some(user)) = User::from_uid(geteuid()) {
        // SAFETY: this process has one thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var("HOME", user.dir) };
    }
}
