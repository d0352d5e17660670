//! Buffers to lend to a client. The lender sees when a buffer comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use s3mount_object::PartBuffer;

/// The byte that fills a buffer when it is lent. It shows where a client wrote nothing.
const FILL: u8 = 0xaa;

struct Buffer {
    memory: Vec<u8>,
    is_back: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.is_back.store(true, Ordering::SeqCst);
    }
}

/// A buffer that is lent.
pub(super) struct Loan {
    address: usize,
    is_back: Arc<AtomicBool>,
}

impl Loan {
    /// Whether these bytes begin where the buffer does.
    pub(super) fn is_front(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr() == self.address
    }

    pub(super) fn is_back(&self) -> bool {
        self.is_back.load(Ordering::SeqCst)
    }

    /// Waits until the buffer is given back.
    pub(super) async fn wait(&self) {
        for _ in 0..2000 {
            if self.is_back() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the buffer did not come back within 10 s");
    }
}

/// A buffer of `len` bytes.
pub(super) fn lend(len: u64) -> (Box<dyn PartBuffer>, Loan) {
    let memory = vec![FILL; usize::try_from(len).unwrap_or(usize::MAX)];
    let (address, is_back) = (memory.as_ptr().addr(), Arc::new(AtomicBool::new(false)));
    (Box::new(Buffer { memory, is_back: is_back.clone() }), Loan { address, is_back })
}
