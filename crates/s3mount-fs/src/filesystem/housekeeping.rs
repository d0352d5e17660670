//! What is done every few seconds: what is not believed any more is let go of, and memory is given back.

use std::sync::Weak;
use std::time::Duration;

use s3mount_memory::trim_heap;

use crate::directory::list_ahead::Walks;
use crate::inode::{INODE_BYTES, InodeTable};
use crate::namespace::Namespace;

/// How often what is not believed any more is let go of.
const INTERVAL: Duration = Duration::from_secs(5);

/// Memory of names after which it is worth the trouble to give half of it back, in bytes.
const WORTH_TRIMMING: usize = 16 << 20;

/// Lets go of names that are not believed any more, and gives memory back once many are gone. Ends with the
/// mount.
pub(super) async fn keep_house(namespace: Weak<Namespace>, walks: Weak<Walks>, inodes: Weak<InodeTable>) {
    let mut most_bytes = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let (Some(namespace), Some(walks), Some(inodes)) =
            (namespace.upgrade(), walks.upgrade(), inodes.upgrade())
        else {
            return;
        };
        namespace.expire();
        walks.expire();
        let bytes = namespace.bytes() + inodes.len() * INODE_BYTES;
        most_bytes = most_bytes.max(bytes);
        if most_bytes > WORTH_TRIMMING && bytes < most_bytes / 2 {
            most_bytes = bytes;
            // Some milliseconds, at which no request waits here.
            let _ = tokio::task::spawn_blocking(trim_heap).await;
        }
    }
}
