//! Names whose drafts are those of this crate.

use crate::drafts::DraftFile;

/// The names of the bucket.
pub(crate) type Namespace = crate::namespace::Namespace<DraftFile>;

/// What a name stands for.
pub(crate) type Target = crate::namespace::names::Target<DraftFile>;

/// A name in a directory.
pub(crate) type Named = crate::namespace::names::Named<DraftFile>;

/// What a name stands for as of a moment.
pub(crate) type Fact = crate::namespace::fact::Fact<DraftFile>;
