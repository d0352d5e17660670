//! Why a volume is not shown at a folder, or not taken away from it.

use std::fmt;

/// Why, as far as the caller is told by the code of the answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another volume is at the folder, or the same in another way.
    AlreadyThere(String),
    /// Nothing can be mounted at the folder, or what was mounted there is nobody's to take away.
    UnfitTarget(String),
    /// Who wants a volume to be taken away names another one than that which is there. The interface has one code for that:
    /// what is named is not there.
    OtherVolume(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::AlreadyThere(text) | Self::UnfitTarget(text) | Self::OtherVolume(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Refusal {}
