//! The operations of a bucket: how each is named, which permits it takes, and how long it may take.

use std::time::Duration;

/// A body moves at least as fast as this over the network; what is slower counts as stalled. Sixteen bodies at
/// once over a line of 100 Mbit/s have 0.8 MB/s each.
const SENT_BYTES_PER_SECOND: u64 = 500_000;

/// S3 copies at least as fast as this inside a region. 180 MB/s were measured.
const COPIED_BYTES_PER_SECOND: u64 = 20_000_000;

/// After this time the answer to a request without a body is slow. S3 mostly takes 60 ms, and seconds for a LIST
/// after many keys were deleted.
const SLOW: Duration = Duration::from_secs(2);

/// After this time the answer to a request that moves bytes is slow, apart from the time for its bytes.
const SLOW_BODY: Duration = Duration::from_secs(5);

/// A request that the store answers. Its name is the one that S3 has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads a range of a version.
    GetObject,
    /// Says what an object has beside its bytes.
    HeadObject,
    /// Says of which parts an object was made.
    GetObjectAttributes,
    /// Says which tags an object has.
    GetObjectTagging,
    /// One page of keys.
    ListObjectsV2,
    /// One page of uploads that are not complete.
    ListMultipartUploads,
    /// One page of the parts of an upload.
    ListParts,
    /// Writes an object whole.
    PutObject,
    /// Begins an upload in parts.
    CreateMultipartUpload,
    /// Writes a part.
    UploadPart,
    /// Copies a part inside the store.
    UploadPartCopy,
    /// Makes an object of the parts of an upload.
    CompleteMultipartUpload,
    /// Gives an upload up.
    AbortMultipartUpload,
    /// Copies an object inside the store.
    CopyObject,
    /// Deletes an object.
    DeleteObject,
    /// Gives an object another key.
    RenameObject,
}

/// Who shares permits with whom. The permits of all classes together are bounded; see
/// [`Limits`](crate::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// GETs that a reader waits for.
    Read,
    /// GETs ahead of their readers, and second GETs.
    Ahead,
    /// LISTs, HEADs and all else that only asks.
    List,
    /// Bodies that are sent to the store.
    Write,
    /// What the store does by itself: copies, deletions and renames, and the beginnings and ends of uploads.
    Copy,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 5] = [Self::Read, Self::Ahead, Self::List, Self::Write, Self::Copy];
}

impl Operation {
    /// The name that S3 has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetObject => "GetObject",
            Self::HeadObject => "HeadObject",
            Self::GetObjectAttributes => "GetObjectAttributes",
            Self::GetObjectTagging => "GetObjectTagging",
            Self::ListObjectsV2 => "ListObjectsV2",
            Self::ListMultipartUploads => "ListMultipartUploads",
            Self::ListParts => "ListParts",
            Self::PutObject => "PutObject",
            Self::CreateMultipartUpload => "CreateMultipartUpload",
            Self::UploadPart => "UploadPart",
            Self::UploadPartCopy => "UploadPartCopy",
            Self::CompleteMultipartUpload => "CompleteMultipartUpload",
            Self::AbortMultipartUpload => "AbortMultipartUpload",
            Self::CopyObject => "CopyObject",
            Self::DeleteObject => "DeleteObject",
            Self::RenameObject => "RenameObject",
        }
    }

    /// The class whose permits it takes.
    pub fn class(self) -> Class {
        match self {
            Self::GetObject => Class::Read,
            Self::HeadObject
            | Self::GetObjectAttributes
            | Self::GetObjectTagging
            | Self::ListObjectsV2
            | Self::ListMultipartUploads
            | Self::ListParts => Class::List,
            Self::PutObject | Self::UploadPart => Class::Write,
            Self::CreateMultipartUpload
            | Self::UploadPartCopy
            | Self::CompleteMultipartUpload
            | Self::AbortMultipartUpload
            | Self::CopyObject
            | Self::DeleteObject
            | Self::RenameObject => Class::Copy,
        }
    }

    /// Whether a second attempt does the same again and no more, whatever became of the first. A second attempt at
    /// any other operation may meet what the first has done: then it fails although all is done, or begins a second
    /// upload.
    pub fn is_safe_to_repeat(self) -> bool {
        match self {
            Self::GetObject
            | Self::HeadObject
            | Self::GetObjectAttributes
            | Self::GetObjectTagging
            | Self::ListObjectsV2
            | Self::ListMultipartUploads
            | Self::ListParts
            | Self::UploadPart
            | Self::UploadPartCopy
            | Self::AbortMultipartUpload
            // The store knows a rename by its token.
            | Self::RenameObject => true,
            Self::PutObject
            | Self::CreateMultipartUpload
            | Self::CompleteMultipartUpload
            | Self::CopyObject
            | Self::DeleteObject => false,
        }
    }

    /// After this time an answer is slow. The request is for, moves, or joins `bytes` bytes. An attempt is given up
    /// after four times this time, and after 5 s at the earliest.
    pub fn slow_after(self, bytes: u64) -> Duration {
        match self {
            Self::GetObject => SLOW + Duration::from_millis(bytes * 250 / SENT_BYTES_PER_SECOND),
            Self::PutObject | Self::UploadPart => {
                SLOW_BODY + Duration::from_millis(bytes * 250 / SENT_BYTES_PER_SECOND)
            }
            // Nothing is heard of a copy while the store makes it.
            Self::CopyObject | Self::UploadPartCopy => {
                SLOW_BODY + Duration::from_millis(bytes * 250 / COPIED_BYTES_PER_SECOND)
            }
            // S3 may need minutes for many parts: some 20 ms for each, of 5 MiB at least.
            Self::CompleteMultipartUpload => SLOW_BODY + Duration::from_millis(bytes >> 20),
            Self::HeadObject
            | Self::GetObjectAttributes
            | Self::GetObjectTagging
            | Self::ListObjectsV2
            | Self::ListMultipartUploads
            | Self::ListParts
            | Self::CreateMultipartUpload
            | Self::AbortMultipartUpload
            | Self::DeleteObject
            | Self::RenameObject => SLOW,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Operation;

    #[test]
    fn a_request_has_time_for_its_bytes() {
        let seconds = |operation: Operation, bytes| (operation.slow_after(bytes) * 4).as_secs();
        assert_eq!(seconds(Operation::DeleteObject, 0), 8);
        assert_eq!(seconds(Operation::UploadPart, 8_000_000), 36);
        assert_eq!(seconds(Operation::CopyObject, 200_000_000), 30);
        assert_eq!(seconds(Operation::CompleteMultipartUpload, 10_000 * (5 << 20)), 220);
        assert!(Operation::PutObject.slow_after(5 << 40) < Duration::from_secs(1_000_000_000));
    }
}
