//! Programs that race in a folder, each race played with many orders.

use std::time::Duration;

use s3mount_bucket::Rates;
use s3mount_sim::kernel::Listing;
use s3mount_sim::programs::{Act, Program, Role};
use s3mount_sim::run::run;
use s3mount_sim::scenario::Scenario;
use s3mount_sim::store::Faults;
use s3mount_sim::world::MountPlan;

/// In how many orders each race is played.
const ORDERS: u64 = 1_500;

/// Plays programs that do this, in a bucket that has the object `d/b`. The second begins some moments after the first.
fn play(metadata_ttl: Option<Duration>, first: &[Act], second: &[Act]) {
    for seed in 0..ORDERS {
        let plan = MountPlan {
            memory_bytes: 64 << 20,
            memory_floor_bytes: 64 << 20,
            metadata_ttl,
            is_told: false,
            publishes_on_fsync: false,
            append_delay: Duration::ZERO,
            is_behind: false,
            loses_power: false,
            folder_markers: false,
            folder_rename_limit: 1000,
            keeps_attributes: false,
            has_spool: false,
            rates: Rates::default(),
            part_bytes: 5 << 20,
        };
        let late = [Act::Pause(seed % 64)];
        let programs = [(1, first.to_vec()), (2, [&late, second].concat())].map(|(number, acts)| Program {
            number,
            mount: Some(0),
            kind: Role::Maker,
            acts: (1..).zip(acts).collect(),
        });
        let scenario = Scenario {
            seed,
            mix: "a race",
            mounts: vec![plan],
            disk: None,
            programs: programs.to_vec(),
            faults: Faults::default(),
            page: 10,
            objects: vec![("d/b".to_owned(), 1)],
        };
        let broken = run(&scenario, false).broken;
        assert!(broken.is_none(), "order {seed}: {broken:?}");
    }
}

/// The store is asked what lies in a folder before the file is an object, and answers when it is no draft any more.
#[test]
fn a_folder_whose_file_is_being_stored_is_not_empty() {
    let path = || "d/a".to_owned();
    let first = [
        Act::Unlink("d/b".to_owned()),
        Act::Open(0, path(), libc::O_WRONLY | libc::O_CREAT),
        Act::Write(0, 0, 1),
        Act::Close(0),
        Act::Stat(path()),
    ];
    let second = [Act::Pause(60), Act::RemoveFolder("d".to_owned()), Act::RemoveFolder("d".to_owned())];
    play(Some(Duration::from_secs(60)), &first, &second);
}

/// The store has deleted the last file of a folder, and the mount has no answer yet.
#[test]
fn a_folder_is_there_while_its_last_file_is_deleted_or_renamed() {
    let gone = [Act::Unlink("d/b".to_owned()), Act::Rename("d/b".to_owned(), "a".to_owned())];
    for first in gone {
        let second = [
            Act::List("d".to_owned(), Listing::default()),
            Act::RenameFolder("d".to_owned(), "ck".to_owned()),
        ];
        play(None, &[first], &second);
    }
}
