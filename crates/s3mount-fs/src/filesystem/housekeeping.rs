//! Drops expired names and logs every few seconds, and gives unused memory back to the machine.

use std::sync::Weak;
use std::time::Duration;

use s3mount_memory::trim_heap;

use crate::directory::list_ahead::Walks;
use crate::drafts::logs::Logs;
use crate::names::Namespace;
use crate::tree::inode::{INODE_BYTES, InodeTable};

/// How often expired names are dropped.
const INTERVAL: Duration = Duration::from_secs(5);

/// The least memory of names, in bytes, that is given back once half of it is unused.
const WORTH_TRIMMING: usize = 16 << 20;

/// Drops expired names and logs, and gives memory back once many names are gone. Ends when the mount ends.
pub(super) async fn keep_house(
    namespace: Weak<Namespace>,
    walks: Weak<Walks>,
    inodes: Weak<InodeTable>,
    logs: Weak<Logs>,
) {
    let mut most_bytes = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let (Some(namespace), Some(walks), Some(inodes), Some(logs)) =
            (namespace.upgrade(), walks.upgrade(), inodes.upgrade(), logs.upgrade())
        else {
            return;
        };
        namespace.expire();
        walks.expire();
        logs.expire();
        inodes.settle();
        let bytes = namespace.bytes() + inodes.len() * INODE_BYTES;
        most_bytes = most_bytes.max(bytes);
        if most_bytes > WORTH_TRIMMING && bytes < most_bytes / 2 {
            most_bytes = bytes;
            // This takes some milliseconds. No request waits for it in this thread.
            let _ = tokio::task::spawn_blocking(trim_heap).await;
        }
    }
}
