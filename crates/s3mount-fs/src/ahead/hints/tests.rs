use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Guess, HintWriter, Hints, LOOK_UPS, MAX_QUEUED, Next, Todo};
use crate::numbers::InodeNo;
use crate::open::open_clock::OpenClock;

const GIVEN_AT: OpenClock = OpenClock(0);

/// All hints of a writer, looked up and followed.
fn take_all(hints: &Hints, writer: &HintWriter) -> Vec<String> {
    let mut paths = Vec::new();
    while let Some(Next::Hint(hint)) = hints.next(writer) {
        paths.push(hint.path.into());
        hints.followed(writer);
    }
    paths
}

#[test]
fn a_line_of_any_length_is_refused_and_the_next_is_taken() {
    let (hints, writer) = (Hints::default(), Arc::default());
    for _ in 0..10 {
        hints.push(&writer, &vec![b'x'; 1 << 20], GIVEN_AT);
    }
    assert!(hints.push(&writer, b"\nafter\n", GIVEN_AT));
    assert!(!hints.push(&writer, b"more\n", GIVEN_AT), "a task follows it");
    assert_eq!(take_all(&hints, &writer), ["after", "more"]);
    assert_eq!(hints.refused(), 1);
}

#[test]
fn what_waits_is_bounded_and_no_writer_has_it_all() {
    for line in ["a\n", "some/long/path/to/a/file.jpeg\n"] {
        let hints = Hints::default();
        let writers: [Arc<HintWriter>; 3] = Default::default();
        let count = 40_000_000 / line.len();
        for writer in &writers {
            hints.push(writer, line.repeat(count).as_bytes(), GIVEN_AT);
        }
        let taken = writers.each_ref().map(|writer| super::lock(&writer.0).queue.bytes());
        assert!(taken.iter().sum::<usize>() <= MAX_QUEUED, "{taken:?}");
        assert!(taken[0] <= MAX_QUEUED / 2 + 1024 && taken[0] > MAX_QUEUED / 3, "{taken:?}");
        assert!(taken[1] > MAX_QUEUED / 5 && taken[2] > MAX_QUEUED / 10, "{taken:?}");
        assert!(hints.refused() > 0);
        for writer in &writers {
            take_all(&hints, writer);
        }
        assert_eq!(hints.queued_bytes.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_writer_s_task_ends_with_what_it_has_told_and_begins_anew() {
    let (hints, writer) = (Hints::default(), Arc::default());
    let todo = || hints.todo(&writer, u64::MAX, GIVEN_AT, Instant::now());
    assert!(hints.push(&writer, "a\n".repeat(2 * LOOK_UPS).as_bytes(), GIVEN_AT));
    assert!(matches!(todo(), Todo::Wait(_)), "nothing was looked up");
    assert_eq!((0..).take_while(|_| hints.next(&writer).is_some()).count(), LOOK_UPS, "at once");
    assert_eq!((todo(), hints.counts()), (Todo::Fetch, (2 * LOOK_UPS, 0)));
    (0..LOOK_UPS).for_each(|_| hints.followed(&writer));
    take_all(&hints, &writer);
    assert_eq!((todo(), hints.counts()), (Todo::End, (0, 0)));
    assert!(hints.push(&writer, b"b\n", GIVEN_AT));
}

#[test]
fn nothing_is_guessed_in_a_folder_that_somebody_tells_of() {
    let (hints, now) = (Hints::default(), Instant::now());
    let guess = |prefix: &str, seconds: u64| {
        let guess = Guess {
            parent: InodeNo(1),
            prefix: prefix.into(),
            name: "x".into(),
            given_at: GIVEN_AT,
            was_opened_before: false,
        };
        hints.guess(prefix, std::iter::once(guess), now + Duration::from_secs(seconds)).is_some()
    };
    hints.note_hinted_folder(&"told/".into(), now);
    assert!(!guess("told/", 29));
    assert!(guess("other/", 0));
    let writer = hints.running().pop().expect("it runs");
    assert!(hints.next(&writer).is_some_and(|next| matches!(next, Next::Guess(_))));
    hints.followed(&writer);
    assert_eq!(hints.todo(&writer, 1, GIVEN_AT, now), Todo::End);
    assert!(guess("told/", 30));
    (0..2 * super::MAX_HINTED_FOLDERS)
        .for_each(|folder| hints.note_hinted_folder(&folder.to_string().into(), now));
    assert!(super::lock(&hints.hinted_folders).len() <= super::MAX_HINTED_FOLDERS);
}

proptest! {
    #[test]
    fn it_does_not_matter_how_writes_are_cut(
        text in proptest::collection::vec(prop_oneof!["[a-c/.]{0,4}\n", "\t", "[0-9]{1,3}"], 0..30),
        cuts in proptest::collection::vec(1usize..20, 1..30),
    ) {
        let text = text.concat();
        let (whole, writer) = (Hints::default(), Arc::default());
        whole.push(&writer, text.as_bytes(), GIVEN_AT);
        let (pieces, cut_writer) = (Hints::default(), Arc::default());
        let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
        while !rest.is_empty() {
            let cut = cuts.next().copied().unwrap_or(1).min(rest.len());
            pieces.push(&cut_writer, &rest[..cut], GIVEN_AT);
            rest = &rest[cut..];
        }
        prop_assert_eq!(whole.refused(), pieces.refused());
        prop_assert_eq!(take_all(&whole, &writer), take_all(&pieces, &cut_writer));
    }
}
