//! What is not payload: names, inodes and requests lie on the heap.
#![expect(unsafe_code, reason = "malloc_trim")]

/// Gives the kernel back what the heap holds and nothing uses. glibc does so by itself only at the
/// heap's end: after a million names were listed and forgotten, it keeps all of their memory. Walks
/// the whole heap under its lock, so only after much was freed.
pub fn trim_heap() {
    // SAFETY: it touches only free memory, under malloc's own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
