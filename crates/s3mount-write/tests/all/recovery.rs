//! What a rename that was cut off has left is cleaned up.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use s3mount_object::{CopySource, ObjectWriter as _};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Intent, Phase, Record, Recovered, Recovery, Sides};

/// A file that a program has written at the old name since is its own, though it has the same bytes.
#[tokio::test]
async fn what_was_written_anew_at_the_old_name_stays() {
    let client = Arc::new(MemoryClient::new());
    for (first, second) in [("old/moved", "new/moved"), ("new/again", "old/again")] {
        let source = CopySource { bucket: None, object: client.put(first, first) };
        client.set_modified(first, SystemTime::UNIX_EPOCH);
        client.copy(&source, second, None, None).await.expect("a copy");
    }
    let (from, to, phase) = ("old/".into(), "new/".into(), Phase::Deleting);
    let rename = Intent::Rename { from, to, phase, is_answered: false };
    let recovery = Recovery::new(client.clone(), Duration::from_secs(60), false);
    let recovered = recovery.recover(&Record { since: 0, intent: rename }).await.expect("it is in order");
    assert_eq!(recovered, Recovered::Finished(Sides { deleted: 1, kept: 1 }));
    assert_eq!(client.keys(), ["new/again", "new/moved", "old/again"]);
}
