//! The only global variable of the CRT that we set.
#![expect(unsafe_code, reason = "the CRT has no function to set it")]

use std::sync::Once;

/// The number of bytes that the CRT reads from a socket at once, and in one turn of its event loop. The CRT's
/// default is 16 KiB. With 256 KiB a client takes 0.23 CPU seconds per GiB instead of 0.57, and one loop
/// carries twice as much (measured on loopback with 8 MiB parts, 2 loops). 512 KiB takes 5 to 14 % off the
/// daemon's CPU seconds per GiB, and 1 MiB up to 20 %. But a message of this size may become resident for
/// each connection, in addition to `--memory-limit`: 64 streams take 11 MiB more with 512 KiB, and 20 MiB
/// more with 1 MiB.
const FRAGMENT_BYTES: usize = 512 << 10;

/// Sets the variable. Must be called before any other call of the CRT.
pub(crate) fn tune() {
    static TUNED: Once = Once::new();
    TUNED.call_once(|| {
        // SAFETY: `Once` excludes a second writer, and no CRT thread runs yet that could read it.
        unsafe { mountpoint_s3_crt_sys::g_aws_channel_max_fragment_size = FRAGMENT_BYTES };
    });
}
