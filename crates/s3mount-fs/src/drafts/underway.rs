//! Waiting WRITEs, and the READs that must wait for them.
//!
//! The kernel does not lock pages for a WRITE around its cache. So it may ask for a page of a map while a WRITE to that
//! page is under way. With the old bytes, the page would stay wrong, and would be written back over the WRITE.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::watch;

/// The kernel maps pages of this many bytes.
const PAGE: u64 = 4096;

/// The pages of waiting WRITEs, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Underway {
    writes: watch::Sender<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    next: u64,
    /// The range of each, in bytes.
    waiting: BTreeMap<u64, Range<u64>>,
}

impl Writes {
    fn has(&self, before: u64, range: &Range<u64>) -> bool {
        let is_met = |write: &Range<u64>| write.start < range.end && range.start < write.end;
        self.waiting.range(..before).any(|(_, write)| is_met(write))
    }
}

/// A waiting WRITE, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderwayWrite {
    all: Arc<Underway>,
    number: u64,
}

impl Drop for UnderwayWrite {
    fn drop(&mut self) {
        self.all.writes.send_modify(|writes| {
            writes.waiting.remove(&self.number);
        });
    }
}

impl Underway {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { writes: watch::Sender::new(Writes::default()) })
    }

    /// Notes that a WRITE of these bytes waits.
    pub(crate) fn begin(self: &Arc<Self>, start: u64, end: u64) -> UnderwayWrite {
        let range = start / PAGE * PAGE..end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let mut number = 0;
        self.writes.send_modify(|writes| {
            number = writes.next;
            writes.next += 1;
            writes.waiting.insert(number, range);
        });
        UnderwayWrite { all: self.clone(), number }
    }

    /// Waits until no WRITE from before this call that changes pages of these bytes is under way.
    pub(crate) fn wait(&self, start: u64, end: u64) -> impl Future<Output = ()> + Send + 'static {
        let (range, before) = (start..end, self.writes.borrow().next);
        let mut writes = self.writes.subscribe();
        async move {
            // If the file is gone, so are its WRITEs.
            drop(writes.wait_for(|writes| !writes.has(before, &range)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::Underway;

    #[test]
    fn a_read_waits_for_the_writes_to_its_pages_that_came_before() {
        let all = Underway::new();
        let write = all.begin(5000, 5001);
        let (mut before, mut there, mut behind) =
            (Box::pin(all.wait(0, 4096)), Box::pin(all.wait(8191, 9000)), Box::pin(all.wait(8192, 9000)));
        assert!((&mut before).now_or_never().is_some() && (&mut behind).now_or_never().is_some());
        assert!((&mut there).now_or_never().is_none());
        let _later = all.begin(0, u64::MAX);
        drop(write);
        assert!((&mut there).now_or_never().is_some(), "a later WRITE is not waited for");
        assert!(all.wait(0, 1).now_or_never().is_none());
    }
}
