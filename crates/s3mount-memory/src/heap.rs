//! The heap, which holds all that is not payload: names, inodes and requests.
#![expect(unsafe_code, reason = "mallopt and malloc_trim")]

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

/// From this size on, an allocation gets pages of its own, which go back to the kernel when it is freed.
const OWN_PAGES_BYTES: libc::c_int = 256 << 10;

/// How many heaps the threads share, if they do.
const HEAPS: libc::c_int = 2;

/// Has all threads share a few heaps. glibc by itself makes up to eight for each processor, and what is free in one is
/// of no use to threads of another: 24 writers had 184 MiB at the peak with a limit of 64 MiB, and 126 with two heaps.
/// Call it before other threads run.
pub fn share_heaps() {
    // SAFETY: it sets a number, under malloc's own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Has large allocations come from pages of their own. glibc by itself raises the size from which they do, up
/// to 32 MiB, whenever such an allocation is freed. The CRT then takes the 512 KiB messages of its requests
/// from the heap, and leaves holes there which stay resident: with 256 readers and a million names, the peak
/// RSS was 220 MiB, and 200 with this. Call it before other threads run.
pub fn keep_heap_small() {
    // SAFETY: it sets a number, under malloc's own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
    }
}
