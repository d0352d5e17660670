//! What the mixes with a disk cache are for happens in them.

use s3mount_sim::disk::DiskCounts;
use s3mount_sim::run::run;
use s3mount_sim::scenario::{MIXES, Mix, Scenario};

/// What became of the disks of some seeds of a mix.
fn counts(mix: &str) -> DiskCounts {
    let mixes: Vec<_> = MIXES.iter().filter(|one| one.name == mix).cloned().collect();
    let mut sum = DiskCounts::default();
    for seed in 1..=300 {
        let DiskCounts { reads, corrupt, written, passed } = run(&Scenario::draw(seed, &mixes), false).disk;
        sum = DiskCounts {
            reads: sum.reads + reads,
            corrupt: sum.corrupt + corrupt,
            written: sum.written + written,
            passed: sum.passed + passed,
        };
    }
    sum
}

#[test]
fn disks_are_written_and_read() {
    for mix in ["cached", "cached, mounts", "cached, stranger"] {
        let DiskCounts { reads, corrupt, written, passed } = counts(mix);
        assert!(
            written > 0 && reads > 0 && passed > 0,
            "{mix}: {written} written, {reads} reads, {passed} passed"
        );
        assert_eq!(corrupt, 0, "{mix}: nothing damages a disk");
    }
}

#[test]
fn power_cuts_damage_disks() {
    let DiskCounts { reads, corrupt, .. } = counts("cached, kills");
    assert!(reads > 0 && corrupt > 0, "{reads} reads, {corrupt} files were damaged");
}

#[test]
fn a_seed_with_a_disk_gives_the_same_run_again() {
    let is_cached = |mix: &&Mix| mix.is_cached && !mix.is_long;
    for mix in MIXES.iter().filter(is_cached) {
        for seed in 100..110 {
            let scenario = Scenario::draw(seed, std::slice::from_ref(mix));
            let (first, second) = (run(&scenario, true).trace, run(&scenario, true).trace);
            assert!(first == second, "seed {seed} of {}", mix.name);
        }
    }
}
