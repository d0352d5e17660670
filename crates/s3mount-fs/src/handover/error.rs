//! Why the state of a daemon can't be taken over.

use std::io;

/// Why a log can't be taken over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another build has written it in another form.
    #[error("the daemon before has left its state in form {found}, and this build reads form {known}")]
    OtherVersion {
        /// Its form.
        found: u32,
        /// The form that this build reads.
        known: u32,
    },
    /// It was not written by a daemon.
    #[error("the file holds no state of a daemon")]
    NoLog,
    /// A record says what this build does not know.
    #[error("the state of the daemon before has a record that this build does not know")]
    NoRecord,
}

impl From<bytes::TryGetError> for HandoverError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::NoRecord
    }
}
