//! The kernel's readahead on the mount.
//!
//! The kernel keeps one readahead for the device of a mount. It copies that number into each file that is
//! opened, once OPEN has been answered. So a file that is read at random through maps can have a small
//! readahead of its own: the device's is lowered before the file's OPEN is answered.
//!
//! The kernel does not tell when it copies the number. So the number stays for a while after each OPEN that
//! relies on it. An OPEN of a map that comes at such a moment gets the large readahead, and the map's
//! read-arounds are refused then. Other files never get the small one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

/// Readahead of a file that is read at random through maps, in bytes. A window of 8 KiB then lies in one READ,
/// and mostly in one unit of `--random-read-size`. 8 KiB windows by 4 readers: 3,023 a second with 64 KiB,
/// 2,775 with 128 KiB, 522 with 1 MiB (kernel 6.18, 2 cores).
const RANDOM_BYTES: u64 = 64 << 10;

/// How long after the answer to an OPEN the kernel may still copy the readahead. It takes microseconds, and
/// longer where all cores are busy.
const COPIED: Duration = Duration::from_millis(20);

/// The readahead of a mount's device. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Readahead(Arc<Device>);

#[derive(Debug)]
struct Device {
    file: File,
    ordinary_bytes: u64,
    runtime: Handle,
    state: Mutex<ReadaheadState>,
}

#[derive(Debug)]
struct ReadaheadState {
    is_lowered: bool,
    /// When the last OPEN was answered that relies on the ordinary readahead, and on the small one.
    ordinary_at: Option<Instant>,
    random_at: Option<Instant>,
}

impl Readahead {
    /// Sets the readahead of the mount whose device has these numbers, as `0:42`. The kernel starts at 128 KiB, and a FUSE filesystem
    /// can only ask for less; 1 MiB makes one buffered stream half as fast again, and a mapped one
    /// four times as fast (measured on kernel 6.18).
    ///
    /// # Errors
    /// Only root can set it.
    pub(crate) fn raise(device: &str, bytes: u64, runtime: &Handle) -> io::Result<Self> {
        let file = File::options().write(true).open(format!("/sys/class/bdi/{device}/read_ahead_kb"))?;
        let state = Mutex::new(ReadaheadState { is_lowered: false, ordinary_at: None, random_at: None });
        let readahead =
            Self(Arc::new(Device { file, ordinary_bytes: bytes, runtime: runtime.clone(), state }));
        readahead.0.write(bytes)?;
        Ok(readahead)
    }

    /// Sets the readahead that the file of an OPEN is to have. To be called before the OPEN is answered.
    pub(crate) fn before_open(&self, is_random_map: bool) {
        let device = &self.0;
        if device.ordinary_bytes <= RANDOM_BYTES {
            return;
        }
        let now = Instant::now();
        let mut state = device.lock();
        if !is_random_map {
            state.ordinary_at = Some(now);
            device.set(&mut state, false);
        } else if state.may_lower(now) {
            state.random_at = Some(now);
            if !state.is_lowered {
                device.set(&mut state, true);
                device.runtime.spawn(raise_again(self.clone()));
            }
        }
    }
}

impl ReadaheadState {
    /// Whether no OPEN relies on the ordinary readahead any more.
    fn may_lower(&self, now: Instant) -> bool {
        self.ordinary_at.is_none_or(|at| now.saturating_duration_since(at) >= COPIED)
    }

    /// Whether no OPEN relies on the small readahead any more.
    fn may_raise(&self, now: Instant) -> bool {
        self.random_at.is_none_or(|at| now.saturating_duration_since(at) >= COPIED)
    }
}

impl Device {
    fn lock(&self) -> MutexGuard<'_, ReadaheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: &mut ReadaheadState, is_lowered: bool) {
        if state.is_lowered == is_lowered {
            return;
        }
        let bytes = if is_lowered { RANDOM_BYTES } else { self.ordinary_bytes };
        match self.write(bytes) {
            Ok(()) => state.is_lowered = is_lowered,
            Err(error) => tracing::debug!(%error, bytes, "the kernel's readahead cannot be set"),
        }
    }

    fn write(&self, bytes: u64) -> io::Result<()> {
        self.file.write_all_at((bytes / 1024).to_string().as_bytes(), 0)
    }
}

/// Sets the ordinary readahead again once no file is opened for random maps. `posix_fadvise` and administrators
/// look at the number of the device.
async fn raise_again(readahead: Readahead) {
    loop {
        tokio::time::sleep(COPIED).await;
        let mut state = readahead.0.lock();
        if state.may_raise(Instant::now()) {
            readahead.0.set(&mut state, false);
        }
        if !state.is_lowered {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{COPIED, ReadaheadState};

    #[test]
    fn one_open_does_not_take_the_readahead_of_another() {
        let now = Instant::now();
        let mut state = ReadaheadState { is_lowered: false, ordinary_at: None, random_at: None };
        assert!(state.may_lower(now) && state.may_raise(now));
        (state.ordinary_at, state.random_at) = (Some(now), Some(now));
        let soon = now + COPIED - Duration::from_millis(1);
        assert!(!state.may_lower(soon) && !state.may_raise(soon));
        assert!(state.may_lower(now + COPIED) && state.may_raise(now + COPIED));
    }
}
