//! Drafts whose bytes others keep.

use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use s3mount_object::{NewObject, ObjectClient as _};
use s3mount_testkit::MemoryClient;
use s3mount_write::{RestingBytes, RestingDraft, WriteError};

use crate::{MIB, writer};

/// Bytes that were others once, or can't be read.
#[derive(Debug)]
struct Damaged {
    can_be_read: bool,
}

const BYTES: &[u8] = b"what the disk has";

impl RestingBytes for Damaged {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.can_be_read {
            return Err(io::ErrorKind::Other.into());
        }
        into.copy_from_slice(&BYTES[offset as usize..][..into.len()]);
        Ok(())
    }

    fn are(&self, pieces: &[Bytes]) -> bool {
        assert_eq!(pieces.concat(), BYTES);
        false
    }
}

#[tokio::test]
async fn damaged_bytes_do_not_become_an_object() {
    for can_be_read in [true, false] {
        let client = Arc::new(MemoryClient::new());
        let bytes: Arc<dyn RestingBytes> = Arc::new(Damaged { can_be_read });
        let resting = RestingDraft { bytes, size: BYTES.len() as u64, modified: UNIX_EPOCH, replaced: None };
        let writer = writer(client.clone(), 64 * MIB);
        let draft = writer.go_on_resting("key", resting, None, NewObject::default());
        let error = draft.try_publish().await.expect_err("they are damaged");
        let is_damaged = |error: &WriteError| matches!(error, WriteError::Failed(first) if matches!(**first, WriteError::Damaged));
        assert!(is_damaged(&error) && error.is_refusal(), "{error}");
        assert!(draft.has_failed());
        assert!(client.head_object("key").await.is_err(), "nothing is stored");
    }
}
