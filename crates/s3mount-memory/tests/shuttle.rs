//! Pool and budget under a model checker: thousands of interleavings of a few threads.
//! Runs by `cargo test -p s3mount-memory --features shuttle --test shuttle`.

use std::collections::HashSet;

use s3mount_memory::{Buffer, BufferPool, MemoryBudget, Need, Pieces, Priority, Share, UNIT_BYTES};
use shuttle::future::{block_on, spawn};
use shuttle::sync::{Arc, Mutex};
use shuttle::{check_pct, check_random, thread};

/// How many interleavings of each test are tried: by chance, and by priorities, which find orders that chance
/// rarely has.
const RUNS: usize = 10_000;

fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), RUNS);
    check_pct(test, RUNS, 3);
}

fn pool(units: usize) -> BufferPool {
    BufferPool::new(MemoryBudget::new((units * UNIT_BYTES) as u64)).expect("a pool")
}

/// Writes a mark into a buffer, and checks that it is unchanged after other threads had their turn.
fn use_alone(buffer: &mut Buffer, mark: u8) {
    for at in [0, buffer.as_ref().len() - 1] {
        buffer.as_mut()[at] = mark;
    }
    thread::yield_now();
    let bytes = (*buffer).as_ref();
    assert!(bytes[0] == mark && bytes[bytes.len() - 1] == mark, "two hold the same memory");
}

