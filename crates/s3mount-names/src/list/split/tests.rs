use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::SystemTime;

use proptest::prelude::*;
use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};
use tokio::time::Instant;

use super::{Ask, Fault, Split};
use crate::fact::Asked;
use crate::name::Hidden;

/// Lists a page of the keys below `d/` as a store does: rolled up at `/`, after a key or a prefix.
fn page(keys: &BTreeSet<String>, ask: &Ask, page_len: usize) -> ListPage {
    let meta = ObjectMeta {
        etag: ETag::new("\"e\""),
        size: 1,
        last_modified: SystemTime::UNIX_EPOCH,
        storage_class: None,
    };
    let after = ask.continuation.as_ref().unwrap_or(&ask.start_after);
    let from = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after.clone()) };
    let mut page = ListPage::default();
    let mut last = after.clone();
    for key in keys.range((from, Bound::Unbounded)) {
        let rolled = key.find('/').map(|end| &key[..=end]);
        if rolled.unwrap_or(key) <= last.as_str() && !last.is_empty() {
            continue;
        }
        if super::count(&page) == page_len {
            page.next = Some(last);
            break;
        }
        last = rolled.unwrap_or(key).to_owned();
        match rolled {
            Some(rolled) => page.common_prefixes.push(format!("d/{rolled}")),
            None => page.objects.push(ListedObject { key: format!("d/{key}"), meta: meta.clone() }),
        }
    }
    page
}

/// The result of a listing.
#[derive(Debug, Default)]
struct Came {
    names: Vec<String>,
    asked: usize,
    /// How often a reader waited for pages that were requested together.
    rounds: usize,
    most_waiting: usize,
}

/// Lists keys with `at_once` pages at a time, and calls `change` to change them after each round. At most `bound` names
/// wait.
fn list(
    keys: &mut BTreeSet<String>,
    at_once: usize,
    page_len: usize,
    bound: usize,
    mut change: impl FnMut(&mut BTreeSet<String>, usize),
) -> Came {
    let (mut split, mut came, now) = (Split::behind("d/", ""), Came::default(), Instant::now());
    let hidden = Hidden::default();
    let mut upto = String::new();
    while !split.is_complete() {
        let mut asked = Vec::new();
        while let Some(ask) =
            split.ask(if split.waiting() < bound { at_once.saturating_sub(asked.len()) } else { 0 })
        {
            assert!(!ask.start_after.contains('/'));
            asked.push((ask.piece, page(keys, &ask, page_len)));
        }
        assert!(asked.len() <= at_once.max(1), "{}", asked.len());
        came.rounds += usize::from(!asked.is_empty());
        came.asked += asked.len();
        for (piece, page) in asked {
            split.landed(piece, page, Asked::at(now), &hidden).expect("a good page");
        }
        came.most_waiting = came.most_waiting.max(split.waiting());
        while let Some(page) = split.take() {
            assert!(page.keys().all(|key| *key > *upto && page.upto().is_none_or(|upto| key <= upto)));
            came.names.extend(page.keys().map(str::to_owned));
            upto = page.upto().unwrap_or_default().to_owned();
        }
        change(keys, came.rounds);
        assert!(came.rounds < 5000, "no end");
    }
    came
}

/// Rolled up.
fn names(keys: &BTreeSet<String>) -> Vec<String> {
    let mut names: Vec<_> =
        keys.iter().map(|key| key.find('/').map_or(key.clone(), |end| key[..=end].to_owned())).collect();
    names.dedup();
    names
}

fn hash(index: u64) -> u64 {
    s3mount_testkit::mix(index)
}

/// All the kinds of keys.
const KINDS: [&str; 11] = [
    "counted",
    "counted in 12 places",
    "counted from one",
    "hashes",
    "uuids",
    "base62",
    "dates",
    "classes",
    "another script",
    "folders",
    "one huge prefix among hashes",
];

