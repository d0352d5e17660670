//! The types of `s3mount-names`, with the drafts of this crate.

use crate::drafts::DraftFile;

/// The names of the bucket.
pub(crate) type Namespace = s3mount_names::Namespace<DraftFile>;

/// What a name refers to.
pub(crate) type Target = s3mount_names::Target<DraftFile>;

/// A name in a directory.
pub(crate) type Named = s3mount_names::Named<DraftFile>;

/// What a name refers to as of a moment.
pub(crate) type Fact = s3mount_names::Fact<DraftFile>;