#[test]
fn reservations_never_exceed_the_budget() {
    check(|| {
        let budget = MemoryBudget::new(100);
        let threads: Vec<_> = [60, 50, 40]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                thread::spawn(move || {
                    let held = budget.try_reserve(bytes, 0);
                    assert!(budget.used_bytes() <= 100);
                    thread::yield_now();
                    drop(held);
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(budget.used_bytes(), 0);
        assert!((50..=100).contains(&budget.peak_bytes()));
    });
}

#[test]
fn buffers_are_nobody_elses() {
    check(|| {
        let pool = pool(4);
        let threads: Vec<_> = (1..=3)
            .map(|mark: u8| {
                let pool = pool.clone();
                thread::spawn(move || {
                    for units in [2, 1] {
                        let buffer = pool.try_buffer(units * UNIT_BYTES, Priority::Demand);
                        if let Some(mut buffer) = buffer {
                            use_alone(&mut buffer, mark);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(pool.budget().used_bytes(), 0);
        assert!(pool.try_buffer(4 * UNIT_BYTES, Priority::Demand).is_some(), "it is whole again");
    });
}

#[test]
fn everybody_who_waits_is_served() {
    check(|| {
        let pool = pool(2);
        let served = Arc::new(Mutex::new(HashSet::new()));
        let tasks: Vec<_> = [(1, 2), (2, 1), (3, 2), (4, 1)]
            .into_iter()
            .map(|(mark, units)| {
                let (pool, served) = (pool.clone(), served.clone());
                spawn(async move {
                    let mut buffer = pool.buffer(units * UNIT_BYTES).await;
                    use_alone(&mut buffer, mark);
                    served.lock().expect("no panic").insert(mark);
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert_eq!(served.lock().expect("no panic").len(), 4);
        assert_eq!((pool.waiting(), pool.budget().used_bytes()), (0, 0));
    });
}

#[test]
fn who_leaves_the_queue_holds_nobody_up() {
    check(|| {
        let pool = pool(2);
        let held = pool.try_buffer(UNIT_BYTES, Priority::Demand).expect("it is empty");
        let wait = |units: usize| {
            let pool = pool.clone();
            spawn(async move { drop(pool.buffer(units * UNIT_BYTES).await) })
        };
        // The first wants all of the pool, which it can't have, and leaves at some moment.
        let (leaves, stays) = (wait(2), wait(1));
        leaves.abort();
        block_on(stays).expect("it is served");
        drop(held);
        // It may have been served in the end: then its buffer comes back at some later point.
        let _ = block_on(leaves);
        assert_eq!((pool.waiting(), pool.budget().used_bytes()), (0, 0));
    });
}

#[test]
fn who_fits_passes_and_the_first_is_served_all_the_same() {
    check(|| {
        let pool = pool(4);
        let held = pool.try_buffer(2 * UNIT_BYTES, Priority::Demand).expect("it is empty");
        let tasks: Vec<_> = [(1, 4), (2, 1), (3, 1)]
            .into_iter()
            .map(|(mark, units)| {
                let pool = pool.clone();
                spawn(async move { use_alone(&mut pool.buffer(units * UNIT_BYTES).await, mark) })
            })
            .collect();
        let giver = thread::spawn(move || drop(held));
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        giver.join().expect("no panic");
        assert_eq!((pool.waiting(), pool.wanted_bytes(), pool.budget().used_bytes()), (0, 0, 0));
    });
}

#[test]
fn trimming_touches_only_what_is_free() {
    const PAGE: usize = 2 << 20;
    check(|| {
        let pool = pool(3 * PAGE / UNIT_BYTES);
        let users: Vec<_> = (1..=2)
            .map(|mark: u8| {
                let pool = pool.clone();
                spawn(async move {
                    for len in [2 * PAGE, PAGE] {
                        use_alone(&mut pool.buffer(len).await, mark);
                    }
                })
            })
            .collect();
        let trimmer = {
            let pool = pool.clone();
            thread::spawn(move || (0..3).map(|_| pool.trim(0)).sum::<u64>())
        };
        block_on(async {
            for user in users {
                user.await.expect("no panic");
            }
        });
        trimmer.join().expect("no panic");
        assert_eq!((pool.waiting(), pool.budget().used_bytes()), (0, 0));
        pool.trim(0);
        assert_eq!(pool.trim(0), 0);
        assert!(pool.try_buffer(2 * PAGE, Priority::Demand).is_some(), "it has grown together again");
    });
}

#[test]
fn readers_and_writers_don_t_starve_each_other() {
    check(|| {
        let pool = pool(6);
        let share = Share::new(pool.clone(), 4 * UNIT_BYTES as u64, 0);
        // What a reader gives back when it is asked to.
        let ahead = Arc::new(Mutex::new(pool.try_buffer(4 * UNIT_BYTES, Priority::Demand)));
        let writers: Vec<_> = (1..=3)
            .map(|mark| {
                let (share, ahead) = (share.clone(), ahead.clone());
                spawn(async move {
                    let reclaim = move || drop(ahead.lock().expect("no panic").take());
                    let mut first = share.buffers(UNIT_BYTES, Pieces::One, Need::More, &reclaim).await;
                    first[0].as_mut().fill(mark);
                    drop(first);
                    let line = share.line();
                    let need = Need::Least { line: &line, bytes: 2 * UNIT_BYTES as u64 };
                    let mut least = share.buffers(2 * UNIT_BYTES, Pieces::All, need, &reclaim).await;
                    assert!(share.held_bytes() <= share.limit_bytes());
                    assert_eq!(least.iter().map(|piece| piece.as_ref().len()).sum::<usize>(), 2 * UNIT_BYTES);
                    least.iter_mut().for_each(|piece| piece.as_mut().fill(mark));
                })
            })
            .collect();
        // Two units are never the writers', so a reader of as many gets them, whatever the writers do.
        let reader = {
            let (pool, ahead) = (pool.clone(), ahead);
            spawn(async move {
                let waiting = pool.buffer(2 * UNIT_BYTES);
                drop(ahead.lock().expect("no panic").take());
                use_alone(&mut waiting.await, 9);
            })
        };
        block_on(async {
            reader.await.expect("no panic");
            for writer in writers {
                writer.await.expect("no panic");
            }
        });
        assert_eq!((share.held_bytes(), share.waiting(), pool.budget().used_bytes()), (0, 0, 0));
    });
}

#[test]
fn writers_that_hold_all_they_may_leave_the_rest_to_readers() {
    check(|| {
        let pool = pool(4);
        let share = Share::new(pool.clone(), 2 * UNIT_BYTES as u64, 0);
        let line = share.line();
        let need = Need::Least { line: &line, bytes: UNIT_BYTES as u64 };
        let held: Vec<_> = (0..2).filter_map(|_| share.try_buffer(UNIT_BYTES, need)).collect();
        assert_eq!(held.len(), 2);
        assert!(share.try_buffer(UNIT_BYTES, need).is_none(), "that is the bound");
        let readers: Vec<_> = (1..=3)
            .map(|mark| {
                let pool = pool.clone();
                spawn(async move { use_alone(&mut pool.buffer(2 * UNIT_BYTES).await, mark) })
            })
            .collect();
        block_on(async {
            for reader in readers {
                reader.await.expect("no panic");
            }
        });
        drop(held);
        assert_eq!((share.held_bytes(), pool.budget().used_bytes()), (0, 0));
    });
}

/// Each holds a piece of what it has to fill, and needs more before it gives anything back. All of them together could
/// never be filled.
#[test]
fn writers_that_give_nothing_back_before_they_are_full_don_t_wait_for_each_other() {
    const PART: usize = 3;
    check(|| {
        let pool = pool(8);
        let share = Share::new(pool.clone(), 8 * UNIT_BYTES as u64, 0);
        let writers: Vec<_> = (0..5)
            .map(|_| {
                let share = share.clone();
                spawn(async move {
                    let (line, mut part) = (share.line(), Vec::new());
                    while part.len() < PART {
                        let bytes = ((PART - part.len()) * UNIT_BYTES) as u64;
                        let need = Need::Least { line: &line, bytes };
                        part.extend(share.buffers(UNIT_BYTES, Pieces::First, need, &|| ()).await);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        block_on(async {
            for writer in writers {
                writer.await.expect("no panic");
            }
        });
        assert_eq!((share.held_bytes(), share.waiting(), pool.budget().used_bytes()), (0, 0, 0));
    });
}

/// While the limit falls and rises again, readers go on, and whoever waits is served in the end.
#[test]
fn readers_go_on_while_the_limit_falls_and_rises() {
    const PAGE: usize = 2 << 20;
    check(|| {
        let page = PAGE as u64;
        let pool = BufferPool::new(MemoryBudget::between(page, 4 * page)).expect("a pool");
        pool.set_limit(4 * page);
        let users: Vec<_> = (1..=3)
            .map(|mark: u8| {
                let pool = pool.clone();
                spawn(async move {
                    for len in [PAGE, PAGE / 2] {
                        use_alone(&mut pool.buffer(len).await, mark);
                    }
                })
            })
            .collect();
        let adjusters: Vec<_> = [[1, 3], [2, 1]]
            .into_iter()
            .map(|limits| {
                let pool = pool.clone();
                thread::spawn(move || {
                    for pages in limits {
                        pool.set_limit(pages * page);
                        assert!(pool.away_bytes() <= 3 * page);
                    }
                })
            })
            .collect();
        block_on(async {
            for user in users {
                user.await.expect("no panic");
            }
        });
        for adjuster in adjusters {
            adjuster.join().expect("no panic");
        }
        assert_eq!((pool.waiting(), pool.budget().used_bytes()), (0, 0));
        assert_eq!(pool.settle() + pool.budget().limit_bytes(), 4 * page);
        assert_eq!(pool.missing_bytes(), 0);
        assert_eq!(pool.set_limit(4 * page), 0);
        let all: Vec<_> = std::iter::from_fn(|| pool.try_buffer(PAGE, Priority::Demand)).collect();
        assert_eq!(all.len(), 4, "all of it is there again");
    });
}