/// `count` keys of a kind.
fn keys_of(kind: &str, count: u64) -> BTreeSet<String> {
    let dated = |index: u64| {
        let (second, minute, hour) = (index * 37 % 60, index * 37 / 60 % 60, index * 37 / 3600 % 24);
        let day = index * 37 / 86400;
        let (day, month, year) = (day % 28 + 1, day / 28 % 12 + 1, 2020 + day / 336);
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.json")
    };
    let scripted = |index: u64| {
        let char =
            |shift: u32| char::from_u32(0x4e00 + u32::try_from((hash(index) >> shift) % 0x5000).unwrap_or(0));
        [char(32), char(40)].into_iter().flatten().collect::<String>() + &format!("{index}.png")
    };
    let name = |index: u64| match kind {
        "counted" => format!("image_{index:07}.jpeg"),
        "counted in 12 places" => format!("{index:012}"),
        "counted from one" => format!("{}", index + 1),
        "hashes" => format!("{:016x}{:016x}.npy", hash(index), hash(index + count)),
        "uuids" => format!("{:08x}-{:04x}-4abc.txt", hash(index) >> 32, hash(index) & 0xffff),
        "base62" => base62(hash(index)),
        "dates" => dated(index),
        // A thousand of each class, and three hundred more.
        "classes" => {
            let class = hash(index % (count / 1300 + 1)) % 15_000_000;
            format!("n{class:08}_{}.JPEG", hash(index) % 50_000 * 100 + index % 100)
        }
        "another script" => scripted(index),
        "folders" => format!("class_{index:07}/x"),
        "one huge prefix among hashes" if index < 3000 => format!("{:08x}", hash(index) >> 32),
        "one huge prefix among hashes" => format!("shard_part_{index:09}.bin"),
        _ => panic!("{kind} is no kind"),
    };
    (0..count).map(name).collect()
}

fn base62(mut number: u64) -> String {
    let digits: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    let mut text = String::new();
    for _ in 0..10 {
        text.push(digits[usize::try_from(number % 62).unwrap_or(0)]);
        number /= 62;
    }
    text
}

/// The most names that wait for the reader, and the most that may be under way besides.
const BOUND: usize = 128 << 10;
const AT_ONCE: usize = 16;

/// Lists `count` keys of these kinds, each in at most `rounds` rounds: one page after another, each page would take a
/// round.
fn check(count: u64, kinds: &[&str], rounds: usize) {
    for kind in kinds {
        let mut keys = keys_of(kind, count);
        let want = names(&keys);
        let pages = want.len().div_ceil(1000);
        let came = list(&mut keys, AT_ONCE, 1000, BOUND, |_, _| {});
        assert!(came.names == want, "{kind}");
        let told = format!(
            "{kind}: {pages} pages, {} LISTs, {} rounds, {} wait",
            came.asked, came.rounds, came.most_waiting
        );
        println!("{told}");
        assert!(came.asked * 100 <= pages * 115, "{told}");
        assert!(came.rounds <= rounds, "{told}");
        assert!(came.most_waiting <= BOUND + AT_ONCE * 1000, "{told}");
    }
}

/// Kinds whose names come in clusters.
const UNEVEN: [&str; 2] = ["dates", "classes"];

#[test]
fn a_hundred_thousand_names_of_any_kind() {
    let even: Vec<_> = KINDS.into_iter().filter(|kind| !UNEVEN.contains(kind)).collect();
    check(100_000, &even, 27);
    check(100_000, &UNEVEN, 60);
}

#[test]
fn a_million_names() {
    check(1_000_000, &["counted", "hashes"], 85);
    check(1_000_000, &["dates"], 320);
}

#[test]
fn small_directories_cost_no_request_more() {
    for count in [0_usize, 1, 999, 1000, 1001, 3000, 4000] {
        let mut keys: BTreeSet<_> = (0..count).map(|index| format!("f{index:05}")).collect();
        let came = list(&mut keys, AT_ONCE, 1000, BOUND, |_, _| {});
        assert_eq!((came.names.len(), came.asked), (count, count.div_ceil(1000).max(1)));
    }
}

