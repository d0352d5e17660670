use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};
use tokio::time::Instant;

use super::{Known, Limits, Outcome, Snapshots};
use crate::fact::Asked;
use crate::name::NameKind;
use crate::name::{Hidden, Stored};
use crate::pages::page::Page;
use crate::time::{millis, time};

const LIMITS: Limits =
    Limits { ttl: Duration::from_secs(60), negative_ttl: Duration::from_secs(1), bytes: 1 << 20 };

/// The LIST page of `keys`, of which those that end in `/` are common prefixes.
fn listed(prefix: &str, keys: &[&str], is_last: bool) -> ListPage {
    let meta = ObjectMeta {
        etag: ETag::new("\"0123456789abcdef0123456789abcdef\""),
        size: 7,
        last_modified: UNIX_EPOCH,
        storage_class: None,
    };
    let (folders, files): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.ends_with('/'));
    let object = |key: &&str| ListedObject { key: format!("{prefix}{key}"), meta: meta.clone() };
    ListPage {
        objects: files.iter().map(object).collect(),
        common_prefixes: folders.iter().map(|key| format!("{prefix}{key}")).collect(),
        next: (!is_last).then(|| "more".to_owned()),
    }
}

fn note(snapshots: &Snapshots, after: &str, keys: &[&str], is_last: bool, at: Instant) {
    let page = Page::new("d/", after, &listed("d/", keys, is_last), Asked::at(at), &Hidden::default());
    snapshots.note(&Arc::from("d/"), page);
}

/// F for a file, D for a folder, - for nothing, ! for in doubt, ? for unknown.
fn ask(snapshots: &Snapshots, names: &[&str], now: Instant) -> String {
    let mark = |name: &&str| match snapshots.get("d/", name, now) {
        Known::Found(Stored::File(file), _) => {
            assert_eq!((file.object.key(), file.size), (&*format!("d/{name}"), 7));
            'F'
        }
        Known::Found(Stored::Directory, _) => 'D',
        Known::Absent(_) => '-',
        Known::InDoubt => '!',
        Known::Unknown => '?',
    };
    names.iter().map(mark).collect()
}

#[test]
fn a_page_answers_for_what_lies_between_its_ends() {
    let (snapshots, now) = (Snapshots::new(LIMITS), Instant::now());
    note(&snapshots, "b", &["c", "e/", "f", "f-g"], false, now);
    // A folder f may still follow: f/ comes after f-g.
    assert_eq!(ask(&snapshots, &["a", "b", "c", "d", "e", "f", "g"], now), "??F-D??");
    note(&snapshots, "f-g", &["f/"], true, now);
    assert_eq!(ask(&snapshots, &["f", "f-g", "z"], now), "DF-");
}

#[test]
fn what_is_there_is_believed_for_longer_than_what_is_not() {
    let (snapshots, now) = (Snapshots::new(LIMITS), Instant::now());
    note(&snapshots, "", &["a", "b/"], true, now);
    let after = |seconds| ask(&snapshots, &["a", "b", "c"], now + Duration::from_secs(seconds));
    assert_eq!([0, 1, 59, 60].map(after), ["FD-", "FD?", "FD?", "???"]);
    snapshots.expire(now + Duration::from_secs(59));
    assert!(snapshots.bytes() > 0);
    snapshots.expire(now + Duration::from_secs(60));
    assert_eq!(snapshots.bytes(), 0);
}

