//! Journals in a folder of their own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, UNIX_EPOCH};

use super::left::FoundJournal;
use super::{Intent, Journal, Owner, Phase, StoreAddress};

fn owner() -> Owner {
    let store = StoreAddress { bucket: "data".to_owned(), ..StoreAddress::default() };
    Owner::this(store, UNIX_EPOCH + Duration::from_secs(7))
}

fn upload(key: &str, id: Option<&str>) -> Intent {
    Intent::Upload { key: key.to_owned(), id: id.map(str::to_owned) }
}

#[test]
fn what_is_not_done_is_found_once_its_daemon_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("state/s3mount");
    assert_eq!(FoundJournal::all(&dir).expect("no folder").len(), 0);
    let journal = Journal::open(&dir, &owner()).expect("a journal");
    let note = |intent| journal.note(UNIX_EPOCH + Duration::from_secs(9), intent);
    let (first, second) = (note(upload("a\n\"é", None)), note(upload("b", Some("1"))));
    let (from, to) = ("x/".repeat(512), "y/".repeat(512));
    let third = note(Intent::Rename {
        from: from.clone(),
        to: to.clone(),
        phase: Phase::Copying,
        is_answered: false,
    });
    first.change(upload("a\n\"é", Some("2")));
    second.done();
    let again = note(upload("c", None));
    third.change(Intent::Rename {
        from: from.clone(),
        to: to.clone(),
        phase: Phase::Deleting,
        is_answered: false,
    });
    let expected = [
        upload("a\n\"é", Some("2")),
        upload("c", None),
        Intent::Rename { from, to, phase: Phase::Deleting, is_answered: false },
    ];
    match &FoundJournal::all(&dir).expect("the folder")[..] {
        [FoundJournal::Live(found, records)] => {
            assert_eq!(*found, owner());
            assert!(records.iter().map(|record| &record.intent).eq(&expected), "{records:?}");
        }
        other => panic!("{other:?}"),
    }
    // As if the daemon were killed: the file is let go, and the rest stays.
    drop((first, third, again, journal));
    let Ok([FoundJournal::Dead(left)]) =
        <[FoundJournal; 1]>::try_from(FoundJournal::all(&dir).expect("the folder"))
    else {
        panic!("it is dead")
    };
    assert!(
        matches!(FoundJournal::all(&dir).expect("the folder")[..], [FoundJournal::Live(..)]),
        "one cleans up at a time"
    );
    let mut left = left;
    assert_eq!((left.owner(), left.records().len(), left.records()[0].1.since), (&owner(), 3, 9));
    left.done(1).expect("taken out");
    left.close().expect("the file stays");
    let Some(FoundJournal::Dead(mut left)) = FoundJournal::all(&dir).expect("the folder").pop() else {
        panic!("it is dead")
    };
    assert!(left.records().iter().map(|(_, record)| &record.intent).eq(&expected[1..]));
    for slot in [2, 3] {
        left.done(slot).expect("taken out");
    }
    left.close().expect("gone");
    assert_eq!(FoundJournal::all(&dir).expect("the folder").len(), 0);
}

#[test]
fn a_journal_without_intents_goes_and_no_journal_does_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(folder.path(), &owner()).expect("a journal");
    let other = Journal::open(folder.path(), &owner()).expect("another of the same second");
    journal.note(UNIX_EPOCH, upload("a", None)).done();
    journal.close();
    assert_eq!(FoundJournal::all(folder.path()).expect("the folder").len(), 1);
    let kept = other.note(UNIX_EPOCH, upload("a", None));
    other.close();
    assert_eq!(FoundJournal::all(folder.path()).expect("the folder").len(), 1, "something is left in it");
    drop(kept);
    let none = Journal::default();
    none.note(UNIX_EPOCH, upload("a", None)).done();
    none.close();
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("open to all");
    let refused = std::io::ErrorKind::PermissionDenied;
    assert_eq!(Journal::open(folder.path(), &owner()).expect_err("refused").kind(), refused);
    assert_eq!(FoundJournal::all(folder.path()).expect_err("refused").kind(), refused);
}

#[test]
fn what_is_torn_is_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(folder.path(), &owner()).expect("a journal");
    drop((journal.note(UNIX_EPOCH, upload("a", None)), journal.note(UNIX_EPOCH, upload("b", None)), journal));
    let path = folder.path().read_dir().expect("a folder").next().expect("a file").expect("a name").path();
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[super::SLOT + 5..super::SLOT + 20].fill(0);
    std::fs::write(&path, &bytes).expect("the file");
    let Some(FoundJournal::Dead(left)) = FoundJournal::all(folder.path()).expect("the folder").pop() else {
        panic!("dead")
    };
    assert_eq!(left.records().iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [2]);
    drop(left);
    bytes[..10].fill(0);
    std::fs::write(&path, &bytes).expect("the file");
    assert!(matches!(
        FoundJournal::all(folder.path()).expect("the folder")[..],
        [FoundJournal::Unreadable(..)]
    ));
}