#[test]
fn a_store_that_does_not_start_where_it_is_told_is_listed_by_way_of_the_beginning() {
    let keys: BTreeSet<_> = (0..20_000).map(|index| format!("f{index:05}")).collect();
    let (mut split, hidden, mut came) = (Split::behind("d/", ""), Hidden::default(), Vec::new());
    while !split.is_complete() {
        let asked: Vec<_> = std::iter::from_fn(|| split.ask(15)).collect();
        for mut ask in asked {
            ask.start_after.clear();
            split
                .landed(ask.piece, page(&keys, &ask, 1000), Asked::at(Instant::now()), &hidden)
                .expect("a good page");
        }
        while let Some(page) = split.take() {
            came.extend(page.keys().map(str::to_owned));
        }
    }
    assert!(came.iter().eq(&keys));
}

#[test]
fn a_page_that_cannot_be_had_is_asked_for_again_when_it_is_waited_for() {
    let keys: BTreeSet<_> = (0..50_000).map(|index| format!("f{index:05}")).collect();
    let (mut split, hidden, mut came, mut failures) =
        (Split::behind("d/", ""), Hidden::default(), Vec::new(), 0);
    for round in 0.. {
        let asked: Vec<_> = std::iter::from_fn(|| split.ask(15)).collect();
        assert!(!asked.is_empty());
        for ask in asked {
            if !ask.is_first && round % 3 == 0 {
                failures += 1;
                assert!(!split.failed(ask.piece, round % 2 == 0));
            } else {
                split
                    .landed(ask.piece, page(&keys, &ask, 1000), Asked::at(Instant::now()), &hidden)
                    .expect("a good page");
            }
        }
        while let Some(page) = split.take() {
            came.extend(page.keys().map(str::to_owned));
        }
        if split.is_complete() {
            break;
        }
    }
    assert!(came.iter().eq(&keys) && failures > 10, "{failures}");
}

#[test]
fn listings_that_go_back_or_have_no_end_are_faults() {
    let keys: BTreeSet<_> = (0..30).map(|index| format!("f{index:02}")).collect();
    let all = |piece| Ask { piece, is_first: true, start_after: String::new(), continuation: None };
    let (mut split, hidden) = (Split::behind("d/", ""), Hidden::default());
    for fault in [None, Some(Fault::GoesBack)] {
        let ask = split.ask(0).expect("the beginning, and what follows");
        let landed = split.landed(ask.piece, page(&keys, &all(0), 10), Asked::at(Instant::now()), &hidden);
        assert_eq!(landed.err(), fault);
    }
    let mut split = Split::behind("d/", "");
    for fault in [None, Some(Fault::HasNoEnd)] {
        let ask = split.ask(0).expect("the beginning, and what follows");
        let stuck = ListPage { next: Some("1".to_owned()), ..ListPage::default() };
        assert_eq!(split.landed(ask.piece, stuck, Asked::at(Instant::now()), &hidden).err(), fault);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the keys are, and however they change, keys that stay are listed once and in order.
    #[test]
    fn what_stays_is_told_once_and_in_order(
        stay in proptest::collection::btree_set("[ab09]{1,3}[-/é猫z]{0,2}[0-9]{0,3}", 0..400),
        come_and_go in proptest::collection::vec(("[ab09]{1,3}[-/é猫z]{0,2}[0-9]{0,3}", any::<bool>()), 0..200),
        page_len in 1usize..12,
        at_once in 1usize..20,
        bound in 1usize..200,
    ) {
        let valid = |key: &String| !key.starts_with('/') && !key.contains("//");
        let stay: BTreeSet<String> = stay.into_iter().filter(valid).collect();
        let mut keys = stay.clone();
        let mut changes = come_and_go.into_iter().filter(|(key, _)| valid(key));
        let came = list(&mut keys, at_once, page_len, bound, |keys, _| {
            for (key, comes) in changes.by_ref().take(10) {
                if comes {
                    keys.insert(key);
                } else if !stay.contains(&key) {
                    keys.remove(&key);
                }
            }
        });
        prop_assert!(came.names.is_sorted_by(|a, b| a < b), "{:?}", came.names);
        for name in names(&stay) {
            prop_assert!(came.names.contains(&name), "{name} of {:?}", came.names);
        }
    }
}
