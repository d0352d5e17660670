//! What is said of an object that is to be written.

use s3mount_object::{ETag, UserMetadata};

/// Which object a write may replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Whichever is there, or none.
    #[default]
    Any,
    /// None: the write fails if an object is at the key.
    Absent,
    /// Only this version.
    Version(ETag),
}

/// What the store keeps beside the bytes of a new object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The media type.
    pub content_type: Option<String>,
    /// Text of the user.
    pub metadata: UserMetadata,
}
