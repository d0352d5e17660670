//! Takes buffers from the pool until none is left, waits for one, and gives them back:
//! `cargo run -p s3mount-memory --example reserve`.
#![expect(clippy::print_stdout, reason = "it is an example")]

use std::error::Error;

use s3mount_memory::{BufferPool, MemoryBudget, Priority};

const MIB: usize = 1 << 20;

fn show(budget: &MemoryBudget, what: &str) {
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    println!("{what}: {:.2} of {} MiB", mib(budget.used_bytes()), mib(budget.limit_bytes()));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let budget = MemoryBudget::new(16 * MIB as u64);
    let pool = BufferPool::new(budget.clone())?;
    show(&budget, "at first");

    // Reading ahead takes only what is free, and leaves a sixteenth for readers that wait.
    let mut ahead: Vec<_> = std::iter::from_fn(|| pool.try_buffer(2 * MIB, Priority::Prefetch)).collect();
    show(&budget, "as much as reading ahead gets");

    // A reader may take the last byte. A buffer takes whole units of 64 KiB.
    let mut last = pool.try_buffer(2 * MIB - 1, Priority::Demand).ok_or("the reserve was free")?;
    last.as_mut().fill(7);
    show(&budget, "with the reserve");

    // The next reader queues. It is served as soon as a buffer comes back.
    let waiting = pool.buffer(MIB);
    println!("readers that wait: {}, for {} bytes", pool.waiting(), pool.wanted_bytes());
    drop(ahead.pop());
    let buffer = waiting.await;
    println!("a buffer of {} bytes came", buffer.as_ref().len());

    drop((ahead, last, buffer));
    show(&budget, "after all were given back");
    println!("{} MiB at the peak", budget.peak_bytes() / MIB as u64);
    Ok(())
}
