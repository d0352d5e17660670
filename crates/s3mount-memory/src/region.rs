//! The region: one piece of anonymous memory that all buffers are cut from.
#![expect(unsafe_code, reason = "mmap and the slices cut from it")]

use std::io;
use std::ptr::NonNull;

/// A region starts at a multiple of this, the size of a huge page on x86-64 and arm64, so that the kernel can
/// back it with huge pages (daemon CPU 0.20 -> 0.13 s/GiB in the FUSE reply).
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An anonymous mapping, aligned to huge pages. A page becomes resident when it is first written.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    mapping: NonNull<u8>,
    mapping_len: usize,
}

// SAFETY: the region is plain memory that is not tied to a thread. The pool decides who may touch which
// bytes: it gives every byte to at most one buffer.
unsafe impl Send for Region {}
// SAFETY: as above; `Region` itself reads and writes nothing.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes. Nothing of it is resident yet.
    ///
    /// # Errors
    /// The kernel's error, when the address space or its limit does not allow it.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let mapping_len = len + HUGE_PAGE_BYTES;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip < HUGE_PAGE_BYTES`, and that much was mapped beyond `len`.
        let base = unsafe { mapping.add(skip) };
        // SAFETY: the range lies in the mapping. A kernel without huge pages refuses; then pages
        // stay small, and nothing else changes. A core dump of the daemon leaves payload out.
        unsafe {
            libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE);
            libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTDUMP);
        }
        Ok(Self { base, len, mapping, mapping_len })
    }

    /// The bytes `start..start + len`.
    ///
    /// # Safety
    /// While the slice lives nobody writes to these bytes.
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.len, "slice outside the region");
        // SAFETY: inside the mapping, which lives as long as `self`; anonymous memory is
        // initialised with zeros; the caller vouches for the aliasing.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), len) }
    }

    /// The bytes `start..start + len`, to be written.
    ///
    /// # Safety
    /// While the slice lives nobody else reads or writes these bytes.
    #[expect(clippy::mut_from_ref, reason = "the pool gives each byte to one buffer only")]
    pub(crate) unsafe fn slice_mut(&self, start: usize, len: usize) -> &mut [u8] {
        assert!(start + len <= self.len, "slice outside the region");
        // SAFETY: as in `slice`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(start), len) }
    }

    /// Gives the pages of `start..start + len` back to the kernel. They read as zeros afterwards.
    ///
    /// # Safety
    /// No slice of these bytes exists.
    pub(crate) unsafe fn release(&self, start: usize, len: usize) {
        assert!(start + len <= self.len, "release outside the region");
        // SAFETY: inside the mapping, and unused by the caller's word.
        unsafe {
            libc::madvise(self.base.as_ptr().add(start).cast(), len, libc::MADV_DONTNEED);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; no buffer is left, each of them keeps the pool alive.
        unsafe {
            libc::munmap(self.mapping.as_ptr().cast(), self.mapping_len);
        }
    }
}
