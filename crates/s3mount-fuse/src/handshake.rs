//! The handshake with the kernel (`FUSE_INIT`), kept for the next daemon.
//!
//! The kernel shakes hands once for each mount. A daemon that takes over a mount finds ordinary requests on the device.
//! So the handshake goes through a socket: the session of the first daemon reads the kernel's request from there, and
//! the session of each later one reads the same request again. Then the device takes the socket's number.
#![expect(unsafe_code, reason = "the device takes the place of a socket")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use fuser::{Config, Filesystem, Session, SessionACL};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// The least buffer for which the kernel gives its first request, with room.
const BUFFER_BYTES: usize = 64 << 10;

/// Where `fuse_init_in.flags` and `flags2` lie in the request, behind its header of 40 bytes.
const ASKED: [usize; 2] = [52, 56];

/// Where `fuse_init_out.flags` and `flags2` lie in the answer, behind its header of 16 bytes.
const ANSWERED: [usize; 2] = [28, 48];

/// Where `fuse_init_out.max_write` and `max_stack_depth` lie.
const LIMITS: [usize; 2] = [36, 52];

/// `FUSE_INIT_EXT`: there are more flags than the first 32.
const HAS_MORE_FLAGS: u32 = 1 << 30;

/// `FUSE_HAS_RESEND`, in the second flags: the kernel sends requests again that the last daemon did not answer.
const HAS_RESEND: u32 = 1 << 7;

/// `FUSE_NOTIFY_RESEND`
const RESEND: i32 = 7;

/// What the kernel has asked for, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

impl Handshake {
    /// Whether the kernel sends requests again that have no answer.
    pub(crate) fn can_resend(&self) -> bool {
        word(&self.request, ASKED[0]) & HAS_MORE_FLAGS != 0 && word(&self.request, ASKED[1]) & HAS_RESEND != 0
    }

    /// The request as from a kernel that has nothing but what was agreed on.
    fn request_again(&self) -> Vec<u8> {
        let mut request = self.request.clone();
        let agreed = [word(&self.answer, ANSWERED[0]) | HAS_MORE_FLAGS, word(&self.answer, ANSWERED[1])];
        for (at, agreed) in ASKED.into_iter().zip(agreed) {
            let asked = word(&request, at) & agreed;
            set_word(&mut request, at, asked);
        }
        request
    }

    /// Whether a session that gave this answer serves a mount for which the kernel got `self.answer`.
    fn is_answered_by(&self, answer: &[u8]) -> bool {
        let mut fields = ANSWERED.into_iter().chain(LIMITS);
        fields.all(|at| word(&self.answer, at) == word(answer, at))
    }
}

/// The handshake that a session begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beginning<'a> {
    /// The kernel's own.
    New {
        /// The kernel is taken for one that sends no request again.
        without_resend: bool,
    },
    /// The one of the daemon that had the device before.
    Kept(&'a Handshake),
}

/// Starts a session on `device`, and returns the handshake. With a kept one it goes on from there: the kernel sends again
/// what has no answer. One that can't do that has its answers from the daemon before.
///
/// # Errors
/// `Unsupported` where the sessions would differ, and those of the handshake.
pub(crate) fn start<F: Filesystem>(
    fs: F,
    device: &OwnedFd,
    acl: SessionACL,
    mut options: Config,
    beginning: Beginning<'_>,
) -> io::Result<(Session<F>, Handshake)> {
    // A request that was read from a clone of the device fails when that clone is closed. Clones make nothing faster: 4,
    // 16 and 64 streams take the same CPU and have the same throughput without them.
    options.clone_fd = false;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let mut device_file = File::from(device.try_clone()?);
    let request = match beginning {
        Beginning::Kept(kept) => kept.request_again(),
        Beginning::New { without_resend } => {
            let mut request = vec![0; BUFFER_BYTES];
            let len = device_file.read(&mut request)?;
            request.truncate(len);
            if without_resend {
                let flags = word(&request, ASKED[1]) & !HAS_RESEND;
                set_word(&mut request, ASKED[1], flags);
            }
            request
        }
    };
    send(ours.as_raw_fd(), &request, MsgFlags::empty())?;
    let session = Session::from_fd(fs, theirs, acl, options)?;
    let mut answer = vec![0; BUFFER_BYTES];
    let len = recv(ours.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(len);
    let handshake = match beginning {
        Beginning::New { .. } => {
            device_file.write_all(&answer)?;
            Handshake { request, answer }
        }
        Beginning::Kept(kept) if kept.is_answered_by(&answer) => {
            if kept.can_resend() {
                resend(&mut device_file)?;
            }
            kept.clone()
        }
        Beginning::Kept(_) => {
            let text = "this build, or these flags, ask the kernel for something else than the daemon before";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
    };
    // SAFETY: both are open. The session has the second one and closes it later, whatever it stands for.
    if unsafe { libc::dup3(device.as_raw_fd(), session.as_fd().as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((session, handshake))
}

/// Has the kernel send again all requests that were read and not answered. Nothing may be read before that: these
/// requests would come twice.
fn resend(device: &mut File) -> io::Result<()> {
    let mut notice = Vec::with_capacity(16);
    notice.extend_from_slice(&16_u32.to_le_bytes());
    notice.extend_from_slice(&RESEND.to_le_bytes());
    notice.extend_from_slice(&0_u64.to_le_bytes());
    device.write_all(&notice)
}

#[cfg(test)]
mod tests {
    use super::{ANSWERED, ASKED, HAS_MORE_FLAGS, HAS_RESEND, Handshake, set_word, word};

    fn handshake(asked: [u32; 2], answered: [u32; 2]) -> Handshake {
        let (mut request, mut answer) = (vec![0; 104], vec![0; 80]);
        for at in 0..2 {
            set_word(&mut request, ASKED[at], asked[at]);
            set_word(&mut answer, ANSWERED[at], answered[at]);
        }
        Handshake { request, answer }
    }

    #[test]
    fn a_later_session_is_offered_what_the_first_one_took() {
        let first = handshake([HAS_MORE_FLAGS | 0b111, HAS_RESEND | 0b11], [HAS_MORE_FLAGS | 0b101, 0b10]);
        assert!(first.can_resend());
        let again = first.request_again();
        assert_eq!(ASKED.map(|at| word(&again, at)), [HAS_MORE_FLAGS | 0b101, 0b10]);
        assert!(first.is_answered_by(&handshake([0; 2], [HAS_MORE_FLAGS | 0b101, 0b10]).answer));
        assert!(!first.is_answered_by(&handshake([0; 2], [HAS_MORE_FLAGS | 0b001, 0b10]).answer));
        assert!(!handshake([0b111, HAS_RESEND], [0; 2]).can_resend(), "an old kernel has no such flags");
    }
}