#[test]
fn an_old_page_fills_gaps_and_replaces_nothing_that_is_newer() {
    let (snapshots, now) = (Snapshots::new(LIMITS), Instant::now());
    let before =
        |millis| now.checked_sub(Duration::from_millis(millis)).expect("a machine that runs for long");
    let (older, old) = (before(2000), before(500));
    note(&snapshots, "b", &["c", "d"], false, now);
    note(&snapshots, "k", &["l", "m"], false, older);
    note(&snapshots, "r", &["s", "t"], false, now);
    // It shows names that are gone from the newer pages, and names that the older page lacks.
    let keys = ["a", "b5", "c5", "e", "f", "l5", "p", "s5", "z"];
    let fill = |key| {
        let page = Page::new("d/", "", &listed("d/", &keys, true), Asked::at(old), &Hidden::default());
        snapshots.fill(&Arc::from("d/"), key, page).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let all = ["a", "b5", "c", "c5", "e", "f", "l", "l5", "p", "s", "s5", "z"];
    assert_eq!(ask(&snapshots, &all, now), "?-F-??F??F-?");
    assert_eq!(fill("c5"), [""; 0], "a newer page covers it");
    assert_eq!(fill("f"), ["l", "m"], "what is older is replaced");
    assert_eq!(ask(&snapshots, &all, now), "?-F-FF-FFF-?");
    assert_eq!(fill("z"), [""; 0]);
    assert_eq!(ask(&snapshots, &["a", "z"], now), "?F");
    assert_eq!(fill("a"), [""; 0]);
    assert_eq!(ask(&snapshots, &["a", "c", "s"], now), "FFF");
}

#[test]
fn what_turned_out_wrong_is_forgotten() {
    let (snapshots, now) = (Snapshots::new(LIMITS), Instant::now());
    note(&snapshots, "", &["a", "b"], false, now);
    note(&snapshots, "b", &["c", "d"], true, now);
    snapshots.forget("d/", "c", now);
    assert_eq!(ask(&snapshots, &["a", "c", "d"], now), "F!?");
}

#[test]
fn a_page_that_was_asked_for_before_a_name_was_found_wrong_is_not_kept() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    note(&snapshots, "", &["a", "b"], true, start);
    snapshots.forget("d/", "a", at(2));
    note(&snapshots, "", &["a", "b"], true, at(1));
    assert_eq!(ask(&snapshots, &["a", "b"], at(3)), "!?", "it may have been under way");
    snapshots.expire(at(5));
    note(&snapshots, "", &["a", "b"], true, at(2));
    assert_eq!(ask(&snapshots, &["a", "b"], at(5)), "!?", "still");
    note(&snapshots, "", &["a", "b"], true, at(4));
    assert_eq!(ask(&snapshots, &["a", "b"], at(5)), "FF");
}

#[test]
fn a_name_that_was_told_of_is_in_doubt_and_those_beside_it_are_not() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let prefix: Arc<str> = Arc::from("d/");
    note(&snapshots, "", &["a", "b", "c"], true, at(1));
    snapshots.doubt(&prefix, "b", at(2));
    snapshots.doubt(&prefix, "d", at(2));
    assert_eq!(ask(&snapshots, &["a", "b", "c", "d"], at(2)), "F!F!");
    assert!(snapshots.shows_names("d/", at(2)));
    note(&snapshots, "", &["a", "b", "c"], true, start + Duration::from_millis(1500));
    assert_eq!(ask(&snapshots, &["a", "b", "c", "d"], at(2)), "F!F!", "it was under way");
    note(&snapshots, "", &["a", "c", "d"], true, at(3));
    assert_eq!(ask(&snapshots, &["a", "b", "c", "d"], at(3)), "F-FF");
}

#[test]
fn a_listing_that_is_older_than_what_was_told_is_not_believed() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    snapshots.doubt(&Arc::from("d/"), "b", at(2));
    note(&snapshots, "", &["a", "c"], true, at(1));
    assert_eq!(ask(&snapshots, &["a", "b", "c"], at(2)), "F!F", "nothing was known when it was told");
    // Nobody remembers all that was told: then nothing is believed that may be older.
    let many = || (0..20_000).map(|number| Arc::from(format!("many/{number}/")));
    many().for_each(|prefix| snapshots.doubt(&prefix, "a", at(3)));
    assert!(snapshots.bytes() <= LIMITS.bytes, "{} bytes", snapshots.bytes());
    for prefix in many() {
        let page =
            Page::new(&prefix, "", &listed(&prefix, &["b"], true), Asked::at(at(2)), &Hidden::default());
        snapshots.note(&prefix, page);
        assert!(!matches!(snapshots.get(&prefix, "a", at(3)), Known::Absent(_)), "{prefix}");
    }
    note(&snapshots, "", &["a", "b", "c"], true, at(4));
    assert_eq!(ask(&snapshots, &["a", "b", "c"], at(4)), "FFF");
    snapshots.expire(at(70));
    snapshots.expire(at(131));
    assert_eq!(snapshots.bytes(), 0);
}

