//! How the program was called: by its own name, by mount(8), or as mount-s3.

use s3mount_settings::mount_s3::Translated;

use crate::helper::Helper;

/// How the program was called.
pub(crate) enum Called {
    Plainly,
    /// As mount(8) wants it done.
    ByMount(Helper),
    /// With a command line of mount-s3.
    AsMountS3(Translated),
}

impl Called {
    /// The source as /etc/fstab has it, if it is a line from there.
    pub(crate) fn source(&self) -> Option<&str> {
        match self {
            Self::Plainly => None,
            Self::ByMount(helper) => Some(&helper.source),
            Self::AsMountS3(line) => line.fstab.as_deref(),
        }
    }

    /// Whether only to check that the mount could be done.
    pub(crate) fn is_fake(&self) -> bool {
        matches!(self, Self::ByMount(helper) if helper.is_fake)
    }
}
