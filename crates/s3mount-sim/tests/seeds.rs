//! Runs of many seeds, from `S3MOUNT_SIM_FIRST` on. `S3MOUNT_SIM_SEEDS` says how many, and `S3MOUNT_SIM_SECONDS` how long
//! at most. `S3MOUNT_SIM_SEED` runs one and shows all that happens. `S3MOUNT_SIM_MIX` names one mix, or `every` for all,
//! also those that are off. With `S3MOUNT_SIM_GO_ON`, all seeds that fail are named, and none is cut down.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use s3mount_sim::run::run;
use s3mount_sim::scenario::{MIXES, Mix, Scenario};
use s3mount_sim::seeds::cut_down;

/// How long the test takes at most.
const LIMIT: Duration = Duration::from_secs(100);

/// A number of the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The mixes that the environment names, or those that are on.
fn mixes() -> Vec<Mix> {
    let named = std::env::var("S3MOUNT_SIM_MIX").unwrap_or_default();
    let is_meant = |mix: &&Mix| match named.as_str() {
        "" => mix.off.is_none(),
        "every" => true,
        name => mix.name == name,
    };
    MIXES.iter().filter(is_meant).cloned().collect()
}

/// A scenario and its trace, cut down.
fn report(scenario: &Scenario) -> String {
    let small = cut_down(scenario);
    let outcome = run(&small, true);
    let trace = outcome.trace.join("\n");
    format!("seed {}\n{}\n{trace}\n{:?}", scenario.seed, small.script(), outcome.broken)
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how many seeds fit into the time is a question of the machine's time"
)]
fn no_seed_breaks_a_promise() {
    let mixes = mixes();
    if let Some(seed) = number("S3MOUNT_SIM_SEED") {
        let scenario = Scenario::draw(seed, &mixes);
        let outcome = run(&scenario, true);
        println!("{}\n{}", scenario.script(), outcome.trace.join("\n"));
        assert!(outcome.broken.is_none(), "{}", report(&scenario));
        return;
    }
    let (first, count) =
        (number("S3MOUNT_SIM_FIRST").unwrap_or(1), number("S3MOUNT_SIM_SEEDS").unwrap_or(2_000));
    let limit = number("S3MOUNT_SIM_SECONDS").map_or(LIMIT, Duration::from_secs);
    let goes_on = number("S3MOUNT_SIM_GO_ON").is_some();
    let (next, is_over, began) = (AtomicU64::new(first), AtomicBool::new(false), Instant::now());
    let failed = Mutex::new(BTreeMap::<(String, String), (u64, Scenario, String)>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && began.elapsed() < limit {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let scenario = Scenario::draw(seed, &mixes);
                    if let Some(broken) = run(&scenario, false).broken {
                        if goes_on {
                            println!("seed {seed} ({}): {:?}, {}", scenario.mix, broken.rule, broken.what);
                        }
                        let of = (scenario.mix.to_owned(), format!("{:?}", broken.rule));
                        let mut failed = failed.lock().expect("the other thread");
                        failed.entry(of).or_insert((0, scenario, broken.what)).0 += 1;
                        is_over.store(!goes_on, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seeds = next.load(Ordering::Relaxed).min(first + count) - first;
    println!("{seeds} seeds, {:.1} a second", seeds as f64 / began.elapsed().as_secs_f64());
    let failed = failed.into_inner().expect("both threads");
    for ((mix, rule), (count, scenario, what)) in &failed {
        println!("{mix}: {rule}, {count} times, first seed {}: {what}", scenario.seed);
    }
    assert!(!goes_on || failed.is_empty(), "seeds break promises");
    let first = failed.values().next();
    assert!(first.is_none(), "{}", first.map(|(_, scenario, _)| report(scenario)).unwrap_or_default());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 1..40 {
        let scenario = Scenario::draw(seed, MIXES);
        let (first, second) = (run(&scenario, true).trace, run(&scenario, true).trace);
        let differs = first.iter().zip(&second).position(|(first, second)| first != second);
        let around =
            differs.map(|at| (&first[at.saturating_sub(3)..=at], &second[at.saturating_sub(3)..=at]));
        assert!(first == second, "seed {seed}: {around:#?}");
    }
}
