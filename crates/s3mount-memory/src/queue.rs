//! The queue: readers that wait for a buffer, in order of arrival.
//!
//! When the first reader's buffer is too large for the free memory, readers behind it that fit may pass: they give
//! their memory back soon, and unusable memory helps no one. Only [`MAX_PASSES`] of them may pass. After that the free
//! memory grows until the first reader fits.
//!
//! Callers of a [`Share`](crate::Share) always may pass. Their memory comes back only once they have got what they wait
//! for, so a reader that waited for it, ahead of them in the queue, would wait for ever. The share bounds them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// How many others may be served before the first reader in the queue. Small reads of a store that answers
/// quickly would otherwise keep a large buffer from growing together for ever.
pub(crate) const MAX_PASSES: u32 = 16;

/// The queue. `B` is a buffer.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    waiting: VecDeque<Waiting<B>>,
    /// The sum of the lengths of all buffers that are waited for.
    bytes: u64,
    /// How many others were served since the one that is first now came to the front.
    passes: u32,
}

#[derive(Debug)]
struct Waiting<B> {
    asked: Asked,
    sender: oneshot::Sender<B>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The length of the buffer, in bytes.
    pub(crate) len: usize,
    /// Where memory is in pieces, multiples of this do. The same as `len`: nothing less does.
    pub(crate) unit: usize,
    /// Whether it is for a share.
    pub(crate) is_shared: bool,
}

impl<B> Queue<B> {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, passes: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The sum of the lengths of all buffers that are waited for, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The length of the buffer that the first reader waits for, in bytes.
    pub(crate) fn first_bytes(&self) -> u64 {
        self.waiting.front().map_or(0, |first| first.asked.len as u64)
    }

    pub(crate) fn push(&mut self, asked: Asked) -> oneshot::Receiver<B> {
        let (sender, receiver) = oneshot::channel();
        self.bytes += asked.len as u64;
        self.waiting.push_back(Waiting { asked, sender });
        receiver
    }

    /// Forgets the readers that have left.
    pub(crate) fn forget_closed(&mut self) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if waiting.sender.is_closed() {
                self.take(at);
            } else {
                at += 1;
            }
        }
    }

    /// Hands out buffers as long as `cut` has one for what is asked. Returns them with the readers' senders, to be
    /// sent when no lock is held.
    pub(crate) fn serve(&mut self, mut cut: impl FnMut(Asked) -> Option<B>) -> Vec<(oneshot::Sender<B>, B)> {
        let mut served = Vec::new();
        let mut too_large = usize::MAX;
        let mut at = 0;
        while let Some(Waiting { asked, .. }) = self.waiting.get(at) {
            let asked = *asked;
            let may_pass = at == 0 || self.passes < MAX_PASSES || asked.is_shared;
            // What does not fit in one piece may fit in several.
            let may_fit = asked.len < too_large || asked.unit < asked.len;
            let fits = if may_pass && may_fit { cut(asked) } else { None };
            match fits {
                Some(buffer) => {
                    self.passes += u32::from(at > 0 && !asked.is_shared);
                    served.extend(self.take(at).map(|sender| (sender, buffer)));
                }
                None => {
                    if may_pass {
                        too_large = too_large.min(asked.len);
                    }
                    at += 1;
                }
            }
        }
        served
    }

    fn take(&mut self, at: usize) -> Option<oneshot::Sender<B>> {
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.asked.len as u64;
        if at == 0 {
            self.passes = 0;
        }
        Some(waiting.sender)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, MAX_PASSES, Queue};

    /// A reader that waits for `len` bytes.
    fn reader(len: usize) -> Asked {
        Asked { len, unit: len, is_shared: false }
    }

    /// Serves from `free` bytes. Returns the lengths that were handed out.
    fn serve(queue: &mut Queue<usize>, mut free: usize) -> Vec<usize> {
        let served = queue.serve(|asked| {
            free = free.checked_sub(asked.len)?;
            Some(asked.len)
        });
        served.into_iter().map(|(_, len)| len).collect()
    }

    #[test]
    fn the_first_is_passed_by_those_who_fit_and_only_so_often() {
        let mut queue = Queue::new();
        let receivers: Vec<_> = [8, 4, 1, 2, 1].map(|len| queue.push(reader(len))).into();
        assert_eq!(serve(&mut queue, 4), [4], "in order, where it fits");
        assert_eq!(serve(&mut queue, 3), [1, 2]);
        assert_eq!((queue.len(), queue.bytes(), queue.first_bytes()), (2, 9, 8));
        let more: Vec<_> = (0..2 * MAX_PASSES).map(|_| queue.push(reader(1))).collect();
        let passed: usize = (0..MAX_PASSES).map(|_| serve(&mut queue, 2).len()).sum();
        assert_eq!(passed + 3, MAX_PASSES as usize);
        assert_eq!(serve(&mut queue, 7), [], "it is the first one's turn");
        let shared = queue.push(Asked { is_shared: true, ..reader(1) });
        assert_eq!(serve(&mut queue, 7), [1], "who is bounded otherwise need not wait for the first");
        drop(shared);
        assert_eq!(serve(&mut queue, 9), [8, 1]);
        assert!(!serve(&mut queue, 1).is_empty(), "the next one is not large");
        drop(receivers);
        drop(more);
        queue.forget_closed();
        assert_eq!((queue.is_empty(), queue.bytes()), (true, 0));
    }

    #[test]
    fn who_leaves_at_the_front_takes_the_count_along() {
        let mut queue = Queue::new();
        let first = queue.push(reader(8));
        let more: Vec<_> = (0..MAX_PASSES).map(|_| queue.push(reader(1))).collect();
        assert_eq!(serve(&mut queue, 7).len(), 7);
        drop(first);
        queue.forget_closed();
        assert_eq!(queue.passes, 0);
        assert_eq!(serve(&mut queue, 100).len(), more.len() - 7);
    }
}
