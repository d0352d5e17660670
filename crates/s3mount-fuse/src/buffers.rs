//! The buffers into which fuser's session threads read requests.
//!
//! A thread that is killed while the kernel copies a request into its buffer gives the request back, and the kernel sends it
//! to the next daemon. But if the page of the buffer is not there yet, the kernel can't make it for a dying thread: then the
//! copy fails, and the program gets `EIO`. Of 42 writes that followed a kill at once, 4 did. So the pages are made beforehand
//! in a mount that goes on after a kill.
#![expect(unsafe_code, reason = "pages of a buffer that belongs to fuser")]

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::parking::session_threads;

/// How long threads are looked for that wait for a request: only of these it is known where their buffers are.
const LIMIT: Duration = Duration::from_secs(10);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

const PAGE_BYTES: usize = 4096;

/// Makes the pages of the first `bytes` of the buffers of all `threads` session threads. Gives up on those that do not come
/// to wait for a request for a long time.
pub(crate) async fn make_pages(threads: usize, bytes: usize) {
    let (mut done, deadline) = (BTreeSet::new(), Instant::now() + LIMIT);
    while done.len() < threads && Instant::now() < deadline {
        for thread in session_threads().unwrap_or_default() {
            if !done.contains(&thread)
                && let Some((buffer, len)) = buffer_of(thread)
                && populate(buffer, len.min(bytes))
            {
                done.insert(thread);
            }
        }
        sleep(PAUSE).await;
    }
}

/// Where the buffer of a thread is that waits in read(2), and its length.
fn buffer_of(thread: i32) -> Option<(usize, usize)> {
    parse(&std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?)
}

/// Reads what the kernel tells of a system call: its number, and its arguments.
fn parse(text: &str) -> Option<(usize, usize)> {
    let mut words = text.split_whitespace();
    if words.next()?.parse::<libc::c_long>().ok()? != libc::SYS_read {
        return None;
    }
    let mut argument = || usize::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let _device = argument()?;
    Some((argument()?, argument()?))
}

/// Makes pages, and changes no byte. Returns whether it could, or never can.
fn populate(buffer: usize, len: usize) -> bool {
    let first = buffer / PAGE_BYTES * PAGE_BYTES;
    let end = (buffer + len).next_multiple_of(PAGE_BYTES);
    // SAFETY: the kernel makes pages of what is mapped there, whatever that is, and leaves their bytes as they are.
    let made = unsafe {
        libc::madvise(std::ptr::without_provenance_mut(first), end - first, libc::MADV_POPULATE_WRITE)
    };
    // A kernel before Linux 5.14 does not know this.
    made == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::FromRawFd as _;
    use std::time::Duration;

    use super::{PAGE_BYTES, make_pages, parse};

    #[test]
    fn a_read_tells_its_buffer() {
        let line = format!("{} 0x5 0x7f0000001010 0x1001000 0x0 0x0 0x0 0x7ffc 0x7f00", libc::SYS_read);
        assert_eq!(parse(&line), Some((0x7f00_0000_1010, 0x100_1000)));
        assert_eq!(parse("running"), None);
        assert_eq!(parse("202 0x1 0x2 0x3 0x0 0x0 0x0 0x0 0x0"), None);
    }

    /// The pages of a part of a mapping that are there.
    fn resident(start: usize, len: usize) -> usize {
        let mut pages = vec![0_u8; len.div_ceil(PAGE_BYTES)];
        // SAFETY: the answer has a byte for each page.
        let result =
            unsafe { libc::mincore(std::ptr::without_provenance_mut(start), len, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[tokio::test]
    async fn the_buffers_of_waiting_threads_get_pages() {
        let mut pipe = [0; 2];
        // SAFETY: the kernel has just opened both for this.
        let (reader, writer) = unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            (File::from_raw_fd(pipe[0]), File::from_raw_fd(pipe[1]))
        };
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("fuser-test".to_owned());
        let thread = thread.spawn(move || {
            let mut buffer = vec![0; 4 << 20];
            tell.send(buffer.as_ptr() as usize).expect("a receiver");
            let mut reader = reader;
            reader.read(&mut buffer).expect("an end")
        });
        let buffer = told.recv().expect("a buffer").next_multiple_of(PAGE_BYTES);
        assert_eq!(resident(buffer + PAGE_BYTES, 1 << 20), 0);
        tokio::time::timeout(Duration::from_secs(20), make_pages(1, 1 << 20)).await.expect("pages");
        assert!(resident(buffer, 1 << 20) >= 255);
        drop(writer);
        assert_eq!(thread.expect("a thread").join().expect("its end"), 0);
    }
}