/// A page of `d/` with these files of a version, `asked` for between two milliseconds after `start`.
fn between(start: Instant, asked: (u64, u64), files: &[&str], etag: &str) -> Page {
    let at = |millis| start + Duration::from_millis(millis);
    let mut page = Page::of_names(files, &[], etag, start);
    page.asked = Asked { sent: at(asked.0), came: at(asked.1) };
    page
}

#[test]
fn of_two_answers_that_overlap_and_differ_none_is_believed() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let prefix: Arc<str> = Arc::from("d/");
    let note = |asked, files: &[&str], etag| {
        let changed = snapshots.note(&prefix, between(start, asked, files, etag));
        changed.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let known = |name| match snapshots.get("d/", name, start + Duration::from_millis(900)) {
        Known::Found(Stored::File(file), _) => file.object.etag().as_str().to_owned(),
        other => format!("{other:?}").split('(').next().unwrap_or_default().to_owned(),
    };
    note((0, 100), &["a", "b"], "1");
    assert_eq!(note((50, 150), &["a", "b"], "1"), [""; 0]);
    assert_eq!(known("a"), "1", "both say so");
    assert_eq!(note((120, 300), &["b"], "1"), ["a"], "the kernel is told to ask again");
    assert_eq!(["a", "b", "c"].map(known), ["InDoubt", "1", "Absent"]);
    note((140, 200), &["a", "b"], "1");
    note((250, 400), &["a", "b"], "1");
    assert_eq!(["a", "b"].map(known), ["InDoubt", "1"], "these were under way together, too");
    note((390, 500), &["a", "b"], "1");
    assert_eq!(known("a"), "InDoubt", "so were these");
    note((500, 600), &["b"], "2");
    assert_eq!(["a", "b"].map(known), ["Absent", "2"], "this one was asked for when all others had come");
    note((200, 450), &["a", "b"], "1");
    assert_eq!(["a", "b"].map(known), ["Absent", "2"], "and this one is older");
}

#[test]
fn what_this_mount_has_made_is_later_than_what_was_asked_for_before() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let prefix: Arc<str> = Arc::from("d/");
    snapshots.note(&prefix, Page::of_one("a", None, Asked::at(start + Duration::from_millis(100))));
    snapshots.note(&prefix, between(start, (50, 150), &["a", "b"], "1"));
    let known = |name| snapshots.get("d/", name, start + Duration::from_millis(200));
    assert!(matches!((known("a"), known("b")), (Known::Absent(_), Known::Found(..))));
}

#[test]
fn a_store_that_does_not_know_start_after_is_no_trouble() {
    let page = Page::new(
        "d/",
        "m",
        &listed("d/", &["a", "b"], false),
        Asked::at(Instant::now()),
        &Hidden::default(),
    );
    assert_eq!(page.answer("d/", "n"), None, "it does not reach there");
    assert!(matches!(page.answer("d/", "a"), Some(Some(Stored::File(_)))));
}

#[test]
fn the_third_miss_has_the_directory_listed() {
    let (snapshots, now) = (Snapshots::new(LIMITS), Instant::now());
    assert!(!snapshots.on_miss("d/", now), "nothing is known of it");
    note(&snapshots, "", &["a"], false, now);
    let misses = |now: Instant| [(); 4].map(|()| snapshots.on_miss("d/", now));
    assert_eq!(misses(now), [false, false, true, false]);
    assert!(
        !(0..100).all(|_| snapshots.may_ask("d/", Instant::now())),
        "few look-ups ask beside the listing"
    );
    let [soon, later] = [10, 60].map(|seconds| now + Duration::from_secs(seconds));
    assert_eq!(misses(later), [false; 4], "it is being listed");
    for (outcome, is_due_soon) in
        [(Outcome::Failed, true), (Outcome::TooLarge, false), (Outcome::Known, false)]
    {
        snapshots.listed("d/", outcome, now);
        assert_eq!(misses(soon)[0], is_due_soon, "{outcome:?}");
        if !is_due_soon {
            assert!(misses(later)[0], "{outcome:?}");
        }
    }
}

