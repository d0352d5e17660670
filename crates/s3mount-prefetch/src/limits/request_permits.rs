//! Request permits: permits to send GETs. [`Concurrency`] sets how many GETs are in flight.
//!
//! GETs queue here and not in the client, so the time limit of an attempt begins when it is sent. An eighth
//! of the permits is left for GETs that readers wait for: GETs ahead of their readers are only started below
//! [`RequestPermits::ahead_limit`].
//!
//! A GET that waits for its permit may hold a buffer. A GET that has its permit never waits for memory. So permits
//! always come back, and no GET waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits::concurrency::Concurrency;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};

/// If the store takes fewer GETs at once, all of them are for readers.
const LEAST_FOR_ONE_MORE: usize = 8;

/// The number of GETs in flight, and the queue of those that wait for a permit.
#[derive(Debug)]
pub(crate) struct RequestPermits {
    state: Mutex<PermitQueue>,
    /// A copy of the limit that can be read without the lock.
    limit: AtomicUsize,
    /// Whether a GET ahead was not started because of the limit.
    is_bound: AtomicBool,
}

#[derive(Debug)]
struct PermitQueue {
    concurrency: Concurrency,
    running: usize,
    /// The GETs that wait, in order of arrival.
    waiting: VecDeque<oneshot::Sender<RequestPermit>>,
    /// How many "slow down" answers the client had counted so far.
    seen_refused: u64,
}

/// The permit of one GET, which counts as in flight while this lives.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<RequestPermits>);

impl RequestPermits {
    /// At most `most` GETs are in flight.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let concurrency = Concurrency::new(most);
        let limit = AtomicUsize::new(concurrency.limit());
        let state = PermitQueue { concurrency, running: 0, waiting: VecDeque::new(), seen_refused: 0 };
        Arc::new(Self { state: Mutex::new(state), limit, is_bound: AtomicBool::new(false) })
    }

    /// The number of GETs ahead of their readers that may be in flight. An eighth of the limit is kept for GETs that
    /// readers wait for, and for LISTs.
    pub(crate) fn ahead_limit(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        limit - limit / 8
    }

    /// Notes that a GET ahead was not started because of the limit.
    pub(crate) fn on_full(&self) {
        self.is_bound.store(true, Ordering::Relaxed);
    }

    /// Waits for a permit. Permits are given in order of arrival.
    pub(crate) async fn acquire(self: &Arc<Self>) -> RequestPermit {
        let permit = {
            let mut state = lock(&self.state);
            if state.running < state.concurrency.limit() && state.waiting.is_empty() {
                state.running += 1;
                return RequestPermit(self.clone());
            }
            state.concurrency.on_wait();
            let (sender, permit) = oneshot::channel();
            state.waiting.push_back(sender);
            permit
        };
        // A sender leaves the queue only with a permit, or when its receiver is dropped.
        permit.await.expect("a GET that waits is served")
    }

    /// Whether no GET is in flight, and the limit is high enough that one more GET takes no reader's permit.
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.running == 0 && state.waiting.is_empty() && state.concurrency.limit() >= LEAST_FOR_ONE_MORE
    }

    /// A permit for a second GET of the same bytes, if one is free now.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<RequestPermit> {
        let mut state = lock(&self.state);
        let is_free = state.running < state.concurrency.limit() && state.waiting.is_empty();
        is_free.then(|| {
            state.running += 1;
            RequestPermit(self.clone())
        })
    }

    /// Notes that a GET sent at `sent` was answered at `now`. `refused` is the client's count of "slow down" answers to
    /// all requests; `was_refused` tells whether this answer was one.
    pub(crate) fn on_answer(&self, sent: Duration, now: Duration, refused: u64, was_refused: bool) {
        let mut state = lock(&self.state);
        let new = refused.saturating_sub(state.seen_refused).max(was_refused.into());
        state.seen_refused = refused.max(state.seen_refused);
        if self.is_bound.swap(false, Ordering::Relaxed) {
            state.concurrency.on_wait();
        }
        let running = state.running;
        state.concurrency.on_answer(sent, now, new, was_refused, running);
        self.limit.store(state.concurrency.limit(), Ordering::Relaxed);
    }

    /// Takes a permit back. The waiting GETs get the permits that are free.
    fn give_back(self: &Arc<Self>) {
        let mut served = Vec::new();
        {
            let mut state = lock(&self.state);
            state.running -= 1;
            while state.running < state.concurrency.limit()
                && let Some(sender) = state.waiting.pop_front()
            {
                if !sender.is_closed() {
                    state.running += 1;
                    served.push(sender);
                }
            }
        }
        for sender in served {
            // The lock is not held here: a GET that stopped waiting at this moment gives its permit back.
            drop(sender.send(RequestPermit(self.clone())));
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        // At its end the model checker unwinds the tasks that are left, and none of them may take a lock.
        if cfg!(feature = "shuttle") && std::thread::panicking() {
            return;
        }
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::RequestPermits;

    #[test]
    fn permits_are_given_in_order_and_come_back() {
        let permits = RequestPermits::new(2);
        let now = |permit: &mut std::pin::Pin<Box<dyn Future<Output = super::RequestPermit>>>| {
            permit.now_or_never()
        };
        let [mut first, mut second, mut third, mut fourth, mut fifth] = std::array::from_fn(|_| {
            let permits = permits.clone();
            Box::pin(async move { permits.acquire().await }) as _
        });
        let (a, b) = (now(&mut first).expect("free"), now(&mut second).expect("free"));
        assert!(now(&mut third).is_none() && now(&mut fourth).is_none() && now(&mut fifth).is_none());
        assert!(permits.try_acquire().is_none());
        drop(third);
        drop(a);
        let c = now(&mut fourth).expect("the third does not wait any more");
        assert!(now(&mut fifth).is_none());
        drop((b, c));
        drop(now(&mut fifth).expect("free"));
        assert!(permits.try_acquire().is_some());
    }

    #[test]
    fn an_eighth_is_kept_and_refusals_leave_fewer() {
        let (permits, ms) = (RequestPermits::new(64), Duration::from_millis);
        assert_eq!(permits.ahead_limit(), 56);
        // The client has counted two refusals, which it retried by itself.
        permits.on_answer(ms(10), ms(1000), 2, false);
        assert_eq!(permits.ahead_limit(), 53, "60 in all");
        permits.on_answer(ms(1000), ms(2000), 3, true);
        assert_eq!(permits.ahead_limit(), 27, "30 in all: all came back refused");
        assert_eq!(RequestPermits::new(1).ahead_limit(), 1);
    }
}
