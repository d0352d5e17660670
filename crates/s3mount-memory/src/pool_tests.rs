//! Tests of the pool as its users see it.

use super::{BufferPool, Priority};
use crate::MemoryBudget;

const MIB: usize = 1 << 20;

fn pool(limit: usize) -> BufferPool {
    BufferPool::new(MemoryBudget::new(limit as u64)).expect("address space for a small pool")
}

#[test]
fn buffers_do_not_overlap() {
    let pool = pool(4 * MIB);
    let mut buffers: Vec<_> =
        (0..4).map(|_| pool.try_buffer(MIB, Priority::Demand).expect("there is room for four")).collect();
    for (fill, buffer) in (1u8..).zip(&mut buffers) {
        buffer.as_mut().fill(fill);
    }
    for (fill, buffer) in (1u8..).zip(&buffers) {
        assert!(buffer.as_ref().iter().all(|byte| *byte == fill));
    }
    assert!(pool.try_buffer(1, Priority::Demand).is_none());
}

#[test]
fn reading_ahead_leaves_a_reserve() {
    let pool = pool(16 * MIB);
    let ahead: Vec<_> = std::iter::from_fn(|| pool.try_buffer(MIB, Priority::Prefetch)).collect();
    assert_eq!(ahead.len(), 15);
    assert!(pool.try_buffer(MIB, Priority::Demand).is_some());
}

#[tokio::test]
async fn a_reader_waits_and_is_served_before_anyone_else() {
    let pool = pool(2 * MIB);
    let held = pool.try_buffer(2 * MIB, Priority::Demand).expect("all of it is free");
    let waiter = tokio::spawn({
        let pool = pool.clone();
        async move { pool.buffer(MIB).await }
    });
    while pool.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(pool.try_buffer(MIB, Priority::Demand).is_none(), "nobody jumps the queue");
    drop(held);
    let buffer = waiter.await.expect("the waiter does not panic");
    assert_eq!((buffer.as_ref().len(), pool.waiting()), (MIB, 0));
    drop(buffer);
    assert_eq!(pool.budget().used_bytes(), 0);
}

#[tokio::test]
async fn a_waiter_that_leaves_does_not_hold_up_the_next() {
    let pool = pool(MIB);
    let held = pool.try_buffer(MIB, Priority::Demand).expect("all of it is free");
    let mut gone = pool.buffer(MIB);
    assert!(futures_poll(&mut gone).is_none());
    let mut next = pool.buffer(MIB);
    assert!(futures_poll(&mut next).is_none());
    drop(gone);
    drop(held);
    let buffer = next.await;
    drop(buffer);
    assert_eq!(pool.budget().used_bytes(), 0);
}

#[test]
fn trim_gives_unused_memory_back() {
    let pool = pool(32 * MIB);
    let mut buffer = pool.try_buffer(32 * MIB, Priority::Demand).expect("all of it is free");
    buffer.as_mut().fill(1);
    assert_eq!(pool.trim(0), 0, "nothing is free");
    drop(buffer);
    assert_eq!(pool.trim(1), 0, "it was used just now");
    // A few reads now and then keep the pages that they need, and no others.
    for _ in 0..60 {
        drop(pool.try_buffer(MIB, Priority::Demand).expect("all of it is free"));
        pool.tick();
    }
    let batches: Vec<_> = std::iter::repeat_with(|| pool.trim(60)).take_while(|bytes| *bytes > 0).collect();
    assert_eq!(batches.iter().sum::<u64>(), 30 * MIB as u64, "{batches:?}");
    assert!(batches.len() > 1, "in batches");
    assert_eq!(pool.trim(0), 2 * MIB as u64);
    assert_eq!(pool.trim(0), 0, "nothing is resident any more");
    let buffer = pool.try_buffer(32 * MIB, Priority::Demand).expect("it has grown together again");
    assert!(buffer.as_ref().iter().all(|byte| *byte == 0), "the kernel has it back");
}

