//! Makes lent buffers into bytes.

use s3mount_object::PartBuffer;

/// A lent buffer, from which `Bytes` can be made.
pub(crate) struct Lent(pub(crate) Box<dyn PartBuffer>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}
