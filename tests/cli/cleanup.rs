//! `s3mount cleanup`, on journals of this process, and without a store.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::UNIX_EPOCH;

use s3mount_write::{Intent, Journal, Owner, StoreAddress};
use tempfile::TempDir;

use crate::run::{check_fails, check_usage, run, s3mount};

/// A folder with the journal of a daemon that is gone, whose store does not answer.
fn journal() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("the owner's folder");
    let store = StoreAddress {
        bucket: "data".to_owned(),
        endpoint_url: Some("http://127.0.0.1:1".to_owned()),
        no_sign_request: true,
        ..StoreAddress::default()
    };
    let journal = Journal::open(folder.path(), &Owner::this(store, UNIX_EPOCH)).expect("a journal");
    drop(journal.note(UNIX_EPOCH, Intent::Upload { key: "a/b".to_owned(), id: Some("1".to_owned()) }));
    folder
}

#[test]
fn bad_input_is_explained() {
    let missing = "error: the following required arguments were not provided:";
    check_usage(&["cleanup", "--all"], missing);
    check_usage(&["cleanup", "s3://b", "--all"], missing);
    check_usage(&["cleanup", "s3://b", "--older-than", "2d"], missing);
    check_usage(
        &["cleanup", "s3://b", "--all", "--older-than", "soon"],
        "error: invalid value 'soon' for '--older-than <TIME>': not a time; write a number with a unit, such as \
         7d, 12h, 30m or 45s",
    );
    check_usage(
        &["cleanup", "--timeout", "0"],
        "error: invalid value '0' for '--timeout <SECONDS>': 0 is not in 1..=3600",
    );
    check_fails(
        &["cleanup", "--endpoint-url", "http://127.0.0.1:1"],
        "the store was named, and no bucket; give the bucket, too: s3mount cleanup s3://BUCKET",
    );
    check_fails(
        &["cleanup", "--journal", "/dev/null"],
        "cannot read the journals in /dev/null: Not a directory (os error 20)",
    );
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let folder = journal();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("open to all");
    let dir = folder.path().display().to_string();
    check_fails(
        &["cleanup", "--journal", &dir],
        &format!(
            "cannot read the journals in {dir}: it must be a folder of your own that nobody else may write to"
        ),
    );
}

#[test]
fn nothing_to_do_is_a_success() {
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path().join("none").display().to_string();
    let output = run(s3mount(&["cleanup", "--journal", &dir]));
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn a_store_that_cannot_be_reached_leaves_the_journal() {
    let folder = journal();
    let dir = folder.path().display().to_string();
    let output = run(s3mount(&["cleanup", "--journal", &dir]));
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(
        output.stderr.contains("cannot reach http://127.0.0.1:1 for bucket \"data\""),
        "{}",
        output.stderr
    );
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 1);
}

#[test]
fn a_journal_that_cannot_be_read_is_named() {
    let folder = journal();
    let broken = folder.path().join("1-1-0.journal");
    fs::write(&broken, "nonsense").expect("a file");
    let dir = folder.path().display().to_string();
    let output = run(s3mount(&["cleanup", "--journal", &dir, "s3://another"]));
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(
        output.stderr.starts_with(&format!("s3mount: cannot read {}: ", broken.display())),
        "{}",
        output.stderr
    );
}
