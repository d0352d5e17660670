//! How the program was called: by its own name, by mount(8), or as mount-s3.

use s3mount_settings::mount_s3::Translated;
use s3mount_system::terminal;

use crate::helper::Helper;

/// What to do with messages that name flags, which the command line of mount-s3 does not have.
const OTHER_FLAGS: &str = "messages name the flags of s3mount: under the name of mount-s3, give those that its command line \
                           does not have by the environment, such as S3MOUNT_KEEP_ATTRIBUTES=true for --keep-attributes, \
                           or in the file of S3MOUNT_CONFIG";

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

    /// What to know of messages, where the command line may refuse the flags that they name.
    pub(crate) fn about_messages(&self) -> Option<&'static str> {
        matches!(self, Self::AsMountS3(_)).then_some(OTHER_FLAGS)
    }

    /// Tells the user the same after `message`, if that names a flag.
    pub(crate) fn explain(&self, message: &str) {
        if let Some(text) = self.about_messages().filter(|_| message.contains("--")) {
            terminal::notice(&format!("note: {text}"));
        }
    }

    /// Whether only to check that the mount could be done.
    pub(crate) fn is_fake(&self) -> bool {
        matches!(self, Self::ByMount(helper) if helper.is_fake)
    }
}
