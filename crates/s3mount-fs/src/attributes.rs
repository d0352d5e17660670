//! Attributes that are kept beside objects: owner, mode and time, as other programs keep them, too.
//!
//! - [`stored`]: what they are, and how they are written down;
//! - [`of_draft`]: those of a file that is being written;
//! - [`known`]: those that were asked for. A listing does not bring them;
//! - [`modes`]: who may run a file, where they are not kept.

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
    /// Those that are kept beside objects. Unset if none are.
    pub(crate) kept: Option<Arc<KnownAttrs>>,
    /// Who may run a file, where none are kept.
    pub(crate) modes: Modes,
}
