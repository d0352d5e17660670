//! The queue: readers that wait for a buffer, in order of arrival.
//!
//! When the first reader's buffer is too large for the free memory, readers behind it that fit may pass: they
//! give their memory back soon, and memory that nobody can use helps nobody. Only [`MAX_PASSES`] of them may
//! pass. After that the free memory grows until the first reader fits.

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
    len: usize,
    sender: oneshot::Sender<B>,
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
        self.waiting.front().map_or(0, |first| first.len as u64)
    }

    pub(crate) fn push(&mut self, len: usize) -> oneshot::Receiver<B> {
        let (sender, receiver) = oneshot::channel();
        self.bytes += len as u64;
        self.waiting.push_back(Waiting { len, sender });
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

    /// Hands out buffers as long as `cut` has one for a length. Returns them with the readers' senders, to be
    /// sent when no lock is held.
    pub(crate) fn serve(&mut self, mut cut: impl FnMut(usize) -> Option<B>) -> Vec<(oneshot::Sender<B>, B)> {
        let mut served = Vec::new();
        let mut too_large = usize::MAX;
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if at > 0 && self.passes >= MAX_PASSES {
                break;
            }
            let len = waiting.len;
            let fits = if len < too_large { cut(len) } else { None };
            match fits {
                Some(buffer) => {
                    self.passes += u32::from(at > 0);
                    served.extend(self.take(at).map(|sender| (sender, buffer)));
                }
                None => {
                    too_large = too_large.min(len);
                    at += 1;
                }
            }
        }
        served
    }

    fn take(&mut self, at: usize) -> Option<oneshot::Sender<B>> {
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.len as u64;
        if at == 0 {
            self.passes = 0;
        }
        Some(waiting.sender)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PASSES, Queue};

    /// Serves from `free` bytes. Returns the lengths that were handed out.
    fn serve(queue: &mut Queue<usize>, mut free: usize) -> Vec<usize> {
        let served = queue.serve(|len| {
            free = free.checked_sub(len)?;
            Some(len)
        });
        served.into_iter().map(|(_, len)| len).collect()
    }

    #[test]
    fn the_first_is_passed_by_those_who_fit_and_only_so_often() {
        let mut queue = Queue::new();
        let receivers: Vec<_> = [8, 4, 1, 2, 1].map(|len| queue.push(len)).into();
        assert_eq!(serve(&mut queue, 4), [4], "in order, where it fits");
        assert_eq!(serve(&mut queue, 3), [1, 2]);
        assert_eq!((queue.len(), queue.bytes(), queue.first_bytes()), (2, 9, 8));
        let more: Vec<_> = (0..2 * MAX_PASSES).map(|_| queue.push(1)).collect();
        let passed: usize = (0..MAX_PASSES).map(|_| serve(&mut queue, 2).len()).sum();
        assert_eq!(passed + 3, MAX_PASSES as usize);
        assert_eq!(serve(&mut queue, 7), [], "it is the first one's turn");
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
        let first = queue.push(8);
        let more: Vec<_> = (0..MAX_PASSES).map(|_| queue.push(1)).collect();
        assert_eq!(serve(&mut queue, 7).len(), 7);
        drop(first);
        queue.forget_closed();
        assert_eq!(queue.passes, 0);
        assert_eq!(serve(&mut queue, 100).len(), more.len() - 7);
    }
}
