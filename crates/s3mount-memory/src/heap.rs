//! The heap, which holds all that is not payload: names, inodes and requests.
#![expect(unsafe_code, reason = "malloc_trim")]

/// Gives unused memory of the heap back to the kernel. glibc by itself does so only at the heap's end: after
/// a million names were listed and forgotten, it keeps all of their memory. This walks the whole heap under
/// its lock, so it is for when much was freed.
pub fn trim_heap() {
    // SAFETY: it touches only free memory, under malloc's own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
