//! Tests of a pool whose limit rises and falls.

use proptest::prelude::*;

use super::{Buffer, BufferPool, Priority};
use crate::region::HUGE_PAGE_BYTES;
use crate::{MemoryBudget, UNIT_BYTES};

const MIB: u64 = 1 << 20;

fn pool(least: u64, most: u64) -> BufferPool {
    BufferPool::new(MemoryBudget::between(least * MIB, most * MIB)).expect("address space for a small pool")
}

fn cut(pool: &BufferPool, mib: u64) -> Option<Buffer> {
    pool.try_buffer(usize::try_from(mib * MIB).expect("a small buffer"), Priority::Demand)
}

/// Cuts buffers of `mib` until there is no room for one more.
fn cut_all(pool: &BufferPool, mib: u64) -> Vec<Buffer> {
    std::iter::from_fn(|| cut(pool, mib)).collect()
}

#[test]
fn it_begins_with_the_least_limit_and_the_rest_is_away() {
    let pool = pool(8, 64);
    assert_eq!((pool.budget().limit_bytes(), pool.away_bytes()), (8 * MIB, 56 * MIB));
    assert_eq!(
        pool.max_buffer_bytes() as u64,
        8 * MIB,
        "larger ones would never fit a limit that has fallen"
    );
    let held = cut_all(&pool, 1);
    assert_eq!(held.len(), 8);
    assert_eq!(pool.set_limit(64 * MIB), 0);
    assert_eq!(cut_all(&pool, 8).len(), 7);
    drop(held);
    assert_eq!(cut_all(&pool, 8).len(), 8, "it has grown together");
}

#[test]
fn a_limit_is_rounded_to_huge_pages_and_lies_in_its_bounds() {
    let pool = pool(8, 64);
    let limit = |mib_and_bytes: (u64, u64)| {
        pool.set_limit(mib_and_bytes.0 * MIB + mib_and_bytes.1);
        assert_eq!(pool.budget().limit_bytes() + pool.away_bytes(), 64 * MIB);
        pool.budget().limit_bytes() / MIB
    };
    assert_eq!([(0, 0), (9, 1), (10, 0), (63, 9), (1000, 0)].map(limit), [8, 8, 10, 62, 64]);
    let fixed = BufferPool::new(MemoryBudget::new(8 * MIB)).expect("a pool");
    assert_eq!((fixed.set_limit(MIB), fixed.budget().limit_bytes(), fixed.away_bytes()), (0, 8 * MIB, 0));
}

#[test]
fn what_buffers_have_goes_away_as_they_come_back() {
    let pool = pool(8, 64);
    pool.set_limit(64 * MIB);
    let mut held = cut_all(&pool, 4);
    held.iter_mut().for_each(|buffer| buffer.as_mut().fill(1));
    assert_eq!((pool.set_limit(16 * MIB), pool.missing_bytes()), (0, 48 * MIB));
    assert_eq!(pool.wanted_bytes(), 48 * MIB, "readers have to give that back");
    assert!(cut(&pool, 1).is_none(), "nothing more is handed out");
    // The lowest come back first, so the pages that are away are low ones, and change their places later.
    for (count, buffer) in (1u64..).zip(held.drain(..)) {
        drop(buffer);
        assert_eq!(pool.away_bytes(), (count * 4 * MIB).min(48 * MIB));
    }
    assert_eq!((pool.missing_bytes(), pool.wanted_bytes()), (0, 0));
    assert_eq!(cut_all(&pool, 8).len(), 2, "what is left lies together");
    pool.set_limit(64 * MIB);
    let all = cut_all(&pool, 8);
    let zeros = all.iter().filter(|buffer| buffer.as_ref().iter().all(|byte| *byte == 0));
    assert_eq!((all.len(), zeros.count()), (8, 8), "each page was away once");
}

#[test]
fn who_keeps_a_piece_of_each_page_leaves_whole_pages_to_readers() {
    let pool = pool(16, 64);
    pool.set_limit(64 * MIB);
    let mut held = cut_all(&pool, 1);
    let mut at = 0;
    // One of two MiB of each of 8 pages stays, and the last 48 MiB.
    held.retain(|_| {
        at += 1;
        at > 16 || at % 2 == 0
    });
    pool.set_limit(16 * MIB);
    held.truncate(8);
    pool.settle();
    // 8 pages have a piece that stays, and 4 more are what the limit leaves.
    assert_eq!(pool.away_bytes(), (64 - 16 - 8) * MIB);
    assert!(cut(&pool, 8).is_some());
    drop(held);
    assert_eq!(pool.settle(), 48 * MIB);
}

