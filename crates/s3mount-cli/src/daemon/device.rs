//! A `/dev/fuse` that the program which starts s3mount has opened and mounted. So s3mount itself needs no
//! privileges, as in the pod that a CSI driver starts for a mount.
#![expect(unsafe_code, reason = "a number becomes an open file")]

use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, ensure};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};

/// The device number of `/dev/fuse`, which is the same on each Linux.
const FUSE: (u64, u64) = (10, 229);

/// How long the kernel's first request may take. It is there when mount(2) returns.
const PATIENCE_MS: u16 = 10_000;

/// Takes over the descriptor `number`, and checks that it is mounted and nobody serves it.
///
/// # Errors
/// Says what the program that has passed the descriptor must do.
pub(crate) fn take(number: RawFd) -> anyhow::Result<OwnedFd> {
    let metadata = fs::metadata(format!("/proc/self/fd/{number}")).with_context(|| {
        format!("descriptor {number} is not open; leave it open where s3mount is started (no FD_CLOEXEC)")
    })?;
    let rdev = metadata.rdev();
    ensure!(
        (u64::from(nix::libc::major(rdev)), u64::from(nix::libc::minor(rdev))) == FUSE,
        "descriptor {number} is not /dev/fuse; open that, mount it with `fd={number}`, and pass it on"
    );
    // SAFETY: the descriptor is open, as the file in /proc has just shown. It was there when this process
    // started, so nothing in this process owns it.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    prepare(&device).context("cannot use the descriptor of FUSE")?;
    let mut polled = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PATIENCE_MS).context("cannot wait for the kernel's first request")?;
    let events = polled[0].revents().unwrap_or(PollFlags::empty());
    ensure!(
        !events.contains(PollFlags::POLLERR),
        "descriptor {number} is not mounted; mount it with \
         `fd={number},rootmode=40000,user_id=UID,group_id=GID,default_permissions` before s3mount starts"
    );
    ensure!(
        events.contains(PollFlags::POLLIN),
        "descriptor {number} has no first request of the kernel; it is in use by another daemon, so mount a new one"
    );
    Ok(device)
}

/// Programs that this process starts don't get the device, and reads of it wait.
fn prepare(device: &OwnedFd) -> nix::Result<()> {
    fcntl(device, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let flags = OFlag::from_bits_retain(fcntl(device, FcntlArg::F_GETFL)?);
    fcntl(device, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::take;

    #[test]
    fn what_is_no_mounted_device_says_what_to_do() {
        let error = take(999_999).expect_err("not open").to_string();
        assert!(error.starts_with("descriptor 999999 is not open; leave it open"), "{error}");
        let null = File::open("/dev/null").expect("a device");
        let error = take(null.as_raw_fd()).expect_err("not FUSE").to_string();
        assert!(error.contains("is not /dev/fuse; open that"), "{error}");
        let unmounted = File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
        let error = take(unmounted.into_raw_fd()).expect_err("not mounted").to_string();
        assert!(error.contains("is not mounted; mount it with `fd="), "{error}");
    }
}