#[test]
fn a_directory_that_is_too_large_is_listed_less_and_less_often() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let mut listed = Vec::new();
    for second in 0..3 * 3600 {
        let now = start + Duration::from_secs(second);
        // Look-ups bring pages all the time.
        note(&snapshots, "", &["a"], false, now);
        snapshots.expire(now);
        if (0..3).any(|_| snapshots.on_miss("d/", now)) {
            snapshots.listed("d/", Outcome::TooLarge, now);
            listed.push(second);
        }
    }
    assert_eq!(
        listed,
        [0, 60, 180, 420, 900, 1860, 3780, 7380],
        "each pause is twice as long, up to an hour"
    );
}

#[test]
fn a_million_names_and_many_folders_are_small() {
    let limits = Limits { bytes: 1 << 30, ..LIMITS };
    let (snapshots, now) = (Snapshots::new(limits), Instant::now());
    for page in 0..1000 {
        let keys: Vec<_> = (0..1000).map(|index| format!("image_{:07}.jpeg", page * 1000 + index)).collect();
        let after = if page == 0 { String::new() } else { format!("image_{:07}.jpeg", page * 1000 - 1) };
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        note(&snapshots, &after, &keys, page == 999, now);
    }
    assert_eq!(ask(&snapshots, &["image_0999999.jpeg", "image_1000000.jpeg"], now), "F-");
    assert!(snapshots.bytes() <= 200 * 1_000_000, "{}", snapshots.bytes());

    let snapshots = Snapshots::new(limits);
    for folder in 0..10_000 {
        let prefix: Arc<str> = format!("train/class_{folder:05}/").into();
        let names =
            ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg", "6.jpg", "7.jpg", "8.jpg", "9.jpg"];
        let page = Page::new(&prefix, "", &listed(&prefix, &names, true), Asked::at(now), &Hidden::default());
        snapshots.note(&prefix, page);
    }
    assert!(snapshots.bytes() <= 200 * 100_000, "{}", snapshots.bytes());
}

#[test]
fn impossible_names_are_hidden_and_counted() {
    let hidden = Hidden::default();
    let long = "x".repeat(256);
    let keys = [".", "..", "n\0l", "ok", &long, "/", "../", "fine/", ""];
    let page = Page::new("d/", "", &listed("d/", &keys, true), Asked::at(Instant::now()), &hidden);
    assert_eq!((hidden.get(), page.len()), (6, 2));
}

#[test]
fn times_before_1970_are_times() {
    for at in [UNIX_EPOCH, UNIX_EPOCH - Duration::from_millis(1), UNIX_EPOCH + Duration::from_millis(1)] {
        assert_eq!(time(millis(at)), at);
    }
    assert!(millis(UNIX_EPOCH + Duration::from_millis(1)) > 0);
}

/// Keys of a few letters, so that they meet.
fn keys() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set("[abc-]{1,3}/?", 0..20)
}

