//! Random lives of an outbox: each ends with a kill, a power cut, or all that waits being done.

use proptest::prelude::*;
use s3mount_object::{Condition, ETag, ObjectId};

use super::bytes_of;
use super::model::Model;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Put { key: u8, len: usize, replaced: Option<usize> },
    Moved { which: usize, key: u8, condition: Option<Condition>, leaves: Option<ObjectId> },
    FolderMoved { from: usize, to: usize },
    Ending { which: usize, is_ending: bool },
    Done(usize),
    Failed { which: usize, why: String },
    Retry(usize),
    Commit,
    Kill,
    Cut(Vec<usize>),
    Fail { after: usize, times: usize },
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 6 => 1..2_000_usize, 4 => 2_000..30_000_usize, 1 => 48_000..150_000_usize]
}

/// The prefixes of all keys.
const FOLDERS: [&str; 3] = ["folder/", "other/", "folder/below/"];

/// More than a folder has keys.
const KEYS: u8 = 8;

fn name(key: u8) -> String {
    format!("{}\"{}", FOLDERS[usize::from(key / 4)], key % 4)
}

fn etag() -> impl Strategy<Value = ETag> {
    "[0-9a-f]{8}".prop_map(|etag| ETag::new(&format!("\"{etag}\"")))
}

fn condition() -> impl Strategy<Value = Option<Condition>> {
    prop_oneof![
        Just(None),
        Just(Some(Condition::Absent)),
        etag().prop_map(|etag| Some(Condition::Matches(etag))),
    ]
}

fn leaves() -> impl Strategy<Value = Option<ObjectId>> {
    prop::option::of((0..KEYS, etag()).prop_map(|(key, etag)| ObjectId::new(&name(key), etag)))
}

/// How much is kept of writes, in hundredths, again and again.
fn kept() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![2 => Just(100_usize), 1 => Just(0), 1 => 0..100_usize], 1..12)
}

pub(super) fn step(has_faults: bool) -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    let put = (0..KEYS, len(), prop::option::weighted(0.3, which()));
    let fail = (0..8_usize, prop_oneof![Just(1), 1..20_usize]);
    let named = prop_oneof![
        4 => (which(), 0..KEYS, condition(), leaves())
            .prop_map(|(which, key, condition, leaves)| Step::Moved { which, key, condition, leaves }),
        2 => (0..FOLDERS.len(), 0..FOLDERS.len()).prop_map(|(from, to)| Step::FolderMoved { from, to }),
        2 => (which(), any::<bool>()).prop_map(|(which, is_ending)| Step::Ending { which, is_ending }),
    ];
    prop_oneof![
        12 => put.prop_map(|(key, len, replaced)| Step::Put { key, len, replaced }),
        8 => named,
        9 => which().prop_map(Step::Done),
        2 => (which(), "[a-zä\"]{0,20}").prop_map(|(which, why)| Step::Failed { which, why }),
        2 => which().prop_map(Step::Retry),
        2 => Just(Step::Commit),
        1 => Just(Step::Kill),
        2 => kept().prop_map(Step::Cut),
        if has_faults { 4 } else { 0 } => fail.prop_map(|(after, times)| Step::Fail { after, times }),
    ]
}

/// Does these steps.
pub(super) fn live(steps: Vec<Step>) -> Model {
    let mut model = Model::new();
    for (seed, step) in (1..).zip(steps) {
        match step {
            Step::Put { key, len, replaced } => model.put(&name(key), bytes_of(seed, len), replaced),
            Step::Moved { which, key, condition, leaves } => {
                model.moved(which, &name(key), condition.as_ref(), leaves.as_ref());
            }
            Step::FolderMoved { from, to } => model.folder_moved(FOLDERS[from], FOLDERS[to]),
            Step::Ending { which, is_ending } => model.ending(which, is_ending),
            Step::Done(which) => model.done(which),
            Step::Failed { which, why } => model.failed(which, Some(&why)),
            Step::Retry(which) => model.failed(which, None),
            Step::Commit => model.commit(),
            Step::Kill => model.kill(),
            Step::Cut(kept) => {
                let mut kept = kept.into_iter().cycle();
                model.cut(|len| len * kept.next().expect("it has no end") / 100);
            }
            Step::Fail { after, times } => model.fail(after, times),
        }
        model.check();
    }
    model
}

pub(super) fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn what_waits_survives_kills_and_power_cuts(
        steps in prop::collection::vec(step(false), 1..80),
        is_killed: bool,
    ) {
        live(steps).end(is_killed);
    }

    #[test]
    fn a_disk_that_refuses_loses_nothing_that_was_durable(
        steps in prop::collection::vec(step(true), 1..80),
        is_killed: bool,
    ) {
        live(steps).end(is_killed);
    }
}
