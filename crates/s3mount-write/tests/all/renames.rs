//! Renames of folders that a daemon has begun, and that another one goes on with.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use s3mount_object::{CopySource, ObjectClient as _, ObjectId, ObjectWriter as _};
use s3mount_testkit::MemoryClient;
use s3mount_write::{FolderNames, MoveError, Moved, Phase};

use crate::{MIB, writer};

/// Notes which objects have other names.
#[derive(Default)]
struct Names(Mutex<Vec<Moved>>);

impl FolderNames for Names {
    type Guard = ();

    async fn switch(&self, moved: &[Moved]) {
        self.0.lock().expect("it is whole").extend_from_slice(moved);
    }

    fn note_deleted(&self, _: &[Moved]) {}

    async fn switch_back(&self, _: &[Moved]) {}
}

impl Names {
    /// The old keys, and whether a daemon before had deleted each.
    fn moved(self) -> Vec<(String, bool)> {
        let moved = self.0.into_inner().expect("it is whole");
        let mut moved: Vec<_> =
            moved.iter().map(|moved| (moved.from.key().to_owned(), moved.was_gone)).collect();
        moved.sort();
        moved
    }
}

/// Objects below `old/`: each has its key as its bytes.
fn bucket() -> Arc<MemoryClient> {
    let client = Arc::new(MemoryClient::new());
    for key in ["old/a", "old/b", "old/c"] {
        client.put(key, key);
        client.set_modified(key, SystemTime::UNIX_EPOCH);
    }
    client
}

/// Makes the copy that the daemon before has made.
async fn copy(client: &MemoryClient, name: &str) {
    let source = client.head_object(&format!("old/{name}")).await.expect("it is there");
    let source = ObjectId::new(&format!("old/{name}"), source.etag);
    let source = CopySource { bucket: None, object: source };
    client.copy(&source, &format!("new/{name}"), None, None).await.expect("a copy");
}

async fn go_on(client: &Arc<MemoryClient>, phase: Phase) -> (Result<(), MoveError>, Names) {
    let (writer, names) = (writer(client.clone(), MIB), Names::default());
    let begun = writer.take_rename("old/".to_owned(), "new/".to_owned(), phase);
    (writer.go_on_with_rename(begun, &names).await, names)
}

fn bytes(client: &MemoryClient, key: &str) -> String {
    String::from_utf8(client.stored(key).0).expect("text")
}

#[tokio::test]
async fn copies_that_are_there_are_taken() {
    let client = bucket();
    copy(&client, "a").await;
    let (renamed, names) = go_on(&client, Phase::Copying).await;
    renamed.expect("it goes on");
    assert_eq!(client.keys(), ["new/a", "new/b", "new/c"]);
    assert_eq!(bytes(&client, "new/a"), "old/a");
    let all = ["old/a", "old/b", "old/c"].map(|key| (key.to_owned(), false));
    assert_eq!(names.moved(), all);
}

/// The ETag of an object that was uploaded in parts is not that of its copy.
#[tokio::test]
async fn what_may_be_a_copy_is_made_again() {
    let client = bucket();
    client.keep_no_checksums();
    client.put("new/a", "OLD/A");
    go_on(&client, Phase::Copying).await.0.expect("it goes on");
    assert_eq!(client.keys(), ["new/a", "new/b", "new/c"]);
    assert_eq!(bytes(&client, "new/a"), "old/a");
}

#[tokio::test]
async fn what_is_no_copy_stays_and_the_folder_too() {
    let client = bucket();
    copy(&client, "a").await;
    client.put("new/b", "somebody else's");
    let (renamed, names) = go_on(&client, Phase::Copying).await;
    assert!(matches!(renamed, Err(MoveError::Taken(key)) if key == "new/b"));
    assert_eq!(client.keys(), ["new/b", "old/a", "old/b", "old/c"]);
    assert_eq!(names.moved(), []);
}

#[tokio::test]
async fn names_change_also_of_what_was_deleted_before() {
    let client = bucket();
    for name in ["a", "b", "c"] {
        copy(&client, name).await;
    }
    client.delete("old/b");
    let (renamed, names) = go_on(&client, Phase::Deleting).await;
    renamed.expect("it goes on");
    assert_eq!(client.keys(), ["new/a", "new/b", "new/c"]);
    let all = [("old/a", false), ("old/b", true), ("old/c", false)];
    assert_eq!(names.moved(), all.map(|(key, was_gone)| (key.to_owned(), was_gone)));
}

#[tokio::test]
async fn what_nobody_asks_for_again_is_undone_or_finished() {
    for (phase, expected) in
        [(Phase::Copying, ["old/a", "old/b", "old/c"]), (Phase::Deleting, ["new/a", "new/b", "new/c"])]
    {
        let client = bucket();
        for name in ["a", "b", "c"] {
            copy(&client, name).await;
        }
        let writer = writer(client.clone(), MIB);
        writer.give_up_rename(writer.take_rename("old/".to_owned(), "new/".to_owned(), phase)).await;
        assert_eq!(client.keys(), expected);
    }
}