proptest! {
    /// Pages of a directory that changes between them, in any order: each answer is that of the last requested page
    /// that covers the name.
    #[test]
    fn the_newest_page_counts(
        pages in proptest::collection::vec((0u64..8, "[abc]{0,2}", keys(), any::<bool>()), 1..8),
        name in "[abc-]{1,3}",
    ) {
        let (snapshots, start) = (Snapshots::new(Limits { negative_ttl: LIMITS.ttl, ..LIMITS }), Instant::now());
        // By key: when the newest page was requested, and its answer for the key.
        let mut model: BTreeMap<String, (u64, bool)> = BTreeMap::new();
        for (asked, after, keys, is_last) in &pages {
            let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|key| *key > after.as_str()).collect();
            note(&snapshots, after, &keys, *is_last, start + Duration::from_millis(*asked));
            let last = keys.last().copied().unwrap_or(after);
            for key in [name.clone(), format!("{name}/")] {
                if key > *after
                    && (*is_last || key.as_str() <= last)
                    && model.get(&key).is_none_or(|(newest, _)| newest <= asked)
                {
                    model.insert(key.clone(), (*asked, keys.contains(&key.as_str())));
                }
            }
        }
        let says = |key: &str| model.get(key).map(|(_, is_there)| is_there);
        let expected = match (says(&format!("{name}/")), says(&name)) {
            (Some(true), _) => "D",
            (Some(false), Some(true)) => "F",
            (Some(false), Some(false)) => "-",
            _ => "?",
        };
        prop_assert_eq!(ask(&snapshots, &[&name], start + Duration::from_secs(1)), expected);
    }

    /// Answers of a store that carries out a request at any moment until the answer, for a name that changes all the
    /// time: the shown state never goes back.
    #[test]
    fn what_is_shown_never_goes_back(
        answers in proptest::collection::vec((0u64..100, 1u64..30, 1u64..30), 1..20),
    ) {
        let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
        // When each version was shown, from and to, and the version.
        let mut shown: Vec<(u64, u64, u64)> = Vec::new();
        let mut answers: Vec<_> = answers.iter().map(|(sent, before, after)| {
            (sent + before + after, *sent, (sent + before) / 7)
        }).collect();
        answers.sort_unstable();
        for (came, sent, version) in answers {
            // Each third version has no file.
            let files: &[&str] = if version % 3 == 2 { &[] } else { &["a"] };
            snapshots.note(&Arc::from("d/"), between(start, (sent, came), files, &version.to_string()));
            match snapshots.get("d/", "a", start + Duration::from_millis(came)) {
                Known::Found(Stored::File(file), _) => {
                    let version = file.object.etag().as_str().parse().expect("a number");
                    shown.extend([(sent, came, version), (came, came, version)]);
                }
                // The caller gets its own answer, and uses it only for its call.
                Known::InDoubt if version % 3 != 2 => shown.push((sent, came, version)),
                Known::InDoubt | Known::Absent(_) => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
        for (from, _, later) in &shown {
            let mut before = shown.iter().filter(|(_, to, _)| to < from);
            prop_assert!(before.all(|(_, _, version)| version <= later), "{shown:?}");
        }
    }

    /// Whatever pages come, the table stays within its limit, and counts its memory right.
    #[test]
    fn memory_is_bounded(folders in proptest::collection::vec((0u32..50, keys()), 1..100)) {
        let limits = Limits { bytes: 4096, ..LIMITS };
        let (snapshots, now) = (Snapshots::new(limits), Instant::now());
        for (folder, keys) in folders {
            let prefix: Arc<str> = format!("{folder}/").into();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let page = Page::new(&prefix, "", &listed(&prefix, &keys, true), Asked::at(now), &Hidden::default());
            snapshots.note(&prefix, page);
            prop_assert!(snapshots.bytes() <= 4096 + 2048);
        }
        let counted = snapshots.bytes();
        snapshots.expire(now);
        prop_assert_eq!(snapshots.bytes(), counted);
    }
}

#[test]
fn names_beside_one_that_was_wrong_are_still_compared_with_what_comes() {
    let (snapshots, start) = (Snapshots::new(LIMITS), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let prefix: Arc<str> = Arc::from("d/");
    let note = |seconds, files: &[&str], etag| {
        let page = Page::of_names(files, &[], etag, at(seconds));
        snapshots.note(&prefix, page).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let newer = |asked| {
        let names = ["a", "b", "c"].map(|name| (name, NameKind::File, at(asked)));
        snapshots.newer("d/", names.into_iter(), at(9))
    };
    note(2, &["a", "b", "c"], "1");
    assert_eq!(snapshots.forget("d/", "b", at(3)), [Box::from("b")], "the kernel asks again");
    assert_eq!(newer(1), vec![Some(Known::InDoubt); 3], "a listing that began before does not count");
    assert_eq!(note(4, &["b", "c"], "1"), ["a"], "the kernel learns that it is gone");
    assert_eq!(newer(1)[0], Some(Known::InDoubt));
    assert_eq!(newer(5), [None, None, None]);
    assert!(matches!(snapshots.get("d/", "a", at(4)), Known::Absent(_)));
    assert!(matches!(snapshots.get("d/", "c", at(4)), Known::Found(..)));
}