#[tokio::test]
async fn a_reader_that_waits_is_served_when_the_limit_rises() {
    let pool = pool(8, 64);
    let held = cut_all(&pool, 8);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.buffer(8 << 20).await }
    });
    while pool.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    pool.set_limit(16 * MIB);
    assert_eq!(waiting.await.expect("no panic").as_ref().len() as u64, 8 * MIB);
    drop(held);
}

/// What happens to a pool.
#[derive(Clone, Debug)]
enum Step {
    Cut(usize),
    Drop(prop::sample::Index),
    Limit(u64),
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..100).prop_map(Step::Cut),
        4 => any::<prop::sample::Index>().prop_map(Step::Drop),
        2 => (0u64..40).prop_map(Step::Limit),
        1 => Just(Step::Trim),
    ]
}

/// The first pages of buffers and the last ones, in the region.
fn pages(buffers: &[Buffer]) -> impl Iterator<Item = usize> + '_ {
    buffers.iter().flat_map(|buffer| {
        let end = buffer.start + buffer.len;
        buffer.start / HUGE_PAGE_BYTES..end.div_ceil(HUGE_PAGE_BYTES)
    })
}

proptest! {
    /// Whatever buffers come and go while the limit rises and falls: no more is used than the limit allows, or than was
    /// used when it fell; no page of a buffer is away; what is away and the limit are never more than the region; and in
    /// the end all of it can be used again, in buffers as large as ever.
    #[test]
    fn what_is_away_is_nobody_s(
        tail in 0u64..32,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let (least, most) = (4 * MIB, 32 * MIB + tail * UNIT_BYTES as u64);
        let pool = BufferPool::new(MemoryBudget::between(least, most)).expect("a small pool");
        let (mut held, mut used_at_fall) = (Vec::new(), 0);
        for step in steps {
            match step {
                Step::Cut(units) => {
                    let len = (units * UNIT_BYTES).min(pool.max_buffer_bytes());
                    held.extend(pool.try_buffer(len, Priority::Demand));
                }
                Step::Drop(_) if held.is_empty() => {}
                Step::Drop(which) => drop(held.swap_remove(which.index(held.len()))),
                Step::Limit(mib) => {
                    let before = pool.budget().limit_bytes();
                    pool.set_limit(mib * MIB);
                    if pool.budget().limit_bytes() < before {
                        used_at_fall = pool.budget().used_bytes();
                    }
                }
                Step::Trim => {
                    pool.trim(0);
                }
            }
            let (limit, used) = (pool.budget().limit_bytes(), pool.budget().used_bytes());
            prop_assert!((least..=most).contains(&limit));
            prop_assert!(used <= limit.max(used_at_fall));
            used_at_fall = used_at_fall.min(used);
            prop_assert!(pool.away_bytes() + limit <= most);
            prop_assert_eq!(pool.away_bytes() + limit + pool.missing_bytes(), most);
            prop_assert!(pool.away_bytes() + used <= most);
            let state = crate::sync::lock(&pool.0.state);
            let away = state.away.as_ref().expect("the limit may change");
            prop_assert!(pages(&held).all(|page| !away.has(page)));
            prop_assert!((0..away.pages()).all(|page| !away.has(page) || !state.pages.is_resident(page)));
        }
        let limit = pool.budget().limit_bytes();
        drop(std::mem::take(&mut held));
        prop_assert_eq!(pool.settle() + limit, most);
        prop_assert!(pool.try_buffer(pool.max_buffer_bytes(), Priority::Demand).is_some());
        pool.set_limit(most);
        let all: Vec<_> = std::iter::from_fn(|| pool.try_buffer(UNIT_BYTES, Priority::Demand)).collect();
        prop_assert_eq!((all.len() * UNIT_BYTES) as u64, most);
        drop(all);
        let large: Vec<_> =
            std::iter::from_fn(|| pool.try_buffer(pool.max_buffer_bytes(), Priority::Demand)).collect();
        prop_assert_eq!(large.len(), 8);
    }
}
