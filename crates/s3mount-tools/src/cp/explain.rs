//! Why an object was not copied, and what to do.

use anyhow::Error;
use s3mount_object::{ErrorKind, ObjectError};
use s3mount_write::CopyError;

use super::place::Place;

/// Explains why a source can't be looked at.
pub(super) fn explain_source(from: &Place, error: CopyError) -> Error {
    let text = match &error {
        CopyError::Object(error) if *error.kind() == ErrorKind::NotFound => {
            format!("there is no object {from}; check its key, or add --recursive if it is a folder")
        }
        CopyError::Object(error) if *error.kind() == ErrorKind::Forbidden => {
            format!(
                "the source {from} may not be read ({}); the credentials need s3:GetObject for it",
                said(error)
            )
        }
        _ => format!("cannot look at the source {from}"),
    };
    Error::new(error).context(text)
}

/// Explains why an object was not copied.
pub(super) fn explain(from: &Place, to: &Place, error: CopyError) -> Error {
    let text = match &error {
        CopyError::SourceChanged { .. } => {
            format!(
                "{from} was replaced or deleted while it was copied, and {to} was not written; run the command again"
            )
        }
        CopyError::Taken { .. } => format!("another object was written to {to} meanwhile, and stays"),
        CopyError::Differs { .. } => {
            format!("the copy {to} does not have the bytes of {from}: their checksums differ; do not use it")
        }
        CopyError::TooLong { .. } => format!("{from} is too long to be copied"),
        CopyError::Object(error) => match error.kind() {
            ErrorKind::Forbidden => format!(
                "{from} may not be copied to {to} ({}); the credentials need s3:GetObject for the one, and \
                 s3:PutObject for the other",
                said(error)
            ),
            ErrorKind::Archived => {
                format!(
                    "{from} is in an archive, and can't be read; restore it first (aws s3api restore-object)"
                )
            }
            _ if error.is_retryable() => {
                format!(
                    "cannot copy {from} to {to}; the same command tries again, and goes on with what is copied"
                )
            }
            _ => format!("cannot copy {from} to {to}"),
        },
    };
    Error::new(error).context(text)
}

/// What the store said.
fn said(error: &ObjectError) -> String {
    let detail = error.detail();
    detail.message.as_ref().or(detail.code.as_ref()).cloned().unwrap_or_else(|| "access denied".to_owned())
}
