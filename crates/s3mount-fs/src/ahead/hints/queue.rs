//! A queue of hints, packed as they were written, because an epoch may have millions of them.

use std::collections::VecDeque;

use super::hint::Hint;
use crate::open::open_clock::OpenClock;

/// The text of one chunk, in bytes. The first line that does not fit begins the next chunk.
const CHUNK_BYTES: usize = 16 << 10;

/// What a chunk takes besides its text, in bytes: its entry in the queue, and the allocator's overhead.
const CHUNK_OVERHEAD: usize = size_of::<Chunk>() + 32;

/// A queue of hints.
#[derive(Debug, Default)]
pub(crate) struct HintQueue {
    chunks: VecDeque<Chunk>,
    /// The offset of the next line in the first chunk.
    at: usize,
    len: usize,
    bytes: usize,
}

/// Lines that were written at one time. Each ends in a newline.
#[derive(Debug)]
struct Chunk {
    given_at: OpenClock,
    text: Vec<u8>,
}

impl Chunk {
    fn bytes(&self) -> usize {
        self.text.capacity() + CHUNK_OVERHEAD
    }
}

impl HintQueue {
    /// How many hints there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How much memory the hints take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a line that [`Hint::parse`] accepts.
    pub(crate) fn push(&mut self, line: &[u8], given_at: OpenClock) {
        let fits =
            |chunk: &&mut Chunk| chunk.given_at == given_at && chunk.text.len() + line.len() < CHUNK_BYTES;
        let chunk = match self.chunks.back_mut().filter(fits) {
            Some(chunk) => {
                self.bytes -= chunk.bytes();
                chunk
            }
            None => self.chunks.push_back_mut(Chunk { given_at, text: Vec::with_capacity(line.len() + 1) }),
        };
        chunk.text.extend_from_slice(line);
        chunk.text.push(b'\n');
        self.bytes += chunk.bytes();
        self.len += 1;
    }

    /// Takes the first hint.
    pub(crate) fn pop(&mut self) -> Option<Hint> {
        let chunk = self.chunks.front()?;
        let rest = &chunk.text[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let hint = Hint::parse(&rest[..end], chunk.given_at);
        self.len -= 1;
        self.at += end + 1;
        if self.at == chunk.text.len() {
            self.bytes -= chunk.bytes();
            self.chunks.pop_front();
            self.at = 0;
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CHUNK_OVERHEAD, HintQueue};
    use crate::open::open_clock::OpenClock;

    #[test]
    fn short_lines_take_little_more_than_their_text() {
        let mut queue = HintQueue::default();
        for _ in 0..1_000_000 {
            queue.push(b"a", OpenClock(7));
        }
        assert!(queue.bytes() < 3_000_000, "{} bytes for 2,000,000", queue.bytes());
        // Each hint at a different time.
        let mut queue = HintQueue::default();
        for given_at in 0..1000 {
            queue.push(b"a", OpenClock(given_at));
        }
        assert!(queue.bytes() >= 1000 * CHUNK_OVERHEAD, "the memory of chunks counts");
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            hints in proptest::collection::vec(("[a-z]{1,8}(/[a-z]{1,250}){0,4}", 0..3_u32), 0..60),
            pops in 0..60_usize,
        ) {
            let mut queue = HintQueue::default();
            let (mut came, mut popped) = (Vec::new(), Vec::new());
            for (index, (path, given_at)) in hints.iter().enumerate() {
                queue.push(path.as_bytes(), OpenClock(*given_at));
                came.push((path.as_str(), *given_at));
                if index < pops {
                    popped.push(queue.pop().expect("one"));
                }
            }
            popped.extend(std::iter::from_fn(|| queue.pop()));
            let popped: Vec<_> = popped.iter().map(|hint| (&*hint.path, hint.given_at.0)).collect();
            prop_assert_eq!(popped, came);
            prop_assert_eq!((queue.len(), queue.bytes()), (0, 0));
        }
    }
}
