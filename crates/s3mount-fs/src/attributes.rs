//! Attributes in the metadata of objects: owner, mode and time, in the format of other programs.
//!
//! - [`stored`]: the attributes, and their text;
//! - [`of_draft`]: those of a file that is being written;
//! - [`known`]: those that HEADs have returned. A listing does not contain them;
//! - [`modes`]: execute permissions, on mounts that keep no attributes.

pub(crate) mod known;
pub(crate) mod modes;
pub(crate) mod of_draft;
pub(crate) mod stored;

use std::sync::Arc;

use self::known::KnownAttrs;
use self::modes::Modes;

/// The attributes of files.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// Attributes that are stored with objects. Unset if the mount keeps none.
    pub(crate) kept: Option<Arc<KnownAttrs>>,
    /// Execute permissions, if the mount keeps no attributes.
    pub(crate) modes: Modes,
}
