//! Drafts on the bucket in memory: what they show, and what the store has once they are published.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ErrorKind;
use s3mount_testkit::MemoryClient;
use s3mount_write::{Draft, Guard, Properties, WriteConfig, WriteError, Writer};
use tokio::runtime::Handle;

fn writer(client: &Arc<MemoryClient>) -> Writer {
    let pool = BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool");
    Writer::new(client.clone(), pool, WriteConfig::default(), &Handle::current())
}

async fn all(draft: &Draft) -> Bytes {
    draft.read(0, draft.size() as usize + 1).await.expect("it is readable")
}

#[tokio::test(start_paused = true)]
async fn shows_what_is_written_and_publishes_it() {
    let client = Arc::new(MemoryClient::new());
    let draft = writer(&client).create("a/b", Properties::default());
    assert!(draft.is_dirty(), "an empty file is to be published, too");
    draft.write(3, Bytes::from_static(b"def")).await.expect("memory");
    assert_eq!(all(&draft).await, b"\0\0\0def".as_slice());
    draft.try_write(0, b"abc").expect("at once").expect("memory");
    draft.truncate(5).await.expect("it shrinks");
    let published = draft.publish().await.expect("the store takes it");
    assert_eq!((published.size, published.object.key(), draft.is_dirty()), (5, "a/b", false));
    assert_eq!(draft.publish().await.expect("nothing to do").object, published.object);
    assert_eq!(client.requests().put, 1);
    let edited = writer(&client).edit(&published.object, 5, Properties::default());
    assert_eq!((all(&edited).await, edited.is_dirty()), (Bytes::from_static(b"abcde"), false));
}

#[tokio::test(start_paused = true)]
async fn replaces_nothing_that_its_guard_excludes() {
    let client = Arc::new(MemoryClient::new());
    client.put("k", "old");
    let draft = writer(&client).create("k", Properties::default());
    draft.set_guard(Guard::Absent);
    match draft.publish().await {
        Err(WriteError::Object(error)) => assert_eq!(*error.kind(), ErrorKind::PreconditionFailed),
        other => panic!("{other:?}"),
    }
}