#[test]
fn what_is_free_in_pieces_makes_a_smaller_part() {
    let pool = pool(32 * MIB);
    let mut buffers: Vec<_> =
        (0..32).map(|_| pool.try_buffer(MIB, Priority::Demand).expect("there is room for 32")).collect();
    // Pairs of MiB stay free in between: 12 MiB, of which 2 are the reserve.
    let mut at = 0;
    buffers.retain(|_| {
        at += 1;
        at > 24 || (at - 1) % 4 < 2
    });
    assert!(pool.try_buffer(8 * MIB, Priority::Prefetch).is_none(), "no 8 MiB lie together");
    let sizes: Vec<_> = std::iter::from_fn(|| pool.try_up_to(8 * MIB, MIB, Priority::Prefetch))
        .map(|part| {
            let len = part.as_ref().len();
            buffers.push(part);
            len / MIB
        })
        .collect();
    // With 8 MiB free beyond the reserve it still tries; with less, memory is short.
    assert_eq!(sizes, [2, 2]);
    assert!(pool.try_up_to(4 * MIB, 4 * MIB, Priority::Prefetch).is_none(), "no piece is as large");
}

#[test]
fn threads_share_the_pool() {
    let pool = pool(8 * MIB);
    std::thread::scope(|scope| {
        for fill in 0..8u8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..200usize {
                    let len = (round % 16 + 1) * crate::UNIT_BYTES;
                    if let Some(mut buffer) = pool.try_buffer(len, Priority::Demand) {
                        buffer.as_mut().fill(fill);
                        assert!(buffer.as_ref().iter().all(|byte| *byte == fill));
                    }
                }
            });
        }
    });
    assert_eq!(pool.budget().used_bytes(), 0);
    assert!(pool.try_buffer(8 * MIB, Priority::Demand).is_some(), "it has grown together again");
}

fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn who_fits_passes_the_first_in_line() {
    let pool = pool(4 * MIB);
    let held = pool.try_buffer(2 * MIB, Priority::Demand).expect("all of it is free");
    let mut first = pool.buffer(4 * MIB);
    assert!(futures_poll(&mut first).is_none(), "there is room for half of it");
    assert_eq!(pool.wanted_bytes(), 4 * MIB as u64, "the first one's");
    let passing: Vec<_> = (0..100).filter_map(|_| futures_poll(&mut pool.buffer(MIB))).collect();
    assert_eq!(passing.len(), 2, "as many as fit");
    drop(passing);
    let passed = (0..100).filter(|_| futures_poll(&mut pool.buffer(MIB)).is_some()).count();
    assert!(passed < 100 - 50, "{passed} have passed: its turn comes");
    assert_eq!((pool.waiting(), pool.wanted_bytes()), (1, 4 * MIB as u64));
    drop(held);
    assert!(futures_poll(&mut first).is_some());
    assert_eq!((pool.waiting(), pool.wanted_bytes()), (0, 0));
}

#[tokio::test]
async fn who_fits_moves_up_when_the_first_in_line_leaves() {
    let pool = pool(2 * MIB);
    let held = pool.try_buffer(MIB, Priority::Demand).expect("half of it is free");
    let mut first = pool.buffer(2 * MIB);
    assert!(futures_poll(&mut first).is_none(), "there is room for half of it");
    while futures_poll(&mut pool.buffer(MIB)).is_some() {}
    let mut next = pool.buffer(MIB);
    assert!(futures_poll(&mut next).is_none(), "enough have jumped the queue");
    drop(first);
    assert!(futures_poll(&mut next).is_some(), "nothing else is given back that could wake it");
    drop(held);
}

#[tokio::test]
async fn a_reader_is_served_from_memory_that_was_no_buffer() {
    let pool = pool(MIB);
    let sums = pool.budget().try_reserve(MIB as u64, 0).expect("all of it is free");
    let mut waiter = pool.buffer(MIB);
    assert!(futures_poll(&mut waiter).is_none());
    drop(sums);
    assert!(futures_poll(&mut waiter).is_some());
    assert_eq!(pool.waiting(), 0);
}
